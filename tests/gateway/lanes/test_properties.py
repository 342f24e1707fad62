"""Any history at all: the world's books and a naive model object after each step."""

from random import Random
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from gateway.settings import Overflow
from tests.gateway.lanes.model import Model, Told
from tests.gateway.lanes.world import World
from wire.messages import QueueMode

SESSIONS = [f"s{number}" for number in range(4)]
LIMITS = st.fixed_dictionaries(
    {
        "debounce": st.sampled_from((0.0, 0.5, 0.5)),
        "cap": st.sampled_from((0, 1, 2, 3, 20)),
        "overflow": st.sampled_from(Overflow),
        "pending": st.sampled_from((0, 3, 6, 10_000)),
        "lanes": st.sampled_from(({}, {"cron": 1}, {"cron": 1, "main": 2}, {"main": 1, "cron": 0})),
    }
)
CHOICE = st.randoms(use_true_random=False)


class LanesHistory(RuleBasedStateMachine):
    """Rules are what can happen to the lanes. The world sees that every run ends in exactly one place."""

    world: World
    model: Model

    @initialize(limits=LIMITS)
    def begin(self, limits: dict[str, Any]) -> None:
        self.world = World(now=0.0, **limits)
        self.model = Model(self.world.settings)
        self.runs = 0
        self.sequence: dict[str, int] = {}

    def compare(self, stimulus: LaneStimulus, actions: list[LaneAction], session: str = "") -> None:
        """The machine and the model did the same."""
        told = sorted((self.plainly(action) for action in actions), key=repr)
        assert told == self.model.handle(stimulus, self.world.now, session)

    def plainly(self, action: LaneAction) -> Told:
        match action:
            case StartTurn():
                assert list(action.runs) == sorted(action.runs, key=self.sequence.__getitem__), "oldest first"
                return ("start", action.session, action.lane, action.priority, action.runs, action.text)
            case Steer(run=run):
                return ("steer", run)
            case AbortTurn(turn=turn):
                return ("abort", self.world.turns[turn].start.session)
            case RejectRun(run=run, reason=reason):
                return ("refuse", run, reason.value)

    # --- messages ---------------------------------------------------------------------------------------------------

    @rule(
        session=st.sampled_from(SESSIONS),
        mode=st.sampled_from((*QueueMode, QueueMode.COLLECT, QueueMode.COLLECT, QueueMode.STEER)),
        priority=st.sampled_from((1, 5, 5, 5, 9)),
        lane=st.sampled_from(("main", "main", "cron")),
        exclusive=st.sampled_from((False, False, False, False, True)),
    )
    def submit(self, session: str, mode: QueueMode, priority: int, lane: str, exclusive: bool) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        self.runs += 1
        run = f"r{self.runs}"
        self.sequence[run] = self.runs
        starts = not self.world.is_busy(session) and not self.model._lane_is_full(lane)
        options: dict[str, Any] = {"mode": mode, "priority": priority, "lane": lane, "exclusive": exclusive}
        options["may_steer"] = self.world.takes_steers(session)
        actions = self.world.submit(run, session=session, **options)
        assert not starts or [type(action) for action in actions] == [StartTurn], "a free session waits"
        self.compare(Submit(run=run, session=session, text=f"text of {run}", **options), actions)

    @rule(session=st.sampled_from(SESSIONS), count=st.integers(2, 5))
    def burst(self, session: str, count: int) -> None:
        for _ in range(count):
            self.submit(session, QueueMode.COLLECT, 5, "main", exclusive=False)

    @precondition(lambda self: self.world.open)
    @rule(choice=CHOICE)
    def withdraw(self, choice: Random) -> None:
        run = choice.choice(sorted(self.world.open))
        self.compare(Withdraw(run), self.world.withdraw(run))

    @rule(session=st.sampled_from(SESSIONS))
    def clear(self, session: str) -> None:
        self.compare(Clear(session), self.world.tell(Clear(session)))
        assert self.world.machine.waiting(session) == ()

    # --- turns ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.turns)
    @rule(choice=CHOICE, steerable=st.sampled_from((True, True, False)))
    def change_steerable(self, choice: Random, steerable: bool) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        self.world.turns[choice.choice(sorted(self.world.turns))].takes_steers = steerable

    @precondition(lambda self: any(paper.steered for paper in self.world.turns.values()))
    @rule(choice=CHOICE)
    def refuse_steer(self, choice: Random) -> None:
        turn = choice.choice(sorted(turn for turn, paper in self.world.turns.items() if paper.steered))
        session, run = self.world.turns[turn].start.session, choice.choice(self.world.turns[turn].steered)
        self.compare(SteerRejected(turn, run), self.world.refuse_steer(run, session), session)

    @precondition(lambda self: self.world.turns)
    @rule(choice=CHOICE)
    def end(self, choice: Random) -> None:
        turn = choice.choice(sorted(self.world.turns))
        paper = self.world.turns[turn]
        session = paper.start.session
        unconsumed = tuple(run for run in paper.steered if choice.random() < 0.5)
        self.compare(TurnEnded(turn, unconsumed), self.world.end(session, unconsumed), session)

    # --- time and operators -----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.1, 0.3, 0.5, 3.0)))
    def wait(self, seconds: float) -> None:
        until = self.world.now + seconds
        while (due := self.world.machine.next_wakeup()) is not None and due <= until:
            self.world.now = due
            self.compare(Tick(), self.world.tell(Tick()))
        self.world.now = until

    @rule(seconds=st.sampled_from((0.4, 5.0)))
    def be_late(self, seconds: float) -> None:
        """The gateway was busy: several debounces are over at once."""
        self.world.now += seconds
        self.compare(Tick(), self.world.tell(Tick()))

    @rule(limits=LIMITS)
    def reconfigure(self, limits: dict[str, Any]) -> None:
        actions = self.world.reconfigure(**limits)
        assert not any(isinstance(action, RejectRun) for action in actions), "new limits reject nothing"
        self.compare(Reconfigure(self.world.settings), actions)

    # --- promises ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_next_wakeup_is_the_end_of_the_first_debounce(self) -> None:
        assert self.world.machine.next_wakeup() == self.model.next_due()

    @invariant()
    def every_session_that_waits_can_say_who_is_next(self) -> None:
        for session in SESSIONS:
            talk = self.model.talks.get(session)
            expected = [*talk.shortened(), *talk.whole()] if talk else []
            assert self.world.machine.waiting(session) == tuple(message.run for message in expected)
            assert self.world.machine.depth(session) == len(expected)
            assert self.world.is_busy(session) is (talk is not None)

    def teardown(self) -> None:
        """When turns end and time passes, every run has ended somewhere, and nothing is left in the machine."""
        if not hasattr(self, "world"):
            return
        for _ in range(self.runs + 10):
            self.wait(3.0)
            for turn in sorted(self.world.turns):
                session = self.world.turns[turn].start.session
                self.compare(TurnEnded(turn), self.world.end(session), session)
        assert set(self.world.ends) == set(self.sequence), "a run was forgotten"
        snapshot = self.world.machine.snapshot()
        assert (snapshot.running, snapshot.waiting, snapshot.lanes, snapshot.sessions) == (0, 0, (), ())


LanesHistory.TestCase.settings = hypothesis_settings(max_examples=100, stateful_step_count=50, deadline=None)
TestAnyHistory = LanesHistory.TestCase
