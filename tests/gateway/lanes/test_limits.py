import pytest

from gateway.lanes import Clear, RejectionReason, RejectRun, Steer, Submit
from gateway.settings import Overflow, QueueMode
from tests.gateway.lanes.world import World

# --- a session's cap --------------------------------------------------------------------------------------------------


def test_up_to_the_cap_messages_wait_untouched() -> None:
    world = World(cap=3)
    world.follow("running", "a", "b", "c")
    assert world.machine.waiting("s") == ("a", "b", "c")
    assert world.ends == {}


def test_with_new_the_newest_is_refused_and_told_the_limit() -> None:
    world = World(cap=2, overflow=Overflow.NEW)
    world.follow("running", "a", "b", "c")
    assert world.ends == {"c": "full"}
    assert "session s has 2 messages waiting already (gateway.queue.cap)" in world.texts["c"]
    world.end()
    world.follow("d")
    assert world.machine.waiting("s") == ("b", "d")


def test_with_old_the_oldest_is_refused() -> None:
    world = World(cap=2, overflow=Overflow.OLD)
    world.follow("running", "a", "b", "c")
    assert world.ends == {"a": "dropped"}
    assert world.machine.waiting("s") == ("b", "c")


@pytest.mark.parametrize("mode", [QueueMode.STEER, QueueMode.FOLLOWUP])
def test_with_summarize_the_next_turn_carries_a_line_of_the_oldest_and_answers_for_it(mode: QueueMode) -> None:
    world = World(cap=1)
    world.follow("running", mode=mode)
    world.submit("a", mode, text="look\n  at " + "x" * 200)
    world.follow("b", "c", mode=mode)
    assert world.machine.depth("s") == 3
    world.end()
    assert world.runs() == ("a", "b", "c")
    assert world.prompt().endswith("[Dropped: 2]\n- look at " + "x" * 151 + "…\n- text of b\n\n[In full]\ntext of c")
    world.end()
    assert [world.ends[run] for run in "abc"] == ["t2", "t2", "t2"]


def test_only_the_next_turn_carries_the_summary() -> None:
    world = World(cap=2)
    world.follow("running", "a", "b", "c")
    world.end()
    assert world.runs() == ("a", "b")
    world.end()
    assert world.prompt() == "text of c"


def test_a_turn_names_its_runs_oldest_first_whether_whole_or_summarized() -> None:
    world = World(cap=1)
    world.follow("running")
    world.follow("urgent", priority=9)
    world.follow("a")
    world.end()
    assert world.runs() == ("urgent", "a")


def test_overflow_summary_also_with_one_survivor() -> None:
    world = World(cap=1)
    world.follow("running", "a", "b", mode=QueueMode.COLLECT)
    world.pass_time(10)
    world.end()
    assert world.runs() == ("a", "b")
    assert "[Dropped: 1]\n- text of a\n\n[In full]\ntext of b" in world.prompt()


def test_collected_messages_follow_the_summary_under_their_numbers() -> None:
    world = World(cap=2)
    world.follow("running", "a", "b", "c", "d", mode=QueueMode.COLLECT)
    world.pass_time(10)
    world.end()
    assert world.runs() == ("a", "b", "c", "d")
    assert world.prompt().endswith(
        "[Dropped: 2]\n- text of a\n- text of b\n\n[1 of 2]\ntext of c\n\n[2 of 2]\ntext of d"
    )


def test_summarized_runs_have_a_turn_of_their_own_when_no_survivor_is_left_to_carry_them() -> None:
    world = World(cap=1)
    world.follow("running", "a", "b")
    world.withdraw("b")
    world.end()
    assert world.runs() == ("a",)
    assert world.prompt().endswith("[Dropped: 1]\n- text of a")


def test_a_hold_carries_no_summary_and_whoever_came_first_goes_first() -> None:
    world = World(cap=1)
    world.follow("running", "a")
    world.submit("hold", exclusive=True)
    world.end()
    assert world.runs() == ("a",), "it came before the hold"
    world.end()
    assert world.runs() == ("hold",)
    assert world.prompt() == "text of hold"


def test_a_hold_with_a_higher_priority_goes_before_the_summarized_runs() -> None:
    world = World(cap=1)
    world.follow("running", "a")
    world.submit("hold", exclusive=True, priority=9)
    world.end()
    assert world.runs() == ("hold",)
    world.end()
    assert world.runs() == ("a",)


def test_a_hold_goes_before_messages_of_its_time_and_they_carry_the_summary_after_it() -> None:
    world = World(cap=2)
    world.follow("running", "a")
    world.submit("hold", exclusive=True)
    world.follow("b")
    assert world.machine.waiting("s") == ("a", "hold", "b")
    world.end()
    assert world.runs() == ("hold",)
    world.end()
    assert world.runs() == ("a", "b")


def test_a_hold_that_must_give_way_is_refused_since_no_line_could_stand_for_it() -> None:
    world = World(cap=1)
    world.follow("running")
    world.submit("hold", exclusive=True)
    world.follow("a")
    assert world.ends == {"hold": "dropped"}
    assert "gave way" in world.texts["hold"]


def test_the_least_important_message_gives_way_before_an_older_important_one() -> None:
    world = World(cap=2, overflow=Overflow.OLD)
    world.follow("running")
    world.follow("urgent", priority=9)
    world.follow("a", "b")
    world.follow("low", priority=1)
    assert world.ends == {"a": "dropped", "low": "dropped"}
    assert world.machine.waiting("s") == ("urgent", "b")


def test_a_thousand_summarized_runs_hang_on_a_session_and_no_more() -> None:
    world = World(cap=1, pending=100_000)
    world.follow("running")
    refused = []
    for number in range(1100):
        submit = Submit(run=f"r{number}", session="s", text="x", mode=QueueMode.FOLLOWUP)
        refused += world.machine.handle(submit, world.now)
    assert [(action.run, action.reason) for action in refused if isinstance(action, RejectRun)] == [
        (f"r{number}", RejectionReason.DROPPED) for number in range(99)
    ]
    assert world.machine.depth("s") == 1001


def test_summarized_runs_can_be_withdrawn_cleared_and_interrupted_like_any_other() -> None:
    world = World(cap=1)
    world.follow("running", "a", "b", "c", "d")
    world.withdraw("b")
    assert world.machine.waiting("s") == ("a", "c", "d")
    world.submit("new", QueueMode.INTERRUPT)
    assert [world.ends[run] for run in "abcd"] == ["interrupted", "withdrawn", "interrupted", "interrupted"]
    world.follow("e")
    world.tell(Clear("s"))
    assert (world.ends["new"], world.ends["e"]) == ("cleared", "cleared")


def test_with_a_cap_of_zero_a_busy_session_keeps_only_lines() -> None:
    world = World(cap=0)
    world.follow("running", "a", "b")
    assert world.machine.depth("s") == 2
    world.end()
    assert world.runs() == ("a", "b")
    assert world.prompt().endswith("[Dropped: 2]\n- text of a\n- text of b")


def test_the_cap_does_not_count_what_was_steered_nor_refuse_what_comes_back() -> None:
    world = World(cap=1, overflow=Overflow.NEW)
    world.follow("running")
    world.steerable()
    for run in "abc":
        assert world.submit(run, QueueMode.STEER) == [Steer("t1", run)]
    world.end(unconsumed=("a", "b", "c"))
    assert world.runs() == ("a",)
    assert world.machine.waiting("s") == ("b", "c")
    world.follow("d")
    assert world.ends["d"] == "full"


def test_the_first_message_of_a_free_session_may_wait_for_a_slot_whatever_the_cap() -> None:
    world = World(cap=0, overflow=Overflow.NEW, lanes={"cron": 1})
    world.submit("a", session="1", lane="cron")
    world.submit("b", session="2", lane="cron")
    assert world.machine.waiting("2") == ("b",)


# --- all sessions together --------------------------------------------------------------------------------------------


def test_over_the_global_limit_the_lowest_priority_gives_way_the_latest_among_equals() -> None:
    world = World(pending=3)
    for session, priority in (("1", 3), ("2", 5), ("3", 3)):
        world.follow(f"running {session}", session=session)
        world.follow(f"waits {session}", session=session, priority=priority)
    world.follow("important", session="1", priority=5)
    assert world.ends == {"waits 3": "evicted"}
    assert "3 messages wait in all (gateway.queue.pending)" in world.texts["waits 3"]


def test_a_newcomer_that_is_the_least_important_is_refused_itself() -> None:
    world = World(pending=1)
    world.follow("running", "waits")
    world.follow("other", "equal", session="2")
    world.follow("lower", session="2", priority=1)
    assert world.ends == {"equal": "evicted", "lower": "evicted"}


def test_what_begins_at_once_or_is_steered_needs_no_room_to_wait() -> None:
    world = World(pending=0)
    world.follow("running")
    world.steerable()
    assert world.submit("a", QueueMode.STEER) == [Steer("t1", "a")]
    world.follow("b")
    assert world.ends == {"b": "evicted"}


def test_summarized_runs_count_as_waiting_and_can_be_evicted() -> None:
    world = World(pending=2, cap=1)
    world.follow("running", "a", "b")
    world.follow("c", priority=9)
    assert world.ends == {"b": "evicted"}
    assert world.machine.waiting("s") == ("a", "c")
    world.follow("other", session="2")
    world.follow("d", session="2", priority=9)
    assert world.ends == {"b": "evicted", "a": "evicted"}


def test_evicting_the_next_message_of_a_session_in_line_puts_it_where_its_following_one_belongs() -> None:
    world = World(pending=3, lanes={"cron": 1})
    world.submit("first", session="1", lane="cron")
    world.submit("a", session="2", lane="cron", priority=1)
    world.submit("b", session="3", lane="cron", priority=4)
    world.submit("c", session="4", lane="cron", priority=3)
    world.submit("d", session="4", lane="cron", priority=9)
    assert world.ends == {"a": "evicted"}
    assert not world.is_busy("2")
    world.end("1")
    assert world.runs("4") == ("d",)


def test_a_full_session_that_drops_its_oldest_needs_no_room_elsewhere() -> None:
    world = World(pending=1, cap=1, overflow=Overflow.OLD)
    world.follow("running", "a", "b")
    assert world.ends == {"a": "dropped"}


def test_an_interrupt_takes_the_room_of_what_it_replaces() -> None:
    world = World(pending=1)
    world.follow("running", "a")
    world.submit("new", QueueMode.INTERRUPT, priority=1)
    assert world.ends == {"a": "interrupted"}
    assert world.machine.waiting("s") == ("new",)
