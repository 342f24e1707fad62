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
    Action,
    Clear,
    RefusalReason,
    Refuse,
    StartTurn,
    Steer,
    SteerRefused,
    Submit,
    TurnEnded,
    TurnSteerable,
    Withdraw,
)
from gateway.runs.registry import Ledger
from gateway.runs.run import Run, RunOutcome, interrupted
from gateway.settings import GatewaySettings
from gateway.turns.exclusive import Jobs
from gateway.turns.lane_shell import Scheduler
from gateway.turns.ports import TurnDesk
from gateway.turns.replies import Answer, Reply
from gateway.turns.turn import Ending, Turn, TurnReport
from pool.lease import Lease
from wire.timers import Timer


class ConductorDesk(TurnDesk, Protocol):
    """What the conductor and its turns ask of the gateway."""

    def began(self, turn: Turn) -> None:
        """The session is in its turn."""
        ...

    async def answer(self, turn: Turn, report: TurnReport) -> Answer | None:
        """What of the turn's answer is shown; None where it has none. Takes its time, but not for ever."""
        ...

    def outcome(self, report: TurnReport, reply: Reply | None, run: Run) -> RunOutcome:
        """What one of the turn's runs is told, with what of the answer is for it."""
        ...

    def ended(self, turn: Turn, report: TurnReport) -> None:
        """The session's turn is over, however it ended."""
        ...

    async def sent(self, turn: Turn, answer: Answer) -> None:
        """Everybody has been told."""
        ...


class Conductor:
    """Runs and jobs on their way through the lanes; implements ``gateway.turns.turn.TurnLanes``.

    All of it belongs to the nursery it is given.
    """

    def __init__(self, settings: GatewaySettings, ledger: Ledger, desk: ConductorDesk, nursery: trio.Nursery) -> None:
        self._ledger = ledger
        self._desk = desk
        self._nursery = nursery
        self._scheduler = Scheduler(settings.queue, self._perform)
        self._runs: dict[str, Run] = {}
        """Those that wait in a lane, by their names there."""
        self._jobs = Jobs(self._scheduler.tell)
        self.occupy = self._jobs.occupy
        self._held_turns = count(1)
        self._turns: dict[str, Turn] = {}
        self._timers: dict[str, Timer] = {}
        self._refused: dict[str, Refuse] = {}
        self._is_closing = False

    async def run(self) -> None:
        """Keep the lanes' time until cancelled."""
        await self._scheduler.run()

    @property
    def lanes(self) -> LaneMachine:
        """Who waits, and who runs."""
        return self._scheduler.lanes

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
        return turn is not None and turn.takes_steers

    # --- runs ---------------------------------------------------------------------------------------------------------

    def submit(self, run: Run) -> None:
        """Give a run its place; its time begins. Raises PoolSaturated where there is none; it never was in a lane."""
        request = run.request
        run.begin_time(trio.current_time())
        self._runs[run.name] = run
        self._scheduler.tell(
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
        refusal = self._refused.pop(run.name, None)
        if refusal is not None:
            raise PoolSaturated(refusal.text, session=request.session, retry_after=1.0)
        if run.name in self._runs:
            self._keep_time(run)

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
                turn.end(Ending.ABORTED)
                return True
            if turn.let_go(run):
                self._forget_time(run)
                text = "the run was aborted; the running turn, which another began, goes on with its message"
                self._fail(run, RunAborted(text, session=turn.session, worker=turn.worker))
                return True
        return False

    def abort_session(self, session: str) -> bool:
        """End the session's running turn; False when none runs."""
        turn = self.turn_of(session)
        if turn is None:
            return False
        turn.end(Ending.ABORTED)
        return True

    @property
    def turns(self) -> list[Turn]:
        """All running turns."""
        return list(self._turns.values())

    async def end_questions(self) -> None:
        """End the turns that wait for a person; their workers record that the calls were not allowed."""
        waiting = [turn for turn in self._turns.values() if turn.lease is not None and turn.lease.awaits_person]
        async with trio.open_nursery() as nursery:
            for turn in waiting:
                turn.end(Ending.STOPPED)
                nursery.start_soon(turn.over.wait)

    def clear(self, session: str) -> None:
        """Refuse everything of the session that waits."""
        self._scheduler.tell(Clear(session))

    def reconfigure(self, settings: GatewaySettings) -> None:
        """New limits."""
        self._scheduler.reconfigure(settings.queue)

    def close(self) -> None:
        """Begin no more turns: what waits is left to the supervisor's next life."""
        self._is_closing = True

    # --- what the lanes decide ----------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case StartTurn(runs=(name, *_)) if name in self._jobs:
                self._jobs.start(action)
            case StartTurn() if self._is_closing:
                for name in action.runs:
                    self._take(name)
            case StartTurn():
                self._start(action)
            case Steer():
                self._steer(self._turns[action.turn], self._take(action.run))
            case AbortTurn():
                self._turns[action.turn].end(Ending.INTERRUPTED)
            case Refuse() if action.run in self._jobs:
                self._jobs.refuse(action)
            case Refuse():
                self._refuse(action)
            case _:
                assert_never(action)

    def _take(self, name: str) -> Run:
        """A run leaves its lane for a turn: from now on the turn keeps its time."""
        run = self._runs.pop(name)
        self._forget_time(run)
        return run

    def _start(self, start: StartTurn) -> None:
        runs = [self._take(name) for name in start.runs]
        turn = Turn(start, runs, self._desk, self)
        self._turns[turn.id] = turn
        self._nursery.start_soon(self._conduct, turn)

    def _steer(self, turn: Turn, run: Run) -> None:
        """The run becomes a part of the turn, whose time may be longer than its own."""
        turn.steer(run)
        if run in turn.runs and run.deadline < math.inf:
            self._timers[run.name] = self._scheduler.alarm(run.deadline, self._expire_steered, (turn, run))

    def _expire_steered(self, steered: tuple[Turn, Run]) -> None:
        """A run's time is over before the turn's into which its message went; the message stays there."""
        turn, run = steered
        self._forget_time(run)
        if turn.let_go(run):
            text = "the run's time was over before the running turn, which had been given its message, had ended"
            self._fail(run, RequestTimeout(text, session=turn.session, worker=turn.worker))

    def _forget_time(self, run: Run) -> None:
        self._scheduler.cancel(self._timers.pop(run.name, None))

    def _refuse(self, refusal: Refuse) -> None:
        run = self._take(refusal.run)
        if not run.accepted_seq:
            self._refused[run.name] = refusal  # its caller is still being told whether it is accepted
        else:
            self._fail(run, _refusal_error(refusal, run))

    def _withdraw(self, run: Run, error: PoolError) -> None:
        self._scheduler.tell(Withdraw(run.name))
        self._take(run.name)
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
        outcome, seq = self._ledger.fail(run, error)
        self._nursery.start_soon(self._ledger.release, [(run, outcome)], seq)

    # --- turns --------------------------------------------------------------------------------------------------------

    def steerable(self, turn: Turn, *, now: bool) -> None:
        """See ``TurnLanes.steerable``."""
        if turn.held is None:
            self._scheduler.tell(TurnSteerable(turn.id, now))

    def take_back(self, turn: Turn, run: Run) -> None:
        """See ``TurnLanes.take_back``."""
        self._forget_time(run)
        self._put_back(run)
        self._scheduler.tell(SteerRefused(turn.id, run.name))

    async def run_on(self, lease: Lease, run: Run) -> None:
        """Run a turn on a lease that its caller holds, beside the lanes; the run's time begins."""
        run.begin_time(trio.current_time())
        start = StartTurn(
            turn=f"h{next(self._held_turns)}",
            session=run.request.session,
            lane=run.request.lane,
            priority=run.request.priority,
            runs=(run.name,),
            text=run.request.text,
        )
        turn = self._turns[start.turn] = Turn(start, [run], self._desk, self, held=lease)
        await self._conduct(turn)

    async def _conduct(self, turn: Turn) -> None:
        clear_contextvars()  # whatever request, of whatever session, happened to set it off
        bind_contextvars(session=turn.session, run=turn.leader.request.run_id)
        self._desk.began(turn)
        try:
            report = await turn.execute()
            answer = await self._desk.answer(turn, report)
        except BaseException:  # the end of the supervisor: a cancellation, or a group of them
            self._interrupt(turn)
            raise
        outcomes, seq = self._close(turn, report, answer)
        await self._ledger.release(outcomes, seq)
        turn.over.set()
        if answer is not None:
            await self._desk.sent(turn, answer)

    def _close(self, turn: Turn, report: TurnReport, answer: Answer | None) -> tuple[list[tuple[Run, RunOutcome]], int]:
        """Give every run its outcome, and the lane its next turn."""
        outcomes: list[tuple[Run, RunOutcome]] = []
        seq = 0
        del self._turns[turn.id]
        for run in (*turn.runs, *report.unconsumed):
            self._forget_time(run)
        with self._ledger.together():
            for run in self._to_be_told(turn):
                reply = None if answer is None else answer.told_to(leads=run is turn.leader)
                outcome = self._desk.outcome(report, reply, run)
                seq = self._ledger.end(run, outcome)
                outcomes.append((run, outcome))
            self._desk.ended(turn, report)
        if turn.held is None:
            for run in report.unconsumed:
                self._put_back(run)
            self._scheduler.tell(TurnEnded(turn.id, tuple(run.name for run in report.unconsumed)))
        return outcomes, seq

    def _interrupt(self, turn: Turn) -> None:
        """The supervisor ends in mid-turn: say so now, the next life need not find out."""
        self._is_closing = True
        for run in self._to_be_told(turn):
            self._ledger.fail(run, interrupted(run.request))

    def _to_be_told(self, turn: Turn) -> list[Run]:
        """The turn's runs that end with it: when the supervisor stops, one that never reached a worker does not."""
        return [run for run in turn.runs if run.started_at is not None or not self._is_closing]

    def _put_back(self, run: Run) -> None:
        self._runs[run.name] = run
        self._keep_time(run)

    def _keep_time(self, run: Run) -> None:
        if run.deadline < math.inf and run.name not in self._timers:  # a steer refused at once has come back already
            self._timers[run.name] = self._scheduler.alarm(run.deadline, self._expire, run)


def _refusal_error(refusal: Refuse, run: Run) -> PoolError:
    session = run.request.session
    match refusal.reason:
        case RefusalReason.INTERRUPTED | RefusalReason.CLEARED:
            return RunAborted(refusal.text, session=session)
        case RefusalReason.FULL | RefusalReason.DROPPED | RefusalReason.EVICTED:
            return PoolSaturated(refusal.text, session=session, retry_after=1.0)
