"""A run: one prompt of one session from acceptance to its outcome. It outlives the front end that started it."""

import logging
import math

import msgspec
import trio

from errors import AcquireTimeout, InternalError, PoolError, RunAborted, WorkerExited
from gateway.places import Place
from pool import Pool
from pool.lease import Lease
from profiles import CapabilityProfile
from wire.messages import Message, PromptParams, TokenUsage

__all__ = ["Run", "RunOutcome", "RunRequest"]

_BATCHES_AHEAD = 16
_MAX_RETRIES = 2
_logger = logging.getLogger("pool.gateway")


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end wants: ``timeout`` in seconds covers waiting, running and being read; None = no limit.

    ``name`` is the front end's own for the run, by which it can abort this one and no other.
    """

    session: str
    profile: CapabilityProfile
    text: str
    priority: int = 5
    timeout: float | None = None
    retry_safe: bool = False
    name: str | None = None


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, when it had a turn. ``level``: how the worker matched; ``waited``: seconds until the grant."""

    session: str
    worker: str
    text: str
    stop_reason: str
    usage: TokenUsage
    level: str
    waited: float
    error: str | None = None


class Run:
    """One run. ``execute`` belongs to the gateway's nursery; ``events`` and ``outcome`` to whoever follows it."""

    def __init__(self, request: RunRequest, place: Place) -> None:
        """``place`` is the run's place in its session's lane."""
        self.request = request
        self._place = place
        self._sender, self._receiver = trio.open_memory_channel[list[Message]](_BATCHES_AHEAD)
        self._scope = trio.CancelScope()
        self._lease: Lease | None = None
        self._outcome: RunOutcome | None = None
        self._error: PoolError | None = None
        self._attempts = 0
        self._has_begun = False

    @property
    def events(self) -> trio.MemoryReceiveChannel[list[Message]]:
        """The run's events, in batches; ends with the run. Close it to let the run go on unwatched."""
        return self._receiver

    def outcome(self) -> RunOutcome:
        """The outcome, or the error raised; only after ``events`` has ended."""
        if self._outcome is not None:
            return self._outcome
        raise self._error or PoolError("the run has not ended yet")

    async def abort(self) -> bool:
        """End the run: abort its turn, or take it out of the queue. False when it has ended already."""
        if self._outcome or self._error:
            return False
        if self._lease is None:
            self._scope.cancel()
        else:
            await self._lease.abort()
        return True

    async def execute(self, pool: Pool) -> None:
        """Run to the end; never raises for what went wrong with the run itself."""
        request = self.request
        deadline = None if request.timeout is None else trio.current_time() + request.timeout
        try:
            with self._scope:
                await self._wait_and_run(pool, deadline)
        except PoolError as exc:
            self._error = exc
        except Exception as exc:  # a defect met in one run fails this run; it must not end all the others
            _logger.exception("a run of session %s failed", request.session)
            self._error = InternalError(
                f"the supervisor failed to run this prompt: {type(exc).__name__}: {exc}", session=request.session
            )
        finally:
            if self._outcome is None and self._error is None:
                when = "in its turn" if self._has_begun else "before its turn began"
                self._error = RunAborted(
                    f"the run of session {request.session} was aborted {when}", session=request.session
                )
            self._sender.close()

    async def _wait_and_run(self, pool: Pool, deadline: float | None) -> None:
        with trio.CancelScope() as waiting:
            waiting.deadline = float("inf") if deadline is None else deadline
            async with self._place:
                waiting.deadline = float("inf")  # from here on the deadline is kept by the pool and by the turn
                await self._run_with_retry(pool, deadline)
        if waiting.cancelled_caught:
            raise AcquireTimeout(
                f"session {self.request.session} was busy with earlier runs for all of {self.request.timeout:g} s",
                session=self.request.session,
            )

    async def _run_with_retry(self, pool: Pool, deadline: float | None) -> None:
        while True:
            try:
                return await self._run_once(pool, deadline)
            except WorkerExited as exc:
                self._attempts += 1
                may_repeat = self.request.retry_safe or not exc.sent
                if not may_repeat or self._attempts > _MAX_RETRIES:
                    raise

    async def _run_once(self, pool: Pool, deadline: float | None) -> None:
        request = self.request
        left = None if deadline is None else max(0.0, deadline - trio.current_time())
        async with pool.lease(
            request.session, request.profile, priority=request.priority, timeout=left, bounded=False
        ) as lease:
            self._lease = lease
            try:
                await self._run_turn(lease, deadline)
            finally:
                self._lease = None

    async def _run_turn(self, lease: Lease, deadline: float | None) -> None:
        left = None if deadline is None else max(0.0, deadline - trio.current_time())
        stream = lease.prompt(PromptParams(self.request.text), timeout=left)
        self._has_begun = watched = True
        async for batch in stream.batches():
            if watched:
                watched = await self._hand_over(batch, deadline)
        result = await stream.wait()
        self._outcome = RunOutcome(
            session=self.request.session,
            worker=lease.worker_id,
            text=result.text,
            stop_reason=result.stop_reason,
            usage=result.usage,
            level=lease.level.label,
            waited=lease.waited,
            error=result.error,
        )

    async def _hand_over(self, batch: list[Message], deadline: float | None) -> bool:
        """Give a batch to the front end, at its pace; False once it has left, or the run's time is over."""
        with trio.move_on_at(math.inf if deadline is None else deadline):
            try:
                await self._sender.send(batch)
            except trio.BrokenResourceError:
                return False
            return True
        return False
