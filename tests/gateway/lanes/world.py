"""A world around the lanes: it carries out actions on paper, keeps the time and its own books, and objects to nonsense.

Turns end, steers are refused and time passes only when whoever drives it says so.
"""

from gateway.lanes import (
    AbortTurn,
    LaneAction,
    LaneMachine,
    LaneStimulus,
    RejectRun,
    StartTurn,
    Steer,
    SteerRejected,
    Submit,
    Tick,
    TurnEnded,
    TurnSteerable,
    Withdraw,
)
from gateway.settings import QueueMode, QueueSettings
from tests.gateway.lanes.audit import audit


class PaperTurn:
    """What the world knows of a turn that runs."""

    def __init__(self, start: StartTurn) -> None:
        self.start = start
        self.steered: list[str] = []
        self.aborted = False


class World:
    """The machine, the time, and where every run has ended up."""

    def __init__(self, *, now: float = 1000.0, **settings: object) -> None:
        self.settings = QueueSettings(**settings)  # type: ignore[arg-type]  # tests name fields; QueueSettings checks them
        self.machine = LaneMachine(self.settings)
        self.now = now
        self.open: dict[str, Submit] = {}
        """Runs that wait, as far as the world has been told."""
        self.turns: dict[str, PaperTurn] = {}
        self.ends: dict[str, str] = {}
        """How each run ended: the turn that answered for it, the reason of its refusal, or ``withdrawn``."""
        self.texts: dict[str, str] = {}
        """What callers of refused runs were told."""

    # --- stimuli ----------------------------------------------------------------------------------------------------

    def tell(self, stimulus: LaneStimulus) -> list[LaneAction]:
        actions = self.machine.handle(stimulus, self.now)
        for action in actions:
            self._carry_out(action)
        audit(self.machine, self.now)
        assert {run for session in self.sessions() for run in self.machine.waiting(session)} == set(self.open)
        return actions

    def submit(
        self,
        run: str,
        mode: QueueMode = QueueMode.FOLLOWUP,
        *,
        session: str = "s",
        text: str | None = None,
        priority: int = 5,
        lane: str = "main",
        exclusive: bool = False,
    ) -> list[LaneAction]:
        submit = Submit(
            run=run,
            session=session,
            text=f"text of {run}" if text is None else text,
            mode=mode,
            priority=priority,
            lane=lane,
            exclusive=exclusive,
        )
        self.open[run] = submit
        return self.tell(submit)

    def follow(self, *runs: str, **options: object) -> None:
        """Several messages of one kind, one after the other."""
        for run in runs:
            self.submit(run, **options)  # type: ignore[arg-type]  # the keywords of ``submit``

    def steerable(self, session: str = "s", *, steerable: bool = True) -> None:
        assert self.tell(TurnSteerable(self.turn(session), steerable)) == []

    def refuse_steer(self, run: str, session: str = "s") -> list[LaneAction]:
        turn = self.turn(session)
        self.turns[turn].steered.remove(run)
        self.open[run] = Submit(run=run, session=session, text="", mode=QueueMode.STEER)
        return self.tell(SteerRejected(turn, run))

    def end(self, session: str = "s", unconsumed: tuple[str, ...] = ()) -> list[LaneAction]:
        turn = self.turn(session)
        paper = self.turns.pop(turn)
        for run in (*paper.start.runs, *paper.steered):
            if run in unconsumed:
                self.open[run] = Submit(run=run, session=session, text="", mode=QueueMode.STEER)
            else:
                self.ends[run] = turn
        return self.tell(TurnEnded(turn, unconsumed))

    def withdraw(self, run: str) -> list[LaneAction]:
        if self.open.pop(run, None) is not None:
            self.ends[run] = "withdrawn"
        return self.tell(Withdraw(run))

    def pass_time(self, seconds: float) -> list[LaneAction]:
        """As the gateway does it: a Tick whenever the machine wants one."""
        actions: list[LaneAction] = []
        until = self.now + seconds
        while (due := self.machine.next_wakeup()) is not None and due <= until:
            self.now = max(self.now, due)
            actions += self.tell(Tick())
        self.now = until
        return actions

    # --- questions --------------------------------------------------------------------------------------------------

    def turn(self, session: str = "s") -> str:
        turn = self.machine.running_turn(session)
        assert turn is not None, f"session {session} has no turn"
        return turn

    def runs(self, session: str = "s") -> tuple[str, ...]:
        """What the running turn answers for by its prompt; empty where none runs."""
        turn = self.machine.running_turn(session)
        return self.turns[turn].start.runs if turn else ()

    def prompt(self, session: str = "s") -> str:
        return self.turns[self.turn(session)].start.text

    def is_busy(self, session: str = "s") -> bool:
        """Whether a new message would find others before it: a turn that runs, or messages that wait for theirs."""
        return session in self.sessions()

    def sessions(self) -> set[str]:
        return {figures.session for figures in self.machine.snapshot().sessions}

    # --- actions ----------------------------------------------------------------------------------------------------

    def _carry_out(self, action: LaneAction) -> None:
        match action:
            case StartTurn():
                self._start(action)
            case Steer(turn=turn, run=run):
                del self.open[run]
                assert not self.turns[turn].aborted, "nobody is steered into a turn that has been told to end"
                self.turns[turn].steered.append(run)
            case AbortTurn(turn=turn):
                assert not self.turns[turn].aborted, "a turn is aborted once"
                self.turns[turn].aborted = True
            case RejectRun(run=run, reason=reason, text=text):
                del self.open[run]
                assert run not in self.ends
                self.ends[run], self.texts[run] = reason.value, text

    def _start(self, start: StartTurn) -> None:
        assert start.turn not in self.turns
        assert all(paper.start.session != start.session for paper in self.turns.values()), "one turn per session"
        for run in start.runs:
            assert self.open.pop(run).session == start.session
            assert run not in self.ends
        self.turns[start.turn] = PaperTurn(start)
        limit = self.settings.lanes.get(start.lane, 0)
        running = sum(paper.start.lane == start.lane for paper in self.turns.values())
        assert not limit or running <= limit, f"lane {start.lane} is over its limit"
