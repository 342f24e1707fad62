"""Performs the lane machine's actions: starts turns and exclusive access, keeps the lanes' time."""

import math
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, assert_never

import trio

from errors import PoolError, PoolSaturated, RequestTimeout, RunAborted
from gateway.lanes.machine import LaneMachine
from gateway.lanes.messages import (
    AbortTurn,
    Clear,
    LaneAction,
    LaneStimulus,
    Reconfigure,
    RejectRun,
    StartTurn,
    Steer,
    SteerRejected,
    Submit,
    Tick,
    TurnEnded,
    Withdraw,
)
from gateway.runs.registry import RunRegistry
from gateway.runs.run import Run, RunOutcome, interrupted_error, rejection_error
from gateway.settings import CurrentSettings
from gateway.turns.context import TurnContext
from gateway.turns.exclusive import ExclusiveAccess
from gateway.turns.replies import FinalReply
from gateway.turns.state import EndReason
from gateway.turns.turn import Turn
from pool.lease import Lease
from wire.log_context import rebind_facts
from wire.timers import Timer, Timers


class TurnScheduler:
    """Runs on their way through the lanes, and their turns. All tasks belong to the nursery it is given.

    Stimuli are handled one after the other: the actions of one are performed before the next is looked at, also where
    performing an action leads to a stimulus.
    """

    def __init__(
        self, settings: CurrentSettings, run_registry: RunRegistry, context: TurnContext, nursery: trio.Nursery
    ) -> None:
        self._settings = settings
        self.lanes = LaneMachine(settings.value.queue)
        self._run_registry = run_registry
        self._context = context
        self._now = trio.lowlevel.current_clock().current_time
        self.start_soon: Callable[..., None] = nursery.start_soon
        self._stimuli: deque[LaneStimulus] = deque()
        self._is_handling = self._is_closing = False
        self._alarms = Timers()
        self._wake = trio.Event()
        self._armed_for = math.inf
        self._runs: dict[str, Run] = {}
        """Those that wait in a lane, by their names there."""
        self._timers: dict[str, Timer] = {}
        """The deadlines of runs that wait or were steered, by the same names."""
        self._exclusive_access = ExclusiveAccess(self._handle)
        self.acquire_session = self._exclusive_access.acquire
        self._held_turns = count(1)
        self._turns: dict[str, Turn] = {}
        self._starting: set[Turn] = set()
        """Those without a task: the start of their runs is not durable yet."""
        self._rejected: dict[str, RejectRun] = {}
        self._left: Counter[str] = Counter()
        """Runs of each session that the supervisor's next life begins."""

    async def run(self) -> None:
        """Keep the lanes' time until cancelled; sleeps until the next deadline."""
        try:
            while True:
                due, alarm = self.lanes.next_wakeup(), self._alarms.next_at()
                self._armed_for = min(math.inf if due is None else due, math.inf if alarm is None else alarm)
                self._wake = trio.Event()
                with trio.move_on_at(self._armed_for):
                    await self._wake.wait()
                    continue
                self._alarms.fire(self._now())
                self._handle(Tick())
        finally:
            self._is_closing = True
            for turn in tuple(self._starting):
                self._start_task(turn)  # to be interrupted like the others

    def turn_of(self, session: str) -> Turn | None:
        """The session's running turn."""
        name = self.lanes.running_turn(session)
        return self._turns.get(name) if name is not None else None

    def lease_of(self, session: str) -> Lease | None:
        """The worker on which a turn of the session runs now, also where its caller holds it."""
        leases = (turn.lease for turn in self._turns.values() if turn.session == session)
        return next((lease for lease in leases if lease is not None), None)

    def depth(self, session: str) -> int:
        """Runs of the session that wait for a turn, here or in the supervisor's next life."""
        return self.lanes.depth(session) + self._left[session]

    def why_waiting(self, session: str) -> str | None:
        """What they wait for, in words; None where none waits, or for the session's own turn only."""
        is_left = self._is_closing and self.depth(session)
        return "the supervisor is stopping; the next one begins it" if is_left else self.lanes.why_waiting(session)

    def is_busy(self, session: str) -> bool:
        """Whether the session is in a turn, on whosever worker, or a run of it waits for one."""
        if self.lanes.running_turn(session) is not None or self.lanes.depth(session):
            return True
        return any(turn.session == session for turn in self._turns.values())

    def is_steerable(self, session: str) -> bool:
        """Whether the session's running turn would take a message now."""
        turn = self.turn_of(session)
        return turn is not None and turn.is_steerable

    # --- runs ---------------------------------------------------------------------------------------------------------

    def submit(self, run: Run, *, awaits_person: bool = False) -> None:
        """Give a run its place, and publish it unless it is known from before; its time begins.

        Raises PoolSaturated where there is no place; then it never was in a lane. ``awaits_person``: as in
        ``RunRegistry.announce``.
        """
        request = run.request
        run.start_clock(self._now())
        self._runs[run.name] = run
        self._handle(
            Submit(
                run=run.name,
                session=request.session,
                text=request.text,
                mode=request.mode,
                priority=request.priority,
                lane=request.lane,
                exclusive=not request.is_plain,
                may_steer=self.is_steerable(request.session),
            )
        )
        refusal = self._rejected.pop(run.name, None)
        if refusal is not None:
            raise PoolSaturated(refusal.text, session=request.session, retry_after=1.0)
        if not run.accepted_seq:
            self._run_registry.announce(run, awaits_person=awaits_person)
        if run.name in self._runs:
            self._start_timer(run)

    def abort(self, run: Run) -> bool:
        """End a run: take it out of its lane, or abort the turn that it began. False when it has ended.

        A run whose message was put into another's turn leaves that turn, which keeps the message.
        """
        if run.name in self._runs:
            text = f"the run of session {run.request.session} was aborted before its turn began"
            self._withdraw(run, RunAborted(text, session=run.request.session))
            return True
        for turn in self._turns.values():
            if run is turn.leader and run in turn.runs:
                turn.end(EndReason.ABORTED)
                return True
            if turn.detach_run(run):
                self._cancel_timer(run)
                text = "the run was aborted; the running turn, which another began, goes on with its message"
                self._fail(run, RunAborted(text, session=turn.session, worker=turn.worker))
                return True
        return False

    def abort_session(self, session: str) -> bool:
        """End the session's running turn; False when none runs."""
        if (turn := self.turn_of(session)) is None:
            return False
        turn.end(EndReason.ABORTED)
        return True

    @property
    def turns(self) -> list[Turn]:
        """All running turns."""
        return list(self._turns.values())

    async def end_turns_awaiting_person(self) -> None:
        """End the turns that wait for a person; their workers record that the calls were not allowed."""
        waiting = [turn for turn in self._turns.values() if turn.lease is not None and turn.lease.awaits_person]
        async with trio.open_nursery() as nursery:
            for turn in waiting:
                turn.end(EndReason.STOPPED)
                nursery.start_soon(turn.leader.wait)

    def clear(self, session: str) -> None:
        """Refuse everything of the session that waits."""
        self._handle(Clear(session))

    def update_limits(self) -> None:
        """The settings have changed: the lanes take their new limits at once."""
        self._handle(Reconfigure(self._settings.value.queue))

    def close(self) -> None:
        """Begin no more turns: what waits is left to the supervisor's next life."""
        self._is_closing = True

    # --- what the lanes decide ----------------------------------------------------------------------------------------

    def _handle(self, stimulus: LaneStimulus) -> None:
        """Handle a stimulus now, or right after the one that is being handled."""
        self._stimuli.append(stimulus)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._stimuli:
                for action in self.lanes.handle(self._stimuli.popleft(), self._now()):
                    self._perform(action)
        finally:
            self._is_handling = False
            self._wake_at(self.lanes.next_wakeup())

    def _perform(self, action: LaneAction) -> None:
        match action:
            case StartTurn(runs=(name, *_)) if name not in self._runs:
                self._exclusive_access.grant(action)
            case StartTurn() if self._is_closing:
                for name in action.runs:
                    self._left[self._pop_run(name).request.session] += 1
            case StartTurn():
                self._begin(Turn(action, [self._pop_run(name) for name in action.runs], self._context, self))
            case Steer():
                self._steer(self._turns[action.turn], self._pop_run(action.run))
            case AbortTurn():
                self._turns[action.turn].end(EndReason.INTERRUPTED)
            case RejectRun() if action.run not in self._runs:
                self._exclusive_access.reject(action)
            case RejectRun():
                self._reject(action)
            case _:
                assert_never(action)

    def _pop_run(self, name: str) -> Run:
        """A run leaves its lane for a turn: from now on the turn keeps its time."""
        run = self._runs.pop(name)
        self._cancel_timer(run)
        return run

    def _steer(self, turn: Turn, run: Run) -> None:
        """The run becomes a part of the turn, whose time may be longer than its own."""
        turn.steer(run)
        if run in turn.runs and run.deadline < math.inf:
            self._set_timer(run, self._expire_steered, (turn, run))

    def _expire_steered(self, steered: tuple[Turn, Run]) -> None:
        """A run's time is over before the turn's into which its message went; the message stays there."""
        turn, run = steered
        self._cancel_timer(run)
        if turn.detach_run(run):
            text = "the run's time was over before the running turn, which had been given its message, had ended"
            self._fail(run, RequestTimeout(text, session=turn.session, worker=turn.worker))

    def _cancel_timer(self, run: Run) -> None:
        if (timer := self._timers.pop(run.name, None)) is not None:
            self._alarms.cancel(timer)

    def _reject(self, refusal: RejectRun) -> None:
        run = self._pop_run(refusal.run)
        if not run.accepted_seq:
            self._rejected[run.name] = refusal  # its caller learns in this step whether it is accepted
        else:
            self._fail(run, rejection_error(run.request, refusal))

    def _withdraw(self, run: Run, error: PoolError) -> None:
        self._handle(Withdraw(run.name))
        self._pop_run(run.name)
        self._fail(run, error)

    def _expire(self, run: Run) -> None:
        """A run's time is over while it waits."""
        if run.name in self._runs:
            text = f"session {run.request.session} was busy with earlier runs for all of the run's time"
            self._withdraw(run, RequestTimeout(text, session=run.request.session))

    def _fail(self, run: Run, error: PoolError) -> None:
        outcome, seq = self._run_registry.fail(run, error)
        self._run_registry.settle([(run, outcome)], seq)

    # --- turns --------------------------------------------------------------------------------------------------------

    def set_alarm(self, turn: Turn, when: float | None) -> None:
        """Have the turn ended for its time at that moment, and at no other; None: never."""
        self._alarms.cancel(turn.alarm)
        turn.alarm = None
        if when is not None and when < math.inf:
            turn.alarm = self._alarms.at(when, _end_for_time, turn)
            self._wake_at(when)

    def requeue_steer(self, turn: Turn, run: Run) -> None:
        """The worker did not take the steer: the run waits for a turn of its own."""
        self._cancel_timer(run)
        self._requeue(run)
        self._handle(SteerRejected(turn.id, run.name))

    async def run_with_lease(self, lease: Lease, run: Run) -> None:
        """Run a turn on a lease that its caller holds, beside the lanes; the run's time begins."""
        run.start_clock(self._now())
        start = StartTurn(
            turn=f"h{next(self._held_turns)}",
            session=run.request.session,
            lane=run.request.lane,
            priority=run.request.priority,
            runs=(run.name,),
            text=run.request.text,
        )
        turn = self._turns[start.turn] = Turn(start, [run], self._context, self, held=lease)
        self._context.on_begun(turn)
        await self._run_turn(turn)

    def _begin(self, turn: Turn) -> None:
        """All of the turn that needs no waiting, in the step of what made it begin; its task does the rest."""
        self._turns[turn.id] = turn
        for run in turn.runs:
            if not run.accepted_seq:  # it is just being submitted
                self._run_registry.announce(run)
        self._context.on_begun(turn)
        started_seq = turn.begin()
        self._starting.add(turn)
        self._context.call_when_visible(started_seq, partial(self._start_task, turn), is_last=True)

    def _start_task(self, turn: Turn) -> None:
        if turn in self._starting:
            self._starting.remove(turn)
            self.start_soon(self._run_turn, turn)

    async def _run_turn(self, turn: Turn) -> None:
        # Not those of the request, of any session, in whose task the turn was begun.
        rebind_facts(session=turn.session, run=turn.leader.request.run_id)
        try:
            await turn.execute()
            answer = await self._context.final_reply(turn)
        except BaseException:  # the end of the supervisor: a cancellation, or a group of them
            self._interrupt(turn)
            raise
        outcomes, seq = self._finish_turn(turn, answer)
        self._run_registry.settle(outcomes, seq, ends_turn=True)
        if answer is not None:
            await self._context.after_delivery(turn, answer)

    def _finish_turn(self, turn: Turn, answer: FinalReply | None) -> tuple[list[tuple[Run, RunOutcome]], int]:
        """Give every run its outcome, and the lane its next turn."""
        outcomes: list[tuple[Run, RunOutcome]] = []
        seq = 0
        del self._turns[turn.id]
        for run in (*turn.runs, *turn.unconsumed):
            self._cancel_timer(run)
        with self._run_registry.transaction():
            for run in self._runs_to_end(turn):
                outcome = self._context.outcome(turn, answer, run)
                seq = self._run_registry.end(run, outcome)
                outcomes.append((run, outcome))
            self._context.on_ended(turn)
        self._left[turn.session] += len(turn.runs) - len(outcomes)
        if turn.held is None:
            for run in turn.unconsumed:
                self._requeue(run)
            self._handle(TurnEnded(turn.id, tuple(run.name for run in turn.unconsumed)))
        return outcomes, seq

    def _interrupt(self, turn: Turn) -> None:
        """The supervisor ends in mid-turn: say so now, the next life need not find out."""
        self._is_closing = True
        for run in self._runs_to_end(turn):
            self._run_registry.fail(run, interrupted_error(run.request))

    def _runs_to_end(self, turn: Turn) -> list[Run]:
        """The turn's runs that end with it: when the supervisor stops, one that never reached a worker does not."""
        return [run for run in turn.runs if run.record.started_at is not None or not self._is_closing]

    def _requeue(self, run: Run) -> None:
        self._runs[run.name] = run
        self._start_timer(run)

    def _start_timer(self, run: Run) -> None:
        if run.deadline < math.inf and run.name not in self._timers:  # a steer refused at once has come back already
            self._set_timer(run, self._expire, run)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self, run: Run, call: Callable[[Any], None], subject: object) -> None:
        self._timers[run.name] = self._alarms.at(run.deadline, call, subject)
        self._wake_at(run.deadline)

    def _wake_at(self, due: float | None) -> None:
        if due is not None and due < self._armed_for:
            self._wake.set()


def _end_for_time(turn: Turn) -> None:
    turn.end(EndReason.TIMEOUT)
