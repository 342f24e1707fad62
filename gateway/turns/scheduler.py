"""The conductor: performs what the lanes decide, and runs the turns and the exclusive jobs they start."""

import math
from itertools import count
from typing import Protocol, assert_never

import trio
from structlog.contextvars import bind_contextvars, clear_contextvars

from errors import PoolError, PoolSaturated, RequestTimeout, RunAborted
from gateway.lanes import LaneMachine
from gateway.lanes.messages import (
    AbortTurn,
    Clear,
    LaneAction,
    RejectionReason,
    RejectRun,
    StartTurn,
    Steer,
    SteerRejected,
    Submit,
    TurnEnded,
    TurnSteerable,
    Withdraw,
)
from gateway.runs.registry import RunRegistry
from gateway.runs.run import Run, RunOutcome, interrupted_error
from gateway.settings import GatewaySettings
from gateway.turns.exclusive import ExclusiveAccess
from gateway.turns.lane_shell import LaneShell
from gateway.turns.ports import TurnDesk
from gateway.turns.replies import FinalReply, ReplyContent
from gateway.turns.turn import EndReason, Turn, TurnResult
from pool.lease import Lease
from wire.timers import Timer


class ConductorDesk(TurnDesk, Protocol):
    """What the conductor and its turns ask of the gateway."""

    def on_begun(self, turn: Turn) -> None:
        """The session is in its turn."""
        ...

    async def final_reply(self, turn: Turn, report: TurnResult) -> FinalReply | None:
        """What of the turn's answer is shown; None where it has none. Takes its time, but not for ever."""
        ...

    def outcome(self, report: TurnResult, reply: ReplyContent | None, run: Run) -> RunOutcome:
        """What one of the turn's runs is told, with what of the answer is for it."""
        ...

    def on_ended(self, turn: Turn, report: TurnResult) -> None:
        """The session's turn is over, however it ended."""
        ...

    async def after_delivery(self, turn: Turn, answer: FinalReply) -> None:
        """Everybody has been told."""
        ...


class TurnScheduler:
    """Runs and jobs on their way through the lanes; implements ``gateway.turns.turn.TurnLanes``.

    All of it belongs to the nursery it is given.
    """

    def __init__(
        self, settings: GatewaySettings, ledger: RunRegistry, desk: ConductorDesk, nursery: trio.Nursery
    ) -> None:
        self._run_registry = ledger
        self._context = desk
        self._nursery = nursery
        self._lane_shell = LaneShell(settings.queue, self._perform)
        self._runs: dict[str, Run] = {}
        """Those that wait in a lane, by their names there."""
        self._exclusive_access = ExclusiveAccess(self._lane_shell.handle)
        self.acquire_session = self._exclusive_access.acquire
        self._held_turns = count(1)
        self._turns: dict[str, Turn] = {}
        self._timers: dict[str, Timer] = {}
        self._rejected: dict[str, RejectRun] = {}
        self._is_closing = False

    async def run(self) -> None:
        """Keep the lanes' time until cancelled."""
        await self._lane_shell.run()

    @property
    def lanes(self) -> LaneMachine:
        """Who waits, and who runs."""
        return self._lane_shell.lanes

    def turn_of(self, session: str) -> Turn | None:
        """The session's running turn."""
        name = self.lanes.running_turn(session)
        return self._turns.get(name) if name is not None else None

    def lease_of(self, session: str) -> Lease | None:
        """The worker on which a turn of the session runs now, also where its caller holds it."""
        leases = (turn.lease for turn in self._turns.values() if turn.session == session)
        return next((lease for lease in leases if lease is not None), None)

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

    def submit(self, run: Run) -> None:
        """Give a run its place; its time begins. Raises PoolSaturated where there is none; it never was in a lane."""
        request = run.request
        run.start_clock(trio.current_time())
        self._runs[run.name] = run
        self._lane_shell.handle(
            Submit(
                run=run.name,
                session=request.session,
                text=request.text,
                mode=request.mode,
                priority=request.priority,
                lane=request.lane,
                exclusive=not request.is_plain,
            )
        )
        refusal = self._rejected.pop(run.name, None)
        if refusal is not None:
            raise PoolSaturated(refusal.text, session=request.session, retry_after=1.0)
        if run.name in self._runs:
            self._start_timer(run)

    def abort(self, run: Run) -> bool:
        """End a run: take it out of its lane, or abort the turn that it began. False when it has ended.

        A run whose message was put into another's turn leaves that turn, which keeps the message.
        """
        if run.name in self._runs:
            self._withdraw(
                run,
                RunAborted(
                    f"the run of session {run.request.session} was aborted before its turn began",
                    session=run.request.session,
                ),
            )
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
        turn = self.turn_of(session)
        if turn is None:
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
                nursery.start_soon(turn.settled.wait)

    def clear(self, session: str) -> None:
        """Refuse everything of the session that waits."""
        self._lane_shell.handle(Clear(session))

    def reconfigure(self, settings: GatewaySettings) -> None:
        """New limits."""
        self._lane_shell.reconfigure(settings.queue)

    def close(self) -> None:
        """Begin no more turns: what waits is left to the supervisor's next life."""
        self._is_closing = True

    # --- what the lanes decide ----------------------------------------------------------------------------------------

    def _perform(self, action: LaneAction) -> None:
        match action:
            case StartTurn(runs=(name, *_)) if name in self._exclusive_access:
                self._exclusive_access.grant(action)
            case StartTurn() if self._is_closing:
                for name in action.runs:
                    self._pop_run(name)
            case StartTurn():
                self._start(action)
            case Steer():
                self._steer(self._turns[action.turn], self._pop_run(action.run))
            case AbortTurn():
                self._turns[action.turn].end(EndReason.INTERRUPTED)
            case RejectRun() if action.run in self._exclusive_access:
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

    def _start(self, start: StartTurn) -> None:
        runs = [self._pop_run(name) for name in start.runs]
        turn = Turn(start, runs, self._context, self)
        self._turns[turn.id] = turn
        self._nursery.start_soon(self._run_turn, turn)

    def _steer(self, turn: Turn, run: Run) -> None:
        """The run becomes a part of the turn, whose time may be longer than its own."""
        turn.steer(run)
        if run in turn.runs and run.deadline < math.inf:
            self._timers[run.name] = self._lane_shell.set_timer(run.deadline, self._expire_steered, (turn, run))

    def _expire_steered(self, steered: tuple[Turn, Run]) -> None:
        """A run's time is over before the turn's into which its message went; the message stays there."""
        turn, run = steered
        self._cancel_timer(run)
        if turn.detach_run(run):
            text = "the run's time was over before the running turn, which had been given its message, had ended"
            self._fail(run, RequestTimeout(text, session=turn.session, worker=turn.worker))

    def _cancel_timer(self, run: Run) -> None:
        self._lane_shell.cancel_timer(self._timers.pop(run.name, None))

    def _reject(self, refusal: RejectRun) -> None:
        run = self._pop_run(refusal.run)
        if not run.accepted_seq:
            self._rejected[run.name] = refusal  # its caller is still being told whether it is accepted
        else:
            self._fail(run, _rejection_error(refusal, run))

    def _withdraw(self, run: Run, error: PoolError) -> None:
        self._lane_shell.handle(Withdraw(run.name))
        self._pop_run(run.name)
        self._fail(run, error)

    def _expire(self, run: Run) -> None:
        """A run's time is over while it waits."""
        if run.name in self._runs:
            self._withdraw(
                run,
                RequestTimeout(
                    f"session {run.request.session} was busy with earlier runs for all of the run's time",
                    session=run.request.session,
                ),
            )

    def _fail(self, run: Run, error: PoolError) -> None:
        outcome, seq = self._run_registry.fail(run, error)
        self._nursery.start_soon(self._run_registry.settle, [(run, outcome)], seq)

    # --- turns --------------------------------------------------------------------------------------------------------

    def set_steerable(self, turn: Turn, *, now: bool) -> None:
        """See ``TurnLanes.steerable``."""
        if turn.held is None:
            self._lane_shell.handle(TurnSteerable(turn.id, now))

    def requeue_steer(self, turn: Turn, run: Run) -> None:
        """See ``TurnLanes.take_back``."""
        self._cancel_timer(run)
        self._requeue(run)
        self._lane_shell.handle(SteerRejected(turn.id, run.name))

    async def run_with_lease(self, lease: Lease, run: Run) -> None:
        """Run a turn on a lease that its caller holds, beside the lanes; the run's time begins."""
        run.start_clock(trio.current_time())
        start = StartTurn(
            turn=f"h{next(self._held_turns)}",
            session=run.request.session,
            lane=run.request.lane,
            priority=run.request.priority,
            runs=(run.name,),
            text=run.request.text,
        )
        turn = self._turns[start.turn] = Turn(start, [run], self._context, self, held=lease)
        await self._run_turn(turn)

    async def _run_turn(self, turn: Turn) -> None:
        clear_contextvars()  # whatever request, of whatever session, happened to set it off
        bind_contextvars(session=turn.session, run=turn.leader.request.run_id)
        self._context.on_begun(turn)
        try:
            report = await turn.execute()
            answer = await self._context.final_reply(turn, report)
        except BaseException:  # the end of the supervisor: a cancellation, or a group of them
            self._interrupt(turn)
            raise
        outcomes, seq = self._finish_turn(turn, report, answer)
        await self._run_registry.settle(outcomes, seq)
        turn.settled.set()
        if answer is not None:
            await self._context.after_delivery(turn, answer)

    def _finish_turn(
        self, turn: Turn, report: TurnResult, answer: FinalReply | None
    ) -> tuple[list[tuple[Run, RunOutcome]], int]:
        """Give every run its outcome, and the lane its next turn."""
        outcomes: list[tuple[Run, RunOutcome]] = []
        seq = 0
        del self._turns[turn.id]
        for run in (*turn.runs, *report.unconsumed):
            self._cancel_timer(run)
        with self._run_registry.transaction():
            for run in self._runs_to_end(turn):
                reply = None if answer is None else answer.for_run(leads=run is turn.leader)
                outcome = self._context.outcome(report, reply, run)
                seq = self._run_registry.end(run, outcome)
                outcomes.append((run, outcome))
            self._context.on_ended(turn, report)
        if turn.held is None:
            for run in report.unconsumed:
                self._requeue(run)
            self._lane_shell.handle(TurnEnded(turn.id, tuple(run.name for run in report.unconsumed)))
        return outcomes, seq

    def _interrupt(self, turn: Turn) -> None:
        """The supervisor ends in mid-turn: say so now, the next life need not find out."""
        self._is_closing = True
        for run in self._runs_to_end(turn):
            self._run_registry.fail(run, interrupted_error(run.request))

    def _runs_to_end(self, turn: Turn) -> list[Run]:
        """The turn's runs that end with it: when the supervisor stops, one that never reached a worker does not."""
        return [run for run in turn.runs if run.started_at is not None or not self._is_closing]

    def _requeue(self, run: Run) -> None:
        self._runs[run.name] = run
        self._start_timer(run)

    def _start_timer(self, run: Run) -> None:
        if run.deadline < math.inf and run.name not in self._timers:  # a steer refused at once has come back already
            self._timers[run.name] = self._lane_shell.set_timer(run.deadline, self._expire, run)


def _rejection_error(refusal: RejectRun, run: Run) -> PoolError:
    session = run.request.session
    match refusal.reason:
        case RejectionReason.INTERRUPTED | RejectionReason.CLEARED:
            return RunAborted(refusal.text, session=session)
        case RejectionReason.FULL | RejectionReason.DROPPED | RejectionReason.EVICTED:
            return PoolSaturated(refusal.text, session=session, retry_after=1.0)
