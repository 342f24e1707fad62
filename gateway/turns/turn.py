"""One turn: lease a worker, prompt it, read its events, steer it, give it back."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import trio

from errors import InternalError, PoolError, RequestTimeout, RunAborted, WorkerExited, WorkerStalled
from gateway.events.translate import Translator
from gateway.lanes.messages import StartTurn
from gateway.runs.run import Run, interrupted_error, prompt_params
from gateway.turns.context import TurnContext
from gateway.turns.state import EndReason, TurnState
from heartbeat.answers import with_events
from pool.lease import Lease, PromptStream
from wire.messages import TokenUsage

_MAX_RETRIES = 2
_ANSWER_EVENTS = frozenset({"permission_decided", "ui_resolved"})


class TurnOwner(Protocol):
    """What a turn needs of the scheduler that runs it."""

    def start_soon(self, call: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Start a task that ends with the scheduler at the latest."""

    def requeue_steer(self, turn: "Turn", run: Run) -> None:
        """A steered run was not taken by the worker."""

    def set_alarm(self, turn: "Turn", when: float | None) -> None:
        """End the turn with TIMEOUT at that time and no other; None: never."""


class Turn(TurnState):
    """One turn of one session. ``execute`` runs it; everything else may be called meanwhile, from any task.

    Once it has run, it has a ``result``, an ``error``, or both where it was ended early.
    """

    _paused_at: float | None = None
    _consumed_steers = 0
    """Number of sent steers, from the first, that the worker looked at before the turn was to be ended."""

    def __init__(
        self, start: StartTurn, runs: list[Run], context: TurnContext, owner: TurnOwner, *, held: Lease | None = None
    ) -> None:
        """``held``: a lease that the caller took and will give back; without one the turn takes its own."""
        super().__init__(start, runs, held)
        self._context = context
        self._owner = owner
        self._initial_runs = len(runs)
        self._translator = Translator()
        self._stream: PromptStream | None = None
        """Its prompt, while that runs."""
        self._beside: dict[trio.CancelScope, trio.Event] = {}
        """The tasks beside the prompt, each with the event of its end."""
        self._steer_queue: deque[Run] = deque()
        self._steered: list[Run] = []
        """Sent to the worker, in this order."""

    # --- from outside ---------------------------------------------------------------------------------------

    def end(self, ending: EndReason) -> None:
        """End it early: a running prompt is aborted, with a deadline. The first reason counts."""
        if self.end_reason is not None:
            return
        self.end_reason = ending
        if self._wait_scope is not None:
            self._wait_scope.cancel()
        if self.lease is not None and self._stream is not None:
            self._start_beside(self._abort, self.lease, self._stream)
        else:
            self._cancel_beside()

    def steer(self, run: Run) -> None:
        """Put a run's text into the turn; the run waits again where the worker does not take it."""
        if self._stream is None or self.end_reason is not None:
            self._owner.requeue_steer(self, run)
            return
        self.runs.append(run)  # it ends with the turn, unless the worker turns out never to have taken it
        self._steer_queue.append(run)
        if len(self._steer_queue) == 1:
            self._start_beside(self._send_steers)

    def detach_run(self, run: Run) -> bool:
        """Answer no longer for a run; False when it ended before."""
        if run not in self.runs:
            return False
        self._initial_runs -= run in self.runs[: self._initial_runs]
        self.runs.remove(run)
        return True

    # --- its life ---------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Take the session's own warm worker, where it is free now, and record that the runs have started there.

        ``execute`` may be called once readers see the seq that is returned; at once where that is 0.
        """
        try:
            lease = self._context.acquire_nowait(self)
            return 0 if lease is None else self._start_on(lease)
        except Exception as exc:  # noqa: BLE001 - as in execute
            self.error = self._defect_error(exc)
            return 0

    async def execute(self) -> None:
        """Run to the end, whatever end it is; raises nothing that concerns this turn alone."""
        try:
            if self.error is None:
                await self._lease_and_run()
        except PoolError as exc:
            self.error = exc
        except Exception as exc:  # noqa: BLE001 - a defect met in one turn fails this turn, not all the others
            self.error = self._defect_error(exc)
        finally:
            self._release()
        if self.end_reason is None:
            self.unconsumed = self._take_unconsumed()
        else:
            seen = self._steered[: self._consumed_steers]
            self.discarded = [run for run in self.runs[self._initial_runs :] if run not in seen]
            self.end_error = self._end_error(self.end_reason)
        result = self.result
        if result is None or (self.end_reason is not None and result.stop_reason == "aborted"):
            self.error = self.error or self.end_error or self._end_error(None)

    async def _lease_and_run(self) -> None:
        attempts = 0
        while True:
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                if self.lease is None:
                    await self._wait_for_worker()
                return None if self.lease is None else await self._prompt(self.lease)
            except WorkerExited as exc:
                self._release()
                attempts += 1
                may_repeat = not exc.sent or all(run.request.retry_safe for run in self.runs)
                if not may_repeat or attempts > _MAX_RETRIES or self.end_reason is not None:
                    raise
                self._reset_for_retry()

    def _reset_for_retry(self) -> None:
        """The prompt alone is sent again, to a worker that knows nothing of this turn."""
        for run in (*self._steered, *self._steer_queue):
            self._return_steer(run)
        self._steered.clear()
        self._steer_queue.clear()
        self._consumed_steers = 0
        self._translator = Translator()
        self.usage = TokenUsage()
        self.begin_reply(self.style)

    async def _wait_for_worker(self) -> None:
        with self.cancel_when_ending():
            lease = self.held or await self._context.acquire(self)
            await self._context.wait_visible(self._start_on(lease), is_last=True)

    def _start_on(self, lease: Lease) -> int:
        self.lease = lease
        self.worker, self.level, self.waited = lease.worker_id, lease.level.label, lease.waited
        self.model = lease.profile.soft.model
        self.copies = {} if lease.node else None
        return self._context.mark_started(self.runs, self, lease.worker_id)

    def _release(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None and self.held is None:
            self._context.release(lease)

    async def _prompt(self, lease: Lease) -> None:
        """The prompt, within its time; steers and an abort are tasks beside it."""
        self._owner.set_alarm(self, self.deadline)
        over, is_good = "the turn is over", False
        try:
            await self._read(lease)
            is_good = True
        except WorkerExited:
            over = "the worker has died"
            raise
        finally:
            if self._stream is not None and self._stream.is_running:
                with trio.CancelScope(shield=True):  # bounded by the abort grace
                    await self._stream.aclose()
            self._stream, self.is_steerable = None, False
            if self._paused_at is not None:
                self._toggle_pause(over)
            self._owner.set_alarm(self, None)
            if self._beside:
                await self._join_beside(wait=is_good and self.end_reason is None)

    def _composed_prompt(self, lease: Lease) -> PromptStream:
        traceparent = self._context.mark_prompted(self)
        if self.leader.raw is not None:
            return lease.prompt(self.text, raw=self.leader.raw)
        turns, events = self._context.history_turns(self), self._context.claim_events(self)
        self.event_ids = [event.id for event in events]
        text = with_events(events, self.text) if events else self.text
        return lease.prompt(prompt_params(text, self.leader.request, turns, traceparent))

    async def _read(self, lease: Lease) -> None:
        if not lease.has_room:
            with self.cancel_when_ending():
                await lease.wait_room()
        if self.end_reason is not None:
            return
        stream = self._stream = self._composed_prompt(lease)
        while (batch := await stream.next_batch()) is not None:
            await self._context.publish(self, self._translator.translate(batch))
            if self.end_reason is None:
                self._consumed_steers = self._translator.consumed_steers
            self.is_steerable = not self._translator.is_compacting
            if lease.awaits_person != (self._paused_at is not None):
                is_answered = any(message.event in _ANSWER_EVENTS for message in batch)
                self._toggle_pause("answered" if is_answered else "the turn is over")
            await self._context.wait_store_room()
        self.result = result = stream.result
        if result is not None and self.copies is not None:
            await self._context.copy_files(self, result.text)  # while the worker is surely there
        was_aborted = result is not None and result.stop_reason == "aborted"
        if was_aborted and lease.stalled_for is not None and self.end_reason is None:
            text = f"worker {self.worker} was silent for {lease.stalled_for:g} s in the turn (pool.turn_stall)"
            self.error = WorkerStalled(f"{text}, which was aborted", session=self.session, worker=self.worker)

    # --- beside the prompt --------------------------------------------------------------------------------------------

    def _start_beside(self, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        scope = trio.CancelScope()
        self._beside[scope] = trio.Event()
        self._owner.start_soon(self._run_beside, scope, call, *args)

    async def _run_beside(self, scope: trio.CancelScope, call: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            with scope:
                await call(*args)
        except Exception as exc:  # noqa: BLE001 - as in execute
            self.error = self._defect_error(exc)
            if self._stream is not None:
                await self._stream.aclose()
        finally:
            self._beside.pop(scope).set()

    def _cancel_beside(self) -> None:
        for scope in self._beside:
            scope.cancel()

    async def _join_beside(self, *, wait: bool) -> None:
        """The prompt is over: let the tasks beside it come to their end (``wait``), or cancel them."""
        try:
            while wait and self._beside:
                await next(iter(self._beside.values())).wait()
        finally:
            self._cancel_beside()  # a steer without an answer ends with the turn
            with trio.CancelScope(shield=True):
                while self._beside:
                    await next(iter(self._beside.values())).wait()

    async def _abort(self, lease: Lease, stream: PromptStream) -> None:
        """Ask the worker to end the turn; one that does not within the grace is killed."""
        with trio.move_on_after(lease.abort_grace):
            with suppress(PoolError):  # it is gone, or refuses: either way the turn is watched, not the answer
                await lease.abort()
            await trio.sleep_forever()  # the end of the prompt cancels this
        await stream.aclose()

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _toggle_pause(self, why: str) -> None:
        """Stop the turn's clock while a person is asked, or start it again; ``why``: the reason for that."""
        if self._paused_at is None:
            self._paused_at = trio.current_time()
        else:
            self.deadline += trio.current_time() - self._paused_at
            self._paused_at = None
        is_paused = self._paused_at is not None
        self._owner.set_alarm(self, None if is_paused else self.deadline)
        self._context.set_awaiting_person(self, None if is_paused else why)

    def _defect_error(self, exc: Exception) -> InternalError:
        text = f"the supervisor failed to run this prompt: {type(exc).__name__}: {exc}"
        return InternalError(text, session=self.session)

    def _end_error(self, ending: EndReason | None) -> PoolError:
        when = "in its turn" if self.worker is not None else "before its turn began"
        match ending:
            case EndReason.TIMEOUT:
                return RequestTimeout(
                    f"the run of session {self.session} took longer than its timeout and was ended {when}",
                    session=self.session,
                    worker=self.worker,
                )
            case EndReason.INTERRUPTED:
                return RunAborted(
                    f"a newer message of session {self.session} interrupted the run", session=self.session
                )
            case EndReason.STOPPED:
                return interrupted_error(self.leader.request)
            case _:
                return RunAborted(f"the run of session {self.session} was aborted {when}", session=self.session)

    # --- steers -----------------------------------------------------------------------------------------------------

    async def _send_steers(self) -> None:
        """One at a time, in the order of arrival."""
        while self._steer_queue:
            await self._steer(self._steer_queue[0])
            self._steer_queue.popleft()

    async def _steer(self, run: Run) -> None:
        lease = self.lease
        try:
            if run not in self.runs:
                return  # its time was over first
            if lease is None or self._stream is None:
                raise RunAborted("the turn has ended")
            await self._context.wait_visible(self._context.mark_started([run], self, lease.worker_id), is_last=True)
            self._steered.append(run)
            await lease.steer(run.request.text)
        except PoolError as exc:
            ends_with_the_turn = self.end_reason is not None or (_may_have_acted(exc) and not run.request.retry_safe)
            if not ends_with_the_turn:
                if run in self._steered and not _may_be_queued(exc):
                    self._steered.remove(run)
                self._return_steer(run)

    def _return_steer(self, run: Run) -> None:
        if self.detach_run(run):
            self._owner.requeue_steer(self, run)

    def _take_unconsumed(self) -> list[Run]:
        """Remove the steers that the worker took and never saw."""
        left = self._translator.queued_steers
        if not left:
            return []
        lost = [run for run in self._steered[-left:] if run in self.runs]
        self.runs = [run for run in self.runs if run not in lost]
        return lost


def _may_be_queued(error: PoolError) -> bool:
    """Whether a steer without an answer may be among those that the worker says are waiting."""
    return isinstance(error, RequestTimeout) or _may_have_acted(error)


def _may_have_acted(error: PoolError) -> bool:
    """Whether a worker that has died may have acted on what it was sent and never answered."""
    return isinstance(error, WorkerExited) and error.sent
