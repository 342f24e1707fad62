"""What the lane machine says beside the transcripts: whole actions, texts, errors, figures, bounds."""

import pytest

from errors import UsageError
from gateway.lanes.messages import (
    LaneStats,
    LaneStimulus,
    RejectionReason,
    RejectRun,
    SessionLaneStats,
    StartTurn,
    Steer,
    SteerRejected,
    Submit,
    Tick,
    TurnEnded,
)
from gateway.settings import Overflow
from tests.gateway.lanes.world import World
from wire.messages import QueueMode


def submit(run: str, session: str = "s", mode: QueueMode = QueueMode.STEER, *, may_steer: bool = False) -> Submit:
    return Submit(run=run, session=session, text="x", mode=mode, may_steer=may_steer)


def test_an_exclusive_run_is_never_steered_and_an_exclusive_turn_takes_no_steers() -> None:
    World().play("follow r -> start r; open; steer hold alone; end -> start hold; open; steer a; waits a")


def test_over_the_global_limit_the_lowest_priority_gives_way_the_latest_among_equals() -> None:
    world = World(pending=3)
    world.play(
        "follow r1 @1 -> start r1; follow a @1 !3; follow r2 @2 -> start r2; follow b @2; follow r3 @3 -> start r3"
    )
    world.play("follow c @3 !3; follow important @1 -> c:evicted")
    assert "3 messages wait in all (gateway.queue.pending)" in world.texts["c"]


@pytest.mark.parametrize(
    ("overflow", "run", "words"),
    [
        (Overflow.NEW, "b", "s has 1 messages waiting already (gateway.queue.cap)"),
        (Overflow.OLD, "a", "gave way"),
    ],
)
def test_a_caller_whose_message_found_no_room_is_told_the_limit(overflow: Overflow, run: str, words: str) -> None:
    world = World(cap=1, overflow=overflow)
    for each in "rab":
        world.submit(each)
    assert words in world.texts[run]


@pytest.mark.parametrize("mode", list(QueueMode)[:3])
def test_the_prompt_has_a_line_of_each_summarized_message_above_the_whole_ones(mode: QueueMode) -> None:
    world = World(cap=1)
    for run, text in {"r": "", "a": "look\n  at " + "x" * 200, "b": "2", "c": "3"}.items():
        world.submit(run, mode, text=text)
    world.pass_time(10)
    world.end()
    assert world.prompt().endswith("[Dropped: 2]\n- look at " + "x" * 151 + "…\n- 2\n\n[In full]\n3")


def test_a_debounce_cannot_starve_however_fast_messages_come_and_old_ones_go() -> None:
    for cap, overflow in ((1, Overflow.SUMMARIZE), (2, Overflow.OLD), (20, Overflow.OLD)):
        world = World(debounce=0.5, cap=cap, overflow=overflow)
        world.play("collect r -> start r; collect a; end")
        began = world.now
        for number in range(30):
            world.pass_time(0.1)
            if world.turns:
                break
            world.submit(f"r{number}", QueueMode.COLLECT)
        assert world.now - began == pytest.approx(2.0)


@pytest.mark.parametrize("limit", ["steers", "summaries"])
def test_a_thousand_steers_of_a_turn_and_summaries_of_a_session_are_kept_and_no_more(limit: str) -> None:
    world = World(cap=1, pending=100_000)
    world.play("follow r -> start r")
    if limit == "steers":
        for number in range(1000):
            steered = world.machine.handle(submit(f"r{number}", may_steer=True), world.now)
            assert steered == [Steer("t1", f"r{number}")]
        assert world.machine.handle(submit("late", may_steer=True), world.now) == []
        assert world.machine.waiting("s") == ("late",)
    else:
        refused = [told for n in range(1010) for told in world.machine.handle(submit(f"r{n}"), world.now)]
        assert [(told.run, told.reason) for told in refused if isinstance(told, RejectRun)] == [
            (f"r{number}", RejectionReason.DROPPED) for number in range(9)
        ]
        assert world.machine.depth("s") == 1001


# --- what makes no sense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stimulus", "message"),
    [
        (submit("a"), "run 'a' is in the lanes already"),
        (submit("b", "z"), "run 'b' is in the lanes already"),
        (submit("c"), "run 'c' is in the lanes already"),
        (TurnEnded("t9"), "no turn 't9' is running"),
        (SteerRejected("t9", "b"), "no turn 't9' is running"),
        (SteerRejected("t1", "a"), "run 'a' was not steered into turn 't1'"),
        (TurnEnded("t1", ("b", "c")), "run 'c' was not steered into turn 't1'"),
        (TurnEnded("t1", ("b", "b")), "turn 't1' gives the same run back twice"),
    ],
)
def test_a_stimulus_that_makes_no_sense_is_refused_and_changes_nothing(stimulus: LaneStimulus, message: str) -> None:
    world = World()
    world.play("follow a -> start a; open; steer b -> steer b; follow c")
    before = world.machine.snapshot()
    with pytest.raises(UsageError, match=message):
        world.tell(stimulus)
    assert world.machine.snapshot() == before


def test_what_was_due_when_a_stimulus_was_refused_is_told_by_the_next_call() -> None:
    world = World()
    world.play("collect r a -> start r; end")
    world.now += 10
    with pytest.raises(UsageError):
        world.machine.handle(TurnEnded("t9"), world.now)
    assert world.machine.next_wakeup() == world.now
    assert [action.runs for action in world.tell(Tick()) if isinstance(action, StartTurn)] == [("a",)]


def test_time_never_goes_back() -> None:
    world = World()
    world.play("collect r a -> start r; end")
    world.machine.handle(submit("c", mode=QueueMode.COLLECT), world.now - 500.0)
    assert world.machine.next_wakeup() == world.now + 0.5


def test_a_snapshot_shows_lanes_sessions_and_sums() -> None:
    world = World(lanes={"cron": 1}, cap=1)
    world.play(
        "follow a @1 #cron -> start a; follow b @2 #cron; follow c @3 -> start c; open @3; steer d @3 -> steer d"
    )
    world.play("follow e f @3")
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
