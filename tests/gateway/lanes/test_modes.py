from typing import Any

import pytest

from gateway.lanes import Clear, RejectionReason, RejectRun, Steer, Submit, TurnSteerable
from gateway.settings import QueueMode
from tests.gateway.lanes.world import World

STEER, FOLLOWUP, COLLECT, INTERRUPT = QueueMode.STEER, QueueMode.FOLLOWUP, QueueMode.COLLECT, QueueMode.INTERRUPT


def streaming(**settings: Any) -> World:
    """A world with a turn that takes steers."""
    world = World(**settings)
    world.follow("running")
    world.steerable()
    return world


# --- steer ------------------------------------------------------------------------------------------------------------


def test_a_steer_goes_into_the_running_turn_which_answers_for_it() -> None:
    world = streaming()
    assert world.submit("a", STEER) == [Steer("t1", "a")]
    assert world.machine.depth("s") == 0
    world.end()
    assert world.ends == {"running": "t1", "a": "t1"}


def test_a_steer_becomes_a_follow_up_before_the_turn_streams_and_while_it_takes_none() -> None:
    world = World()
    world.follow("running")
    assert world.submit("early", STEER) == []
    world.end()
    assert world.runs() == ("early",)
    world.steerable()
    world.tell(TurnSteerable(world.turn(), steerable=False))
    assert world.submit("while it compacts", STEER) == []
    assert world.machine.waiting("s") == ("while it compacts",)


def test_a_message_never_overtakes_an_earlier_one_of_its_session_with_the_same_or_a_higher_priority() -> None:
    world = streaming()
    world.follow("first")
    assert world.submit("second", STEER) == []
    assert world.submit("low", STEER, priority=1) == []
    assert world.submit("urgent", STEER, priority=9) == [Steer("t1", "urgent")]
    assert world.machine.waiting("s") == ("first", "second", "low")


def test_a_summarized_message_is_not_overtaken_either_except_by_a_higher_priority() -> None:
    world = streaming(cap=1)
    world.follow("a", "b")
    world.withdraw("b")
    assert world.machine.waiting("s") == ("a",)
    assert world.submit("urgent", STEER, priority=6) == [Steer("t1", "urgent")]
    assert world.submit("c", STEER) == []


def test_a_summarized_message_is_not_overtaken_though_only_lesser_ones_wait_whole() -> None:
    world = streaming(cap=1)
    world.follow("a", "b", priority=9)
    world.withdraw("b")
    world.follow("low", priority=1)
    assert world.submit("c", STEER) == []


def test_messages_that_were_summarized_once_are_in_nobody_s_way_any_more() -> None:
    world = streaming(cap=1)
    world.follow("a", "b", priority=9)
    world.end()
    world.follow("low", priority=1)
    world.steerable()
    assert world.submit("c", STEER) == [Steer("t2", "c")]


def test_a_refused_steer_is_a_follow_up_ahead_of_what_came_after_it() -> None:
    world = streaming()
    world.follow("a", "b", mode=STEER)
    world.follow("later")
    assert world.refuse_steer("b") == []
    assert world.refuse_steer("a") == []
    assert world.machine.waiting("s") == ("a", "b", "later")
    assert world.submit("c", STEER) == [], "it must not overtake the refused ones"


def test_a_refused_steer_does_not_hold_back_a_more_important_message() -> None:
    world = streaming()
    world.submit("a", STEER)
    world.follow("urgent", priority=9)
    world.refuse_steer("a")
    assert world.machine.waiting("s") == ("urgent", "a")


def test_steers_that_were_never_consumed_follow_in_their_old_order_ahead_of_later_messages() -> None:
    world = streaming()
    world.follow("a", "b", "c", mode=STEER)
    world.follow("later", mode=COLLECT)
    world.end(unconsumed=("c", "a"))
    assert world.ends == {"running": "t1", "b": "t1"}
    assert world.runs() == ("a",)
    assert world.machine.waiting("s") == ("c", "later")


def test_steers_of_an_aborted_turn_end_with_it_and_never_leak_into_the_next_prompt() -> None:
    world = streaming()
    world.submit("steered", STEER)
    world.submit("stop, do this", INTERRUPT)
    world.end()
    assert world.ends["steered"] == "t1"
    assert world.prompt() == "text of stop, do this"


def test_steers_that_come_back_from_an_interrupted_turn_have_been_replaced_like_all_that_waited() -> None:
    world = streaming()
    world.follow("a", "b", mode=STEER)
    world.submit("new", INTERRUPT)
    told = world.refuse_steer("a")
    assert [(action.run, action.reason) for action in told if isinstance(action, RejectRun)] == [
        ("a", RejectionReason.INTERRUPTED)
    ]
    world.end(unconsumed=("b",))
    assert world.ends["b"] == "interrupted"
    assert world.runs() == ("new",)


def test_an_exclusive_run_is_never_steered_and_an_exclusive_turn_takes_no_steers() -> None:
    world = streaming()
    assert world.submit("hold", STEER, exclusive=True) == []
    world.end()
    world.steerable()
    assert world.submit("a", STEER) == []
    assert world.machine.waiting("s") == ("a",)


def test_a_turn_is_given_a_bounded_number_of_steers() -> None:
    world = streaming()
    steers = [Submit(run=f"r{number}", session="s", text="x", mode=STEER) for number in range(1001)]
    for steer in steers[:1000]:
        assert world.machine.handle(steer, world.now) == [Steer("t1", steer.run)]
    assert world.machine.handle(steers[1000], world.now) == []
    assert world.machine.waiting("s") == ("r1000",)


# --- collect ----------------------------------------------------------------------------------------------------------


def test_collected_messages_become_one_prompt_and_each_collected_caller_gets_its_outcome() -> None:
    world = World()
    world.follow("running", "a", "b", "c", mode=COLLECT)
    world.pass_time(10)
    world.end()
    assert world.runs() == ("a", "b", "c")
    assert world.prompt().startswith("[3 messages came in while you were busy")
    assert world.prompt().endswith("[1 of 3]\ntext of a\n\n[2 of 3]\ntext of b\n\n[3 of 3]\ntext of c")
    world.end()
    assert {world.ends[run] for run in "abc"} == {"t2"}


def test_a_single_collected_message_is_sent_as_it_is() -> None:
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.pass_time(10)
    world.end()
    assert world.prompt() == "text of a"


def test_collected_messages_wait_until_none_has_come_for_the_debounce() -> None:
    world = World(debounce=0.5)
    world.follow("running", "a", mode=COLLECT)
    world.end()
    assert world.machine.next_wakeup() == world.now + 0.5
    world.pass_time(0.4)
    world.follow("b", mode=COLLECT)
    world.pass_time(0.4)
    assert world.runs() == ()
    world.pass_time(0.1)
    assert world.runs() == ("a", "b")


@pytest.mark.parametrize("cap", [1, 2, 20])
@pytest.mark.parametrize("overflow", ["summarize", "old"])
def test_a_debounce_cannot_starve_however_fast_messages_come_and_old_ones_go(cap: int, overflow: str) -> None:
    world = World(debounce=0.5, cap=cap, overflow=overflow)
    world.follow("running", mode=COLLECT)
    world.follow("first", mode=COLLECT)
    world.end()
    began = world.now
    for number in range(30):
        world.pass_time(0.1)
        if world.runs():
            break
        world.follow(f"r{number}", mode=COLLECT)
    assert world.runs()
    assert world.now - began == pytest.approx(2.0)


def test_a_debounce_that_was_over_before_the_turn_ended_is_not_waited_for_again() -> None:
    world = World()
    world.follow("running", "a", "b", mode=COLLECT)
    world.pass_time(0.6)
    world.end()
    assert world.runs() == ("a", "b")


def test_a_more_important_message_is_not_delayed_by_a_debounce() -> None:
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.end()
    world.submit("urgent", FOLLOWUP, priority=9)
    assert world.runs() == ("urgent",)
    world.end()
    world.pass_time(0.5)
    assert world.runs() == ("a",)


def test_messages_that_nothing_can_join_any_more_need_not_wait_for_others() -> None:
    """What follows must not overtake them, so every further collected message comes behind it."""
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.end()
    world.submit("b", FOLLOWUP)
    assert world.runs() == ("a",)


def test_only_consecutive_messages_of_one_lane_and_priority_that_are_no_holds_are_merged() -> None:
    world = World()
    world.follow("running", "a", "b", mode=COLLECT)
    world.submit("alone", FOLLOWUP)
    world.follow("c", mode=COLLECT)
    world.submit("hold", COLLECT, exclusive=True)
    world.follow("d", mode=COLLECT)
    world.follow("elsewhere", mode=COLLECT, lane="cron")
    world.follow("low", mode=COLLECT, priority=1)
    world.pass_time(10)
    turns = []
    while world.is_busy("s"):
        world.end()
        turns.append(world.runs())
    assert turns == [("a", "b"), ("alone",), ("c",), ("hold",), ("d",), ("elsewhere",), ("low",), ()]


def test_a_collected_message_never_joins_its_group_past_one_that_stands_between() -> None:
    world = World(lanes={"cron": 1})
    world.submit("other", session="1", lane="cron")
    for run, mode in (("a", COLLECT), ("between", FOLLOWUP), ("b", COLLECT)):
        world.submit(run, mode, session="2", lane="cron")
    assert world.machine.waiting("2") == ("a", "between", "b")
    world.end("1")
    assert world.runs("2") == ("a",)


def test_messages_become_consecutive_when_what_stood_between_them_is_withdrawn() -> None:
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.submit("between", FOLLOWUP)
    world.follow("b", mode=COLLECT)
    world.withdraw("between")
    world.pass_time(10)
    world.end()
    assert world.runs() == ("a", "b")


def test_messages_that_come_while_their_group_waits_for_a_slot_join_it_and_delay_it_no_more() -> None:
    world = World(lanes={"cron": 1})
    world.submit("first", session="1", lane="cron")
    world.follow("a", session="2", lane="cron", mode=COLLECT)
    world.follow("b", session="2", lane="cron", mode=COLLECT)
    world.end("1")
    assert world.runs("2") == ("a", "b")


def test_a_session_that_gathers_for_a_more_important_prompt_stands_in_no_line_meanwhile() -> None:
    world = World(lanes={"cron": 1})
    world.submit("first", session="1", lane="cron")
    world.submit("low", session="2", lane="cron")
    world.submit("a", COLLECT, session="2", priority=9)
    world.end("1")
    assert world.runs("2") == ()
    world.pass_time(0.4)
    world.submit("b", COLLECT, session="2", priority=9)
    world.pass_time(0.5)
    assert world.runs("2") == ("a", "b")
    assert world.machine.waiting("2") == ("low",)


def test_a_group_whose_debounce_is_over_waits_only_for_its_slot_from_then_on() -> None:
    world = World(lanes={"cron": 1})
    world.submit("other", session="1", lane="cron")
    world.follow("running", session="2")
    world.follow("a", session="2", lane="cron", mode=COLLECT)
    world.end("2")
    world.pass_time(0.5)
    world.follow("b", session="2", lane="cron", mode=COLLECT)
    world.end("1")
    assert world.runs("2") == ("a", "b")


def test_of_several_sessions_whose_debounce_is_over_the_first_come_gets_the_slot() -> None:
    world = World(lanes={"cron": 1})
    for session in "ab":
        world.follow(f"{session}1", session=session)
    world.submit("b2", COLLECT, session="b", lane="cron")
    world.submit("a2", COLLECT, session="a", lane="cron")
    world.end("a")
    world.end("b")
    world.pass_time(0.5)
    assert (world.runs("a"), world.runs("b")) == ((), ("b2",))


def test_clearing_a_session_that_gathers_frees_it_and_its_timer() -> None:
    world = World()
    world.follow("running", "a", mode=COLLECT)
    world.end()
    world.tell(Clear("s"))
    assert not world.is_busy("s")
    assert world.machine.next_wakeup() is None
