"""One turn: lease a worker, prompt it, read its events, steer it, give it back."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import trio

from errors import (
    InternalError,
    PoolError,
    RequestTimeout,
    RunAborted,
    WorkerExited,
    WorkerStalled,
    unwrap_exception_groups,
)
from gateway.events.translate import Translator
from gateway.lanes.messages import StartTurn
from gateway.runs.run import Run, interrupted_error, prompt_params
from gateway.turns.context import EndReason, TurnContext, TurnState
from heartbeat.answers import with_events
from pool.lease import Lease, PromptStream

_MAX_RETRIES = 2
_ANSWER_EVENTS = frozenset({"permission_decided", "ui_resolved"})


class Turn(TurnState):
    """One turn of one session. ``execute`` runs it; everything else may be called meanwhile, from any task.

    Once it has run, it has a ``result``, an ``error``, or both where it was ended early.
    """

    _nursery: trio.Nursery | None = None
    _is_prompting = False
    _paused_at: float | None = None
    _consumed_steers = 0
    """Number of sent steers, from the first, that the worker looked at before the turn was to be ended."""

    def __init__(
        self,
        start: StartTurn,
        runs: list[Run],
        context: TurnContext,
        *,
        requeue_steer: "Callable[[Turn, Run], None]",
        on_steerable: "Callable[[Turn], None]",
        held: Lease | None = None,
    ) -> None:
        """``held``: a lease that the caller took and will give back; without one the turn takes its own.

        ``requeue_steer``: a steered run was not taken by the worker. ``on_steerable``: ``is_steerable`` has been set.
        """
        super().__init__(start, runs, held)
        self._context = context
        self._requeue_steer = requeue_steer
        self._on_steerable = on_steerable
        self._initial_runs = len(runs)
        self._translator = Translator()
        self._scope = trio.CancelScope()
        self._prompt_ended = trio.Event()
        self._deadline_changed = trio.Event()
        self._steer_queue: deque[Run] = deque()
        self._steer_lock = trio.Lock()
        self._steered: list[Run] = []
        """Sent to the worker, in this order."""

    # --- from outside ---------------------------------------------------------------------------------------

    def end(self, ending: EndReason) -> None:
        """End it early: a running prompt is aborted, with a deadline. The first reason counts."""
        if self.end_reason is not None:
            return
        self.end_reason = ending
        self._wait_scope.cancel()
        if self.lease is not None and self._is_prompting and self._nursery is not None:
            self._nursery.start_soon(self._abort, self.lease)
        else:
            self._scope.cancel()

    def steer(self, run: Run) -> None:
        """Put a run's text into the turn; the run waits again where the worker does not take it."""
        if self._nursery is None or not self._is_prompting or self.end_reason is not None:
            self._requeue_steer(self, run)
            return
        self.runs.append(run)  # it ends with the turn, unless the worker turns out never to have taken it
        self._steer_queue.append(run)
        self._nursery.start_soon(self._steer_next)

    def detach_run(self, run: Run) -> bool:
        """Answer no longer for a run; False when it ended before."""
        if run not in self.runs:
            return False
        self._initial_runs -= run in self.runs[: self._initial_runs]
        self.runs.remove(run)
        return True

    # --- its life ---------------------------------------------------------------------------------------------------

    async def execute(self) -> None:
        """Run to the end, whatever end it is; raises nothing that concerns this turn alone."""
        try:
            with self._scope:
                await self._lease_and_run()
        except PoolError as exc:
            self.error = exc
        except Exception as exc:  # noqa: BLE001 - a defect met in one turn fails this turn, not all the others
            self.error = InternalError(
                f"the supervisor failed to run this prompt: {type(exc).__name__}: {exc}", session=self.session
            )
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
                return await self._run_once()
            except WorkerExited as exc:
                attempts += 1
                may_repeat = not exc.sent or all(run.request.retry_safe for run in self.runs)
                if not may_repeat or attempts > _MAX_RETRIES or self.end_reason is not None:
                    raise
                self._reset_for_retry()

    def _reset_for_retry(self) -> None:
        """The prompt alone is sent again, to a worker that knows nothing of this turn."""
        for run in self._steered:
            self._return_steer(run)
        self._steered.clear()
        self._consumed_steers = 0
        self._translator = Translator()
        self.begin_reply(self.style)

    async def _run_once(self) -> None:
        async with self._context.lease(self) as lease:
            self.lease = lease
            self.worker, self.level, self.waited = lease.worker_id, lease.level.label, lease.waited
            try:
                await self._context.mark_started(self.runs, self, lease.worker_id)
                await self._prompt(lease)
            finally:
                self.lease = None

    async def _prompt(self, lease: Lease) -> None:
        """The prompt, with a task that keeps its deadline and one for every steer beside it."""
        try:
            with unwrap_exception_groups():
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._watch_deadline)
                    over = "the turn is over"
                    try:
                        await self._listen(lease)
                    except WorkerExited:
                        over = "the worker has died"
                        raise
                    finally:
                        self._is_prompting = False
                        self._prompt_ended.set()
                        self.is_steerable = False
                        self._on_steerable(self)
                        if self._paused_at is not None:
                            self._toggle_pause(over)
                        self._deadline_changed.set()
                        if self.end_reason is not None:
                            nursery.cancel_scope.cancel()  # a steer without an answer ends with the turn
        finally:
            self._nursery = None
            self._prompt_ended = trio.Event()

    async def _listen(self, lease: Lease) -> None:
        raw = self.leader.raw
        stream = self._composed_prompt(lease) if raw is None else lease.prompt(self.text, raw=raw)
        self._is_prompting = True
        try:
            await self._read(lease, stream)
        finally:
            with trio.CancelScope(shield=True):  # bounded by the abort grace
                await stream.aclose()

    def _composed_prompt(self, lease: Lease) -> PromptStream:
        turns, events = self._context.history_turns(self), self._context.claim_events(self)
        self.event_ids = [event.id for event in events]
        text = with_events(events, self.text) if events else self.text
        return lease.prompt(prompt_params(text, [run.request for run in self.runs], turns))

    async def _read(self, lease: Lease, stream: PromptStream) -> None:
        is_first = True
        while (batch := await stream.next_batch()) is not None:
            await self._context.publish(self, self._translator.translate(batch))
            if self.end_reason is None:
                self._consumed_steers = self._translator.consumed_steers
            if is_first or self._translator.compaction_changed:
                self.is_steerable = not self._translator.is_compacting
                self._on_steerable(self)
                is_first = False
            if lease.awaits_person != (self._paused_at is not None):
                is_answered = any(message.event in _ANSWER_EVENTS for message in batch)
                self._toggle_pause("answered" if is_answered else "the turn is over")
            await self._context.wait_store_room()
        self.result = result = stream.result
        was_aborted = result is not None and result.stop_reason == "aborted"
        if was_aborted and lease.stalled_for is not None and self.end_reason is None:
            text = f"worker {self.worker} was silent for {lease.stalled_for:g} s in the turn (pool.turn_stall)"
            self.error = WorkerStalled(f"{text}, which was aborted", session=self.session, worker=self.worker)

    # --- ends ---------------------------------------------------------------------------------------------------------

    async def _watch_deadline(self) -> None:
        while not self._prompt_ended.is_set():
            self._deadline_changed = trio.Event()
            with trio.move_on_at(math.inf if self._paused_at is not None else self.deadline):
                await self._deadline_changed.wait()
                continue
            self.end(EndReason.TIMEOUT)
            return

    async def _abort(self, lease: Lease) -> None:
        """Ask the worker to end the turn; one that does not within the grace is killed."""
        with trio.move_on_after(lease.abort_grace):
            with suppress(PoolError):  # it is gone, or refuses: either way the turn is watched, not the answer
                await lease.abort()
            await self._prompt_ended.wait()
        if not self._prompt_ended.is_set():
            self._scope.cancel()

    def _toggle_pause(self, why: str) -> None:
        """Stop the turn's clock while a person is asked, or start it again; ``why``: the reason for that."""
        if self._paused_at is None:
            self._paused_at = trio.current_time()
        else:
            self.deadline += trio.current_time() - self._paused_at
            self._paused_at = None
        self._deadline_changed.set()
        self._context.set_awaiting_person(self, None if self._paused_at is not None else why)

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

    async def _steer_next(self) -> None:
        """Send one steer at a time, in the order of arrival, whichever task comes first."""
        async with self._steer_lock:
            await self._steer(self._steer_queue.popleft())

    async def _steer(self, run: Run) -> None:
        lease = self.lease
        try:
            if run not in self.runs:
                return  # its time was over first
            if lease is None or not self._is_prompting:
                raise RunAborted("the turn has ended")
            await self._context.mark_started([run], self, lease.worker_id)
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
            self._requeue_steer(self, run)

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
