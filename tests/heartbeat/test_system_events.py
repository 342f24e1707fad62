"""The queue of system events: what is taken in, what is bounded, what leaves; in times of the test's own."""

import time
from itertools import count
from typing import Any

import pytest

from heartbeat.system_events import SystemEvent, SystemEventKind, SystemEventLimits, SystemEventQueue

WALL = 1_000_000.0
HOUR, DAY = 3600.0, 86_400.0
EXEC, DELEGATE, CRON, OTHER = (SystemEventKind(name) for name in ("exec", "delegate", "cron", "other"))


class Queue(SystemEventQueue):
    def __init__(self, **limits: Any) -> None:
        ids = count(1)
        super().__init__(lambda: f"e{next(ids)}", SystemEventLimits(**limits))

    def put(
        self, *texts: str, session: str = "s", kind: SystemEventKind = OTHER, now: float = 0.0, **facts: str
    ) -> list[SystemEvent | None]:
        return [self.inject(session, text, kind=kind, now=now, wall_now=WALL + now, **facts) for text in texts]

    def texts(self, session: str = "s", now: float = 0.0) -> list[str]:
        return [event.text for event in self.peek(session, now)]

    def ids(self, session: str = "s") -> list[str]:
        return [event.id for event in self.peek(session, 0.0)]

    def next_life(self, *, seconds: float) -> "Queue":
        """The queue of a supervisor that starts that much later, its clock at 0."""
        new = Queue()
        kept = [event for events in self.pop_changed().values() for event in events]
        new.restore(kept, now=0.0, wall_now=WALL + seconds)
        return new


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_an_event_is_queued_trimmed_with_all_that_is_known_of_it(queue: Queue) -> None:
    (event,) = queue.put("  built \n", kind=EXEC, now=5.0, context="exec:a:exit")
    known = SystemEvent(id="e1", session="s", kind=EXEC, text="built", ts=WALL + 5.0, context="exec:a:exit")
    assert event == known
    assert (queue.peek("s", 5.0), queue.peek("t", 5.0)) == ([known], [])


def test_an_empty_text_is_ignored(queue: Queue) -> None:
    assert queue.put("", "   ", "\n\t") == [None] * 3
    assert (queue.stats().ignored, queue.stats().sessions, queue.pop_changed()) == (3, 0, {})


def test_the_text_queued_last_is_ignored_when_it_comes_again(queue: Queue) -> None:
    queue.put("door")
    queue.texts()  # looking changes nothing
    queue.put(" door ", "bell", "door")
    queue.put("door", session="t")
    assert (queue.texts(), queue.texts("t")) == (["door", "bell", "door"], ["door"])


def test_two_commands_that_end_alike_are_two_events(queue: Queue) -> None:
    queue.put("done", "done", kind=EXEC)
    assert queue.texts() == ["done", "done"]


def test_a_text_that_a_turn_is_reporting_is_new_when_it_comes_again(queue: Queue) -> None:
    queue.put("door")
    shown = queue.ids()
    queue.mark_shown("s", shown)
    again, twice = queue.put("door", "door")
    assert (again is None, twice) == (False, None)
    assert queue.consume("s", shown) == 1
    assert queue.peek("s", 0.0) == [again]


def test_only_the_last_text_is_new_once_it_is_shown(queue: Queue) -> None:
    queue.put("door")
    shown = queue.ids()
    queue.put("bell")
    for session in ("s", "unknown"):
        queue.mark_shown(session, shown)
    assert queue.put("bell") == [None]
    assert sorted(queue.sessions()) == ["s"]


def test_a_text_is_new_once_its_twin_has_expired(queue: Queue) -> None:
    queue.put("door")
    assert queue.put("door", now=HOUR) != [None]


def test_a_text_that_is_too_long_is_cut() -> None:
    queue = Queue(text=10)
    queue.put("x" * 10, "y" * 11)
    assert queue.texts() == ["x" * 10, "y" * 9 + "…"]


def test_the_latest_twenty_of_a_session_are_kept_and_the_others_counted(queue: Queue) -> None:
    queue.put(*map(str, range(25)))
    queue.put("beside", session="t")
    assert (queue.texts(), queue.texts("t")) == ([str(number) for number in range(5, 25)], ["beside"])
    assert (queue.stats().evicted, queue.stats().injected, queue.stats().pending) == (5, 26, 21)


def test_of_too_many_sessions_the_one_with_the_oldest_event_loses_all_its_events() -> None:
    queue = Queue(sessions=2)
    for number, session in enumerate("abac"):
        queue.put(str(number), session=session)
    assert [queue.texts(name) for name in "abc"] == [[], ["1"], ["3"]]
    assert (queue.stats().evicted, queue.stats().sessions) == (2, 2)


def test_of_too_much_text_the_oldest_goes_of_any_session() -> None:
    queue = Queue(chars=10)
    for session in "abc":
        queue.put(session * 4, session=session)
    assert [queue.texts(name) for name in "abc"] == [[], ["bbbb"], ["cccc"]]
    queue.consume("b", queue.ids("b"))
    queue.put("dddddd", session="d")
    assert queue.stats().evicted == 1


def test_events_are_acknowledged_only_in_their_session(queue: Queue) -> None:
    queue.put("1")
    assert queue.consume("t", ["e1"]) == 0
    assert queue.texts() == ["1"]


def test_an_event_expires_after_an_hour_and_a_result_after_seven_days(queue: Queue) -> None:
    queue.put("built", kind=EXEC)
    queue.put("bell", now=1.0)
    queue.put("task", kind=DELEGATE, now=2.0)
    assert queue.next_expiry() == HOUR + 1.0
    assert queue.texts(now=HOUR + 0.9) == ["built", "bell", "task"]
    assert queue.texts(now=HOUR + 1.0) == ["built", "task"]
    assert queue.next_expiry() == 7 * DAY
    assert queue.texts(now=7 * DAY) == ["task"]
    assert queue.gc(7 * DAY + 2.0) == 1
    assert (queue.stats().expired, queue.stats().pending, queue.next_expiry()) == (3, 0, None)


def test_only_the_kinds_named_are_discarded(queue: Queue) -> None:
    for text, kind in (("1", EXEC), ("2", CRON), ("3", DELEGATE)):
        queue.put(text, kind=kind)
    assert queue.discard("s", (EXEC, DELEGATE)) == 2
    assert queue.texts() == ["2"]
    assert queue.discard("t", tuple(SystemEventKind)) == 0


def test_looking_costs_the_same_however_many_events_have_left() -> None:
    queue = Queue(per_session=20_000)
    queue.put(*map(str, range(20_000)))
    queue.consume("s", queue.ids()[:-1])
    began = time.thread_time()
    for _ in range(20_000):
        assert len(queue.peek("s", 1.0)) == 1
    assert time.thread_time() - began < 0.5  # it takes 20 ms; in a plain dict it takes 1.6 s


def test_the_next_supervisor_goes_on_with_what_is_left_and_with_its_age(queue: Queue) -> None:
    for text, now in (("b1", 5.0), ("a1", 10.0), ("b2", 20.0)):
        queue.put(text, session=text[0], now=now)
    after = queue.next_life(seconds=100.0)
    assert (after.texts("a"), after.texts("b")) == (["a1"], ["b1", "b2"])
    assert after.texts("b", now=HOUR - 95.0) == ["b2"]
    assert after.texts("a", now=HOUR - 90.1) == ["a1"]
    assert after.gc(HOUR - 80.0) == 2


def test_results_keep_the_rest_of_their_days_and_what_expired_meanwhile_is_a_change(queue: Queue) -> None:
    queue.put("built", kind=EXEC)
    queue.put("bell", session="t")
    after = queue.next_life(seconds=DAY)
    assert (after.texts(), after.texts("t"), after.pop_changed()) == (["built"], [], {"t": []})
    assert after.next_expiry() == 6 * DAY


def test_a_clock_that_was_set_back_lengthens_no_life_and_changes_no_order(queue: Queue) -> None:
    queue.put("1", now=500.0)
    queue.inject("s", "2", kind=OTHER, now=501.0, wall_now=WALL - 2 * HOUR)
    after = queue.next_life(seconds=0.0)
    assert after.texts() == ["1", "2"]
    assert after.texts(now=HOUR) == []


def test_an_event_that_is_restored_twice_is_one(queue: Queue) -> None:
    event = SystemEvent(id="x", session="s", kind=OTHER, text="1", ts=WALL)
    queue.restore([event, event], now=0.0, wall_now=WALL)
    assert queue.peek("s", 0.0) == [event]
    assert queue.consume("s", ["x"]) == 1
