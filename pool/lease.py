"""A lease: one caller's wait for a worker, its right to it, and the turns it runs there."""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypedDict

import msgspec
import trio

from errors import PoolError, WorkerError, WorkerExited
from pool.stimuli import Grant, Reject, SpawnPolicy, WorkerHold
from pool.worker_interface import PoolWorker
from profiles import CapabilityProfile, MatchLevel
from rpc.passthrough import RawRequest
from rpc.requests import RpcRequest, copy_error
from rpc.turn import RpcTurn
from wire.messages import Message, PromptParams, PromptResult, Ready, StateResult

EndCause = Callable[[], PoolError | None]


class PromptStream:
    """One turn, as it runs: iterate it for its events, one ``Message`` at a time; ``result`` holds its outcome then.

    ``next_batch()`` gives lists of events as they arrived, which is much faster; ``wait()`` looks at none. A turn that
    is left early is aborted when the lease ends. The iteration raises what the turn failed with.
    """

    def __init__(
        self,
        worker: PoolWorker,
        params: PromptParams,
        limit: float | None,
        cause: EndCause,
        on_ended: "Callable[[PromptStream], None]",
        *,
        raw: RawRequest | None = None,
    ) -> None:
        self._now = worker.client.now
        self._turn = RpcTurn(worker.client, params, timeout=limit, raw=raw)
        self._cause = cause
        self._on_ended = on_ended
        self._batch: list[Message] = []
        self._next = 0
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.result: PromptResult | None = None
        """The outcome, once the events have come to their end."""

    async def next_batch(self) -> list[Message] | None:
        """The next batch of events, None at the good end. The first call sends the prompt."""
        if self.ended_at is not None:
            return None
        try:
            if self.started_at is None:
                self.started_at = self._now()
                await self._turn.__aenter__()
            batch = await self._turn.receive()
        except WorkerError as exc:
            await self.aclose()
            raise self._with_cause(exc) from exc
        except PoolError:
            await self.aclose()
            raise
        if batch is None and self.ended_at is None:  # else it was ended meanwhile, and there is no result
            await self._finish()
        return batch

    async def _finish(self) -> None:
        """Keep the outcome; a turn that was aborted because the pool stops its worker has failed, with the reason."""
        result = self._turn.result
        await self.aclose()
        cause = self._cause() if result.stop_reason == "aborted" else None
        if cause is not None:
            raise copy_error(cause)
        self.result = result

    @property
    def is_running(self) -> bool:
        """Whether the prompt was sent, and the turn neither has come to its end nor was left."""
        return self.started_at is not None and self.ended_at is None

    @property
    def is_unanswered(self) -> bool:
        """Whether the worker was asked and has not answered, not even with an error."""
        return self._turn.is_unanswered

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while self._next >= len(self._batch):
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._batch, self._next = batch, 0
        self._next += 1
        return self._batch[self._next - 1]

    async def wait(self) -> PromptResult:
        """Run the turn to its end without looking at its events."""
        while await self.next_batch() is not None:
            pass
        if self.result is None:
            msg = "this turn was ended before it had a result"
            raise RuntimeError(msg)
        return self.result

    def _with_cause(self, exc: WorkerError) -> PoolError:
        """What the pool did to the worker, where the worker's exit is only the consequence."""
        cause = self._cause() if isinstance(exc, WorkerExited) else None
        return exc if cause is None else copy_error(cause, **{**exc.details, **cause.details})

    async def aclose(self) -> None:
        """End the turn if it still runs (it is aborted, with a deadline); harmless afterwards."""
        if not self.is_running:
            return
        self.ended_at = self._now()
        try:
            await self._turn.__aexit__(None, None, None)
        except PoolError:
            return  # a reader of the turn has its outcome; a caller that left needs none
        finally:
            self._on_ended(self)


class AcquireOptions(TypedDict, total=False):
    """How a request waits for its worker; the defaults are those of ``pool.stimuli.Acquire``."""

    priority: int
    """Higher is served first."""
    spawn: SpawnPolicy
    """False takes only what is there now, without waiting; ``"room"`` starts a worker where there is room."""
    nested: bool
    """An ancestor of this request holds a worker already."""
    bounded: bool
    """Whether the request counts against ``waiting_capacity``."""


class AcquireTicket:
    """The place where one caller waits."""

    def __init__(self) -> None:
        self._settled = trio.Event()
        self._outcome: Grant | Reject | None = None

    def settle(self, outcome: Grant | Reject) -> None:
        """Give the caller its outcome."""
        self._outcome = outcome
        self._settled.set()

    async def wait(self) -> Grant:
        """Wait for the grant, or raise why there is none. A checkpoint in any case.

        One error may go to many callers: each raises a copy, since an exception keeps the frames of every raise.
        """
        await self._settled.wait()
        if isinstance(self._outcome, Reject):
            raise copy_error(self._outcome.error)
        assert self._outcome is not None  # noqa: S101 - set together with the event
        return self._outcome


class Lease:
    """What ``Pool.lease`` gives. All of it belongs to the worker that was granted; it ends with the block.

    Attributes:
        hold: request, session, worker id and generation.
        worker_id: the worker's name in status and explanations.
        level: how well the worker's profile matched.
        waited: seconds between the request and the grant.
        stalled_for: seconds of silence for which the pool has aborted its turn.
        startup_stderr: what the worker's program wrote to stderr until it was ready.
        profile: what its holder asked for; the worker may have more.
    """

    profile: CapabilityProfile

    def __init__(
        self, grant: Grant, worker: PoolWorker, *, waited: float, cause: EndCause, startup_stderr: str
    ) -> None:
        """``cause`` tells what the pool knows of the worker's end, once it has one."""
        self.hold: WorkerHold = grant.hold
        self.worker_id = grant.hold.worker
        self.level: MatchLevel = grant.level
        self.waited = waited
        self.startup_stderr = startup_stderr
        self.stalled_for: float | None = None
        self._worker = worker
        self._cause = cause
        self._streams: list[PromptStream] = []
        self.turn_seconds: list[float] = []
        """How long each turn of this lease took, those that have ended."""
        self._was_left_unanswered = False
        self.is_released = False

    @property
    def pid(self) -> int | None:
        """The worker's process id, where it has one on this machine."""
        return self._worker.pid

    @property
    def node(self) -> str:
        """Where the worker runs; "" is this machine."""
        return self._worker.node

    async def fetch(self, path: str, limit: int) -> bytes:
        """At most the first bytes of a file in the worker's directory; see ``rpc.transport.NodeProcess``."""
        return await self._worker.fetch(path, limit)

    @property
    def abort_grace(self) -> float:
        """Seconds that an aborted turn may take to end."""
        return self._worker.client.settings.abort_grace

    @property
    def awaits_person(self) -> bool:
        """Whether the running turn waits for an approval or for the answer to a dialog."""
        return self._worker.client.awaits_person

    def prompt(
        self, text: str | PromptParams, *, timeout: float | None = None, raw: RawRequest | None = None
    ) -> PromptStream:
        """Run one turn: iterate the stream for its events. ``timeout`` in seconds ends it by an abort.

        ``raw``: the prompt as a front end has written it, which is sent instead.

        Raises, from the iteration: WorkerRefused (``busy``: a turn of this session is running), WorkerExited,
        RequestTimeout, ProtocolViolation.
        """
        self.stalled_for = None
        params = PromptParams(text) if isinstance(text, str) else text
        stream = PromptStream(self._worker, params, timeout, self._cause, self._record_turn, raw=raw)
        self._streams.append(stream)
        return stream

    async def steer(self, text: str) -> None:
        """Put a message into the running turn. Raises WorkerError."""
        await self._worker.client.request("steer", {"text": text})

    async def abort(self) -> None:
        """End the running turn; harmless when there is none. Raises WorkerError."""
        await self._worker.client.request("abort", {})

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> msgspec.Raw:
        """Any other request of the native vocabulary, undecoded. Raises WorkerError, UsageError."""
        return await self._worker.client.request(method, params)

    @property
    def has_room(self) -> bool:
        """Whether the worker has read enough of what it was sent to be sent more."""
        return self._worker.client.has_room

    async def wait_room(self) -> None:
        """Wait until the worker reads on; no checkpoint when it has read."""
        await self._worker.client.wait_room("a request of a front end")

    def forward(self, method: str, raw: RawRequest, on_settled: Callable[[], None]) -> RpcRequest:
        """Pass on a request as a front end has written it; ``method`` names it in messages.

        Raises UsageError for what the worker's dialect does not pass on, and the error that ended the worker.
        """
        return self._worker.client.submit(method, raw=raw, on_settled=on_settled)

    @property
    def is_valid(self) -> bool:
        """Whether the worker can still be asked under it."""
        return not self.is_released and self._worker.client.end_error is None

    @property
    def is_streaming(self) -> bool:
        """Whether a prompt now would run beside the current run."""
        return self._worker.client.is_streaming

    @property
    def ready(self) -> Ready | None:
        """What the worker's program said when it became ready."""
        return self._worker.client.ready

    async def state(self) -> StateResult:
        """What the worker is doing, for which conversation. Raises WorkerError."""
        return await self._worker.client.request_as(StateResult, "get_state", {})

    async def prepare_resume(self, transcript: str) -> bool:
        """Make a transcript fit to be resumed; False: there is none yet. Raises ResumeFailed."""
        return await self._worker.prepare_resume(transcript)

    async def wait_ended(self) -> PoolError:
        """Wait until the worker answers no more; why."""
        return await self._worker.client.wait_ended()

    def _record_turn(self, stream: PromptStream) -> None:
        """Keep of a turn what counts later, not its events and result: a lease may be held for thousands of turns."""
        self._streams.remove(stream)
        self._was_left_unanswered = self._was_left_unanswered or stream.is_unanswered
        if stream.started_at is not None and stream.ended_at is not None:
            self.turn_seconds.append(stream.ended_at - stream.started_at)

    @property
    def running_since(self) -> float | None:
        """When the turn that runs now was started; None when there is none."""
        running = (stream for stream in self._streams if stream.ended_at is None)
        return next((stream.started_at for stream in running if stream.started_at is not None), None)

    @property
    def awaits_answer(self) -> bool:
        """Whether a turn of this lease waits for its answer, whatever the worker's events say."""
        return any(stream.is_unanswered and stream.ended_at is None for stream in self._streams)

    @property
    def is_tainted(self) -> bool:
        """Whether a turn of this lease was ended and never answered: its run may go on, or its worker hang."""
        if not (self._streams or self._was_left_unanswered):
            return False
        left = self._was_left_unanswered or any(stream.is_unanswered for stream in self._streams)
        return left and self._worker.client.end_error is None

    async def aclose(self) -> None:
        """End what still runs. Called by ``Pool.release``."""
        for stream in self._streams.copy():
            await stream.aclose()
