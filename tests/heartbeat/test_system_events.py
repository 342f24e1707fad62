"""The queue of system events: what is taken in, what is bounded, what leaves; in times of the test's own."""

import time
from itertools import count
from typing import Any

import pytest

from heartbeat.system_events import SystemEvent, SystemEventKind, SystemEventLimits, SystemEventQueue

WALL = 1_000_000.0
HOUR = 3600.0


def a_queue(**limits: Any) -> SystemEventQueue:
    ids = count(1)
    return SystemEventQueue(lambda: f"e{next(ids)}", SystemEventLimits(**limits))


def put(
    queue: SystemEventQueue,
    text: str,
    session: str = "s",
    *,
    kind: SystemEventKind = SystemEventKind.OTHER,
    now: float = 0.0,
    context: str | None = None,
) -> SystemEvent | None:
    return queue.inject(session, text, kind=kind, now=now, wall_now=WALL + now, context=context)


def texts(queue: SystemEventQueue, session: str = "s", now: float = 0.0) -> list[str]:
    return [event.text for event in queue.peek(session, now)]


# --- what is taken in -------------------------------------------------------------------------------------------------


def test_an_event_is_queued_trimmed_with_all_that_is_known_of_it() -> None:
    queue = a_queue()
    event = put(queue, "  built \n", kind=SystemEventKind.EXEC, now=5.0, context="exec:a:exit")
    assert event == SystemEvent(
        id="e1", session="s", kind=SystemEventKind.EXEC, text="built", ts=WALL + 5.0, context="exec:a:exit"
    )
    assert queue.peek("s", 5.0) == [event]
    assert queue.peek("t", 5.0) == []


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_an_empty_text_is_ignored(text: str) -> None:
    queue = a_queue()
    assert put(queue, text) is None
    assert (queue.stats().ignored, queue.stats().sessions, queue.pop_changed()) == (1, 0, {})


def test_the_text_queued_last_is_ignored_when_it_comes_again() -> None:
    queue = a_queue()
    put(queue, "door")
    assert put(queue, " door ") is None
    put(queue, "bell")
    assert put(queue, "door") is not None
    assert put(queue, "door", "t") is not None
    assert texts(queue) == ["door", "bell", "door"]


def test_two_commands_that_end_alike_are_two_events() -> None:
    queue = a_queue()
    put(queue, "done", kind=SystemEventKind.EXEC)
    put(queue, "done", kind=SystemEventKind.EXEC)
    assert texts(queue) == ["done", "done"]


def test_a_text_that_a_turn_is_being_told_is_news_when_it_comes_again() -> None:
    queue = a_queue()
    put(queue, "door")
    (shown,) = queue.peek("s", 0.0)
    queue.mark_shown("s", [shown.id])
    again = put(queue, "door")
    assert again is not None
    assert put(queue, "door") is None
    queue.consume("s", [shown.id])
    assert queue.peek("s", 0.0) == [again]


def test_only_of_the_last_one_the_text_is_news_once_it_is_shown() -> None:
    queue = a_queue()
    put(queue, "door")
    (door,) = queue.peek("s", 0.0)
    put(queue, "bell")
    queue.mark_shown("s", [door.id])
    queue.mark_shown("nobody", [door.id])
    assert put(queue, "bell") is None
    assert sorted(queue.sessions()) == ["s"]


def test_looking_at_events_makes_none_of_them_news() -> None:
    queue = a_queue()
    put(queue, "door")
    queue.peek("s", 0.0)
    assert put(queue, "door") is None


def test_a_text_that_is_too_long_is_cut() -> None:
    queue = a_queue(text=10)
    put(queue, "x" * 10)
    put(queue, "y" * 11)
    assert texts(queue) == ["x" * 10, "y" * 9 + "…"]


# --- what is bounded --------------------------------------------------------------------------------------------------


def test_of_one_session_the_latest_twenty_are_kept_and_the_others_counted() -> None:
    queue = a_queue()
    for number in range(25):
        put(queue, str(number))
    put(queue, "beside", "t")
    assert texts(queue) == [str(number) for number in range(5, 25)]
    assert texts(queue, "t") == ["beside"]
    assert (queue.stats().evicted, queue.stats().injected, queue.stats().pending) == (5, 26, 21)


def test_of_too_many_sessions_the_one_with_the_oldest_event_loses_all_its_events() -> None:
    queue = a_queue(sessions=2)
    put(queue, "1", "a")
    put(queue, "2", "b")
    put(queue, "3", "a")
    put(queue, "4", "c")
    assert [texts(queue, name) for name in "abc"] == [[], ["2"], ["4"]]
    assert (queue.stats().evicted, queue.stats().sessions) == (2, 2)


def test_of_too_much_text_the_oldest_goes_whosever_it_is() -> None:
    queue = a_queue(chars=10)
    put(queue, "aaaa", "a")
    put(queue, "bbbb", "b")
    put(queue, "cccc", "c")
    assert [texts(queue, name) for name in "abc"] == [[], ["bbbb"], ["cccc"]]
    queue.consume("b", [event.id for event in queue.peek("b", 0.0)])
    put(queue, "dddddd", "d")
    assert queue.stats().evicted == 1


# --- what leaves ------------------------------------------------------------------------------------------------------


def test_nobody_acknowledges_the_events_of_another_session() -> None:
    queue = a_queue()
    put(queue, "1")
    assert queue.consume("t", ["e1"]) == 0
    assert texts(queue) == ["1"]


def test_an_event_leaves_when_it_is_too_old() -> None:
    queue = a_queue()
    put(queue, "1", now=0.0)
    put(queue, "2", now=10.0)
    assert queue.next_expiry() == HOUR
    assert texts(queue, now=HOUR - 0.1) == ["1", "2"]
    assert texts(queue, now=HOUR) == ["2"]
    assert queue.gc(HOUR + 10.0) == 1
    assert (queue.stats().expired, queue.stats().pending, queue.next_expiry()) == (2, 0, None)


def test_what_the_agent_has_begun_is_told_of_for_seven_days_while_other_events_come_and_go() -> None:
    queue = a_queue()
    put(queue, "built", kind=SystemEventKind.EXEC)
    put(queue, "bell", now=1.0)
    put(queue, "task", kind=SystemEventKind.DELEGATE, now=2.0)
    assert queue.next_expiry() == HOUR + 1.0
    assert texts(queue, now=HOUR + 1.0) == ["built", "task"]
    assert queue.next_expiry() == 7 * 24 * HOUR
    assert texts(queue, now=7 * 24 * HOUR) == ["task"]
    assert (queue.gc(7 * 24 * HOUR + 2.0), queue.next_expiry()) == (1, None)


def test_a_text_whose_twin_is_too_old_is_news() -> None:
    queue = a_queue()
    put(queue, "door")
    assert put(queue, "door", now=HOUR) is not None


def test_only_the_kinds_that_are_to_be_forgotten_are() -> None:
    queue = a_queue()
    put(queue, "1", kind=SystemEventKind.EXEC)
    put(queue, "2", kind=SystemEventKind.CRON)
    put(queue, "3", kind=SystemEventKind.DELEGATE)
    assert queue.discard("s", (SystemEventKind.EXEC, SystemEventKind.DELEGATE)) == 2
    assert texts(queue) == ["2"]
    assert queue.discard("t", tuple(SystemEventKind)) == 0


def test_looking_costs_the_same_however_many_events_have_left() -> None:
    queue = a_queue(per_session=100_000)
    for number in range(100_000):
        put(queue, str(number), str(number % 1000))
    for name in range(999):
        queue.consume(str(name), [event.id for event in queue.peek(str(name), 0.0)])
    queue.consume("999", [event.id for event in queue.peek("999", 0.0)[:-1]])
    began = time.thread_time()
    for _ in range(100_000):
        assert len(queue.peek("999", 1.0)) == 1
    assert time.thread_time() - began < 1  # it takes 50 ms; in a plain dict it took 4 s


# --- another life -----------------------------------------------------------------------------------------------------


def later(queue: SystemEventQueue, *, seconds: float, **limits: Any) -> SystemEventQueue:
    """What a life that begins so much later has, its clock at 0."""
    new = a_queue(**limits)
    left = [event for events in queue.pop_changed().values() for event in events]
    new.restore(left, now=0.0, wall_now=WALL + seconds)
    return new


def test_the_next_life_goes_on_with_what_is_left_and_with_its_age() -> None:
    queue = a_queue()
    put(queue, "b1", "b", now=5.0)
    put(queue, "a1", "a", now=10.0)
    put(queue, "b2", "b", now=20.0)
    after = later(queue, seconds=100.0)
    assert (texts(after, "a"), texts(after, "b")) == (["a1"], ["b1", "b2"])
    assert texts(after, "b", now=HOUR - 95.0) == ["b2"]
    assert texts(after, "a", now=HOUR - 90.1) == ["a1"]
    assert after.gc(HOUR - 80.0) == 2


def test_the_next_life_keeps_what_the_agent_has_begun_for_the_rest_of_its_days() -> None:
    queue = a_queue()
    put(queue, "built", kind=SystemEventKind.EXEC)
    put(queue, "bell")
    after = later(queue, seconds=24 * HOUR)
    assert texts(after) == ["built"]
    assert after.next_expiry() == 6 * 24 * HOUR


def test_what_got_too_old_between_two_lives_is_dropped_and_told_as_a_change() -> None:
    queue = a_queue()
    put(queue, "old")
    put(queue, "young", "t", now=HOUR - 1.0)
    after = later(queue, seconds=HOUR)
    assert (texts(after), texts(after, "t")) == ([], ["young"])
    assert after.pop_changed() == {"s": []}


def test_a_clock_that_was_set_back_makes_no_event_live_longer_than_its_time_nor_changes_their_order() -> None:
    queue = a_queue()
    put(queue, "1", now=500.0)
    queue.inject("s", "2", kind=SystemEventKind.OTHER, now=501.0, wall_now=WALL - 2 * HOUR)
    after = later(queue, seconds=0.0)
    assert texts(after) == ["1", "2"]
    assert texts(after, now=HOUR) == []


def test_an_event_that_is_there_twice_is_one() -> None:
    event = SystemEvent(id="x", session="s", kind=SystemEventKind.OTHER, text="1", ts=WALL)
    queue = a_queue()
    queue.restore([event, event], now=0.0, wall_now=WALL)
    assert queue.peek("s", 0.0) == [event]
    assert queue.consume("s", ["x"]) == 1


# --- the prompt -------------------------------------------------------------------------------------------------------
