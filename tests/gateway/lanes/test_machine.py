import pytest

from errors import UsageError
from gateway.lanes import (
    Clear,
    LaneStats,
    LaneStimulus,
    Reconfigure,
    RejectionReason,
    RejectRun,
    SessionLaneStats,
    StartTurn,
    SteerRejected,
    Submit,
    Tick,
    TurnEnded,
    TurnSteerable,
)
from gateway.settings import QueueMode, QueueSettings
from tests.gateway.lanes.world import World

# --- one turn per session ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(QueueMode))
def test_a_free_session_starts_at_once_in_every_mode(mode: QueueMode) -> None:
    world = World()
    assert world.submit("a", mode, text="hello", priority=7) == [
        StartTurn(turn="t1", session="s", lane="main", priority=7, runs=("a",), text="hello")
    ]
    assert world.machine.next_wakeup() is None


def test_runs_of_one_session_are_strictly_serial_and_sessions_do_not_wait_for_each_other() -> None:
    world = World()
    world.follow("a", "b", "c")
    world.follow("x", session="other")
    assert (world.runs(), world.runs("other")) == (("a",), ("x",))
    assert world.machine.waiting("s") == ("b", "c")
    world.end()
    assert world.runs() == ("b",)
    world.end()
    assert world.runs() == ("c",)
    assert world.end() == []
    assert world.ends == {"a": "t1", "b": "t3", "c": "t4"}


def test_a_session_is_busy_from_its_first_message_until_its_last_turn_has_ended() -> None:
    world = World()
    assert not world.is_busy("s")
    assert world.machine.running_turn("s") is None
    world.follow("a", "b")
    world.end()
    assert world.is_busy("s")
    assert world.machine.depth("s") == 0
    world.end()
    assert not world.is_busy("s")


def test_what_waits_is_served_by_priority_and_then_by_arrival() -> None:
    world = World()
    world.follow("running", "a")
    world.follow("low", priority=1)
    world.follow("high 1", "high 2", priority=9)
    world.follow("b")
    assert world.machine.waiting("s") == ("high 1", "high 2", "a", "b", "low")
    for run in world.machine.waiting("s"):
        world.end()
        assert world.runs() == (run,)


# --- named lanes ------------------------------------------------------------------------------------------------------


def test_a_named_lane_bounds_the_turns_that_run_in_it_and_no_others() -> None:
    world = World(lanes={"cron": 1})
    world.submit("a", session="1", lane="cron")
    world.submit("b", session="2", lane="cron")
    world.submit("c", session="3")
    assert [world.runs(session) for session in "123"] == [("a",), (), ("c",)]
    world.end("3")
    assert world.runs("2") == ()
    world.end("1")
    assert world.runs("2") == ("b",)


def test_a_lane_is_first_come_first_served_within_a_priority_and_the_higher_priority_goes_first() -> None:
    world = World(lanes={"cron": 1})
    for number, priority in enumerate((5, 5, 3, 5, 8)):
        world.submit(f"r{number}", session=f"s{number}", lane="cron", priority=priority)
    served = []
    for session in ("s0", "s4", "s1", "s3", "s2"):
        served.append(world.runs(session))
        world.end(session)
    assert served == [("r0",), ("r4",), ("r1",), ("r3",), ("r2",)]


def test_a_session_that_waits_for_a_slot_is_busy_and_its_next_message_waits_behind() -> None:
    world = World(lanes={"cron": 1})
    world.submit("a", session="1", lane="cron")
    world.submit("b", session="2", lane="cron")
    assert world.is_busy("2")
    assert world.submit("c", QueueMode.STEER, session="2") == []
    assert world.machine.waiting("2") == ("b", "c")


def test_a_session_keeps_its_place_in_line_by_the_arrival_of_its_message_not_of_its_last_turn() -> None:
    """Its message came before the other session's, so it goes first although that one has not had a turn at all."""
    world = World(lanes={"cron": 1})
    world.submit("a1", session="a", lane="cron")
    world.submit("a2", session="a", lane="cron")
    world.submit("b1", session="b", lane="cron")
    world.submit("a3", session="a", lane="cron")
    order: list[str] = []
    for _ in range(4):
        session = next(each for each in "ab" if world.runs(each))
        order += world.runs(session)
        world.end(session)
    assert order == ["a1", "a2", "b1", "a3"]


def test_a_more_important_message_takes_its_session_forward_in_line_and_into_another_lane() -> None:
    world = World(lanes={"cron": 1})
    world.submit("a", session="1", lane="cron")
    world.submit("b", session="2", lane="cron")
    world.submit("c", session="3", lane="cron")
    world.submit("urgent", session="3", lane="cron", priority=9)
    world.submit("elsewhere", session="2", priority=9)
    assert world.runs("2") == ("elsewhere",)
    world.end("1")
    assert world.runs("3") == ("urgent",)
    world.end("2")
    world.end("3")
    assert world.runs("2") == ("b",), "it has kept its place by arrival"


def test_a_limit_of_zero_is_none() -> None:
    world = World(lanes={"main": 0})
    world.submit("a", session="1")
    world.submit("b", session="2")
    assert world.runs("2") == ("b",)


def test_a_lane_of_two_gives_each_free_slot_to_one_session() -> None:
    world = World(lanes={"sub": 2})
    for number in range(5):
        world.submit(f"r{number}", session=f"{number}", lane="sub")
    assert [bool(world.runs(f"{number}")) for number in range(5)] == [True, True, False, False, False]
    world.end("1")
    assert [bool(world.runs(f"{number}")) for number in range(5)] == [True, False, True, False, False]


# --- taking back, clearing, new settings ------------------------------------------------------------------------------


def test_a_withdrawn_message_never_runs_and_nothing_else_is_said_about_it() -> None:
    world = World()
    world.follow("a", "b", "c")
    assert world.withdraw("b") == []
    world.end()
    assert world.runs() == ("c",)


def test_withdrawing_what_runs_or_is_unknown_changes_nothing() -> None:
    world = World()
    world.follow("a")
    world.steerable()
    world.submit("steered", QueueMode.STEER)
    before = world.machine.snapshot()
    for run in ("a", "steered", "nobody"):
        assert world.withdraw(run) == []
    assert world.machine.snapshot() == before


def test_a_session_whose_only_message_in_line_is_withdrawn_is_free_and_the_line_closes_up() -> None:
    world = World(lanes={"cron": 1})
    for number in range(3):
        world.submit(f"r{number}", session=f"{number}", lane="cron")
    world.withdraw("r1")
    assert not world.is_busy("1")
    world.end("0")
    assert world.runs("2") == ("r2",)


def test_clearing_a_lane_fails_the_waiting_ones_and_lets_the_turn_go_on() -> None:
    world = World()
    world.follow("a", "b", "c")
    told = world.tell(Clear("s"))
    assert [(type(action), action.run, action.reason) for action in told if isinstance(action, RejectRun)] == [
        (RejectRun, "b", RejectionReason.CLEARED),
        (RejectRun, "c", RejectionReason.CLEARED),
    ]
    assert world.runs() == ("a",)
    assert world.end() == []
    assert not world.is_busy("s")


def test_clearing_a_session_that_is_free_does_nothing() -> None:
    assert World().tell(Clear("s")) == []


def test_wider_lanes_serve_those_in_line_at_once_and_narrower_ones_let_running_turns_finish() -> None:
    world = World(lanes={"cron": 1})
    for number in range(4):
        world.submit(f"r{number}", session=f"{number}", lane="cron")
    world.settings = QueueSettings(lanes={"cron": 3})
    assert [action.runs for action in world.tell(Reconfigure(world.settings)) if isinstance(action, StartTurn)] == [
        ("r1",),
        ("r2",),
    ]
    world.settings = QueueSettings(lanes={"cron": 1})
    assert world.tell(Reconfigure(world.settings)) == []
    for session in "01":
        assert world.end(session) == []
    world.end("2")
    assert world.runs("3") == ("r3",)


def test_smaller_limits_lose_nobody_who_waits_already() -> None:
    world = World(cap=5)
    world.follow("running", *"abcde")
    world.settings = QueueSettings(cap=1, pending=1)
    assert world.tell(Reconfigure(world.settings)) == []
    assert world.machine.waiting("s") == tuple("abcde")


def test_a_shorter_debounce_counts_for_those_who_gather_already() -> None:
    world = World(debounce=60.0)
    world.follow("running", "a", "b", mode=QueueMode.COLLECT)
    world.end()
    assert world.machine.next_wakeup() == world.now + 60.0
    world.tell(Reconfigure(QueueSettings(debounce=0.0)))  # type: ignore[arg-type]  # a plain number of seconds will do
    assert world.runs() == ("a", "b")


# --- what makes no sense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stimulus", "message"),
    [
        (Submit(run="a", session="s", text="", mode=QueueMode.STEER), "run 'a' is in the lanes already"),
        (Submit(run="b", session="z", text="", mode=QueueMode.STEER), "run 'b' is in the lanes already"),
        (Submit(run="c", session="s", text="", mode=QueueMode.STEER), "run 'c' is in the lanes already"),
        (TurnEnded("t9"), "no turn 't9' is running"),
        (TurnSteerable("t9", steerable=True), "no turn 't9' is running"),
        (SteerRejected("t9", "b"), "no turn 't9' is running"),
        (SteerRejected("t1", "a"), "run 'a' was not steered into turn 't1'"),
        (SteerRejected("t1", "c"), "run 'c' was not steered into turn 't1'"),
        (TurnEnded("t1", ("b", "c")), "run 'c' was not steered into turn 't1'"),
        (TurnEnded("t1", ("b", "b")), "turn 't1' gives the same run back twice"),
    ],
)
def test_a_stimulus_that_makes_no_sense_is_refused_and_changes_nothing(stimulus: LaneStimulus, message: str) -> None:
    world = World()
    world.follow("a")
    world.steerable()
    world.submit("b", QueueMode.STEER)
    world.submit("c")
    before = world.machine.snapshot()
    with pytest.raises(UsageError, match=message):
        world.tell(stimulus)
    assert world.machine.snapshot() == before


def test_what_was_due_when_a_stimulus_was_refused_is_told_by_the_next_call() -> None:
    world = World()
    world.follow("a", "b", mode=QueueMode.COLLECT)
    world.end()
    world.now += 10
    with pytest.raises(UsageError):
        world.machine.handle(TurnEnded("nobody's"), world.now)
    assert world.machine.next_wakeup() == world.now
    world.tell(Tick())
    assert world.runs() == ("b",)


def test_a_run_that_has_ended_may_come_again() -> None:
    world = World()
    world.follow("a")
    world.end()
    world.ends.clear()
    world.follow("a")
    assert world.runs() == ("a",)


def test_time_never_goes_back() -> None:
    world = World()
    world.follow("a", "b", mode=QueueMode.COLLECT)
    world.end()
    late = Submit(run="c", session="s", text="", mode=QueueMode.COLLECT)
    world.machine.handle(late, world.now - 500.0)
    assert world.machine.next_wakeup() == world.now + 0.5


# --- status -----------------------------------------------------------------------------------------------------------


def test_a_snapshot_shows_lanes_sessions_and_sums() -> None:
    world = World(lanes={"cron": 1}, cap=1)
    world.submit("a", session="1", lane="cron")
    world.submit("b", session="2", lane="cron")
    world.follow("c", session="3")
    world.steerable("3")
    world.submit("d", QueueMode.STEER, session="3")
    world.follow("e", "f", session="3")
    snapshot = world.machine.snapshot()
    assert (snapshot.running, snapshot.waiting) == (2, 3)
    assert snapshot.lanes == (
        LaneStats(name="cron", limit=1, running=1, waiting=1),
        LaneStats(name="main", limit=None, running=1, waiting=0),
    )
    assert snapshot.sessions == (
        SessionLaneStats(session="1", state="running", turn="t1", runs=("a",), steered=0, waiting=0, summarized=0),
        SessionLaneStats(session="2", state="queued", turn=None, runs=(), steered=0, waiting=1, summarized=0),
        SessionLaneStats(session="3", state="running", turn="t2", runs=("c",), steered=1, waiting=1, summarized=1),
    )
