"""When beats begin, in times of the test's own."""

import math
from collections.abc import Iterable

import pytest

from errors import PoolSaturated
from heartbeat.wake import (
    AWAITED_REASONS,
    EVENT_REASONS,
    REASON_RANKS,
    BeatBusy,
    BeatEnd,
    BeatFailed,
    BeatPostponed,
    BeatRan,
    BeatSkipped,
    BeatTarget,
    Begin,
    Paused,
    WakeMachine,
    WakeReason,
)

A, B = BeatTarget("main", "agent:main:main:main"), BeatTarget("other", "agent:other:main:main")
RETRY, INTERVAL, WAKE, EXEC, CRON, HOOK, MANUAL = WakeReason


class Wakes(WakeMachine):
    """The machine, with beats that take no time."""

    def begin(self, now: float) -> list[tuple[str, WakeReason]]:
        return [(action.target.agent, action.reason) for action in self.begin_due(now) if isinstance(action, Begin)]

    def ask(self, now: float, *reasons: WakeReason, target: BeatTarget = A) -> None:
        for reason in reasons:
            self.request(target, reason, now)

    def beat(self, reason: WakeReason, now: float, end: BeatEnd | None = None) -> float:
        """Wake A and have its beat begin as soon as it may; returns when."""
        self.ask(now, reason)
        due = self.next_due()
        assert due is not None
        assert self.begin(due) == [("main", reason)]
        self.ended(A, end or BeatRan(), due)
        return due

    def beats(self, reason: WakeReason, times: Iterable[float]) -> None:
        for now in times:
            self.beat(reason, now)

    def flood(self, reason: WakeReason = EXEC) -> None:
        self.beats(reason, (number * 0.3 for number in range(5)))


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


def test_wakes_of_a_quarter_of_a_second_are_one_beat_counted_from_the_first(wakes: Wakes) -> None:
    for moment in (10.0, 10.1, 10.2):
        wakes.ask(moment, WAKE)
    assert wakes.next_due() == 10.25
    assert wakes.begin_due(10.24) == []
    assert wakes.begin(10.25) == [("main", WAKE)]
    wakes.ended(A, BeatRan(), 11.0)
    assert wakes.next_due() is None


@pytest.mark.parametrize(
    ("reasons", "winner"),
    [
        *(([RETRY, INTERVAL], INTERVAL), ([INTERVAL, RETRY], INTERVAL), ([WAKE, INTERVAL], WAKE)),
        *(([EXEC, WAKE, INTERVAL], EXEC), ([EXEC, CRON], CRON), ([CRON, EXEC], EXEC), ([HOOK, MANUAL], MANUAL)),
    ],
)
def test_the_reason_of_the_highest_rank_counts_and_of_equals_the_newest(
    wakes: Wakes, reasons: list[WakeReason], winner: WakeReason
) -> None:
    wakes.ask(0.0, *reasons)
    assert wakes.begin(1.0) == [("main", winner)]


def test_every_reason_has_a_rank_and_actions_have_the_highest() -> None:
    assert set(REASON_RANKS) == set(WakeReason)
    assert frozenset({EXEC, CRON, HOOK, MANUAL}) == AWAITED_REASONS
    assert frozenset({WAKE, EXEC, CRON, HOOK}) == EVENT_REASONS


def test_a_wake_during_a_beat_starts_another_one_after_it(wakes: Wakes) -> None:
    wakes.ask(0.0, EXEC)
    wakes.begin_due(0.25)
    wakes.ask(3.0, CRON)
    assert wakes.next_due() is None
    assert wakes.begin_due(50.0) == []
    wakes.ended(A, BeatRan(), 60.0)
    assert wakes.pending(A) is CRON
    assert wakes.begin(60.0) == [("main", CRON)]


def test_only_a_beat_that_has_begun_can_end(wakes: Wakes) -> None:
    wakes.ask(0.0, EXEC)
    with pytest.raises(RuntimeError, match="no beat"):
        wakes.ended(A, BeatRan(), 0.0)


def test_the_number_of_running_beats_is_limited_but_not_for_operators() -> None:
    wakes = Wakes(most_running=2)
    targets = [BeatTarget(f"a{number}", "s") for number in range(4)]
    for target in targets:
        wakes.ask(0.0, EXEC, target=target)
    assert wakes.begin(1.0) == [("a0", EXEC), ("a1", EXEC)]
    assert wakes.next_due() is None  # nothing to do until one of them ends
    wakes.ask(1.0, MANUAL, target=B)
    assert wakes.next_due() == 1.25
    assert wakes.begin(1.25) == [("other", MANUAL)]
    wakes.ended(B, BeatRan(), 1.5)
    assert wakes.begin_due(2.0) == []
    wakes.ended(targets[0], BeatRan(), 2.0)
    assert wakes.begin(2.0) == [("a2", EXEC)]


@pytest.mark.parametrize(
    ("reason", "end", "due", "next_reason"),
    [
        (EXEC, BeatBusy(), 1.25, EXEC),
        (EXEC, BeatPostponed(3600.0), 3600.0, EXEC),
        (EXEC, BeatPostponed(-5.0), 1.25, EXEC),  # a time in the past must not go round at full speed
        (INTERVAL, BeatFailed(max_retries=2, delay=5.0), 5.25, INTERVAL),
        (MANUAL, BeatFailed(max_retries=0, delay=5.0, cooldown=300.0), 300.25, RETRY),
        (MANUAL, BeatFailed(max_retries=0, delay=5.0), None, None),
        (WAKE, BeatRan(), None, None),
        (WAKE, BeatSkipped(), None, None),
    ],
)
def test_the_end_of_a_beat_decides_when_the_next_attempt_comes(
    wakes: Wakes, reason: WakeReason, end: BeatEnd, due: float | None, next_reason: WakeReason | None
) -> None:
    assert wakes.beat(reason, 0.0, end) == 0.25
    assert (wakes.next_due(), wakes.pending(A)) == (due, next_reason)
    if due is not None:
        assert wakes.begin(due) == [("main", next_reason)]


@pytest.mark.parametrize("weaker", [INTERVAL, RETRY])
def test_a_busy_session_is_tried_again_for_the_strongest_reason(wakes: Wakes, weaker: WakeReason) -> None:
    wakes.beat(EXEC, 0.0, BeatBusy())
    wakes.ask(1.0, weaker)
    assert wakes.begin(1.25) == [("main", EXEC)]


@pytest.mark.parametrize("last", [BeatRan(), BeatFailed(max_retries=1, delay=5.0)], ids=["success", "the last failure"])
def test_retries_are_counted_from_the_last_success_or_final_failure(wakes: Wakes, last: BeatEnd) -> None:
    for start in (0.0, 100.0):
        wakes.beat(MANUAL, start, BeatFailed(max_retries=1, delay=5.0))
        assert wakes.begin(start + 50.0) == [("main", MANUAL)]
        wakes.ended(A, last, start + 50.0)
        assert wakes.pending(A) is None


@pytest.mark.parametrize(("first", "second"), [(EXEC, MANUAL), (MANUAL, EXEC)])
def test_the_earlier_of_an_operators_and_another_wake_is_due_next(
    wakes: Wakes, first: WakeReason, second: WakeReason
) -> None:
    wakes.ask(0.0, first)
    wakes.ask(0.1, second, target=B)
    assert wakes.next_due() == 0.25


def test_a_new_wake_does_not_wait_for_a_retry(wakes: Wakes) -> None:
    wakes.beat(CRON, 0.0, BeatFailed(max_retries=2, delay=60.0))
    wakes.ask(1.0, EXEC)
    assert wakes.begin(1.25) == [("main", EXEC)]


def test_a_wake_during_a_beat_that_fails_is_newer_than_its_retry(wakes: Wakes) -> None:
    wakes.ask(0.0, EXEC)
    wakes.begin_due(0.25)
    wakes.ask(1.0, HOOK)
    wakes.ended(A, BeatFailed(max_retries=1, delay=60.0), 2.0)
    assert wakes.begin(2.0) == [("main", HOOK)]


@pytest.mark.parametrize("reason", WakeReason)
def test_half_a_minute_lies_between_beats_unless_a_caller_waits(wakes: Wakes, reason: WakeReason) -> None:
    first = wakes.beat(WAKE, 0.0)
    wakes.ask(1.0, INTERVAL, reason)
    assert wakes.next_due() == (1.25 if reason in AWAITED_REASONS else first + 30.0)


def test_spacing_counts_from_the_beginning_of_the_beat_that_runs(wakes: Wakes) -> None:
    wakes.ask(0.0, WAKE)
    wakes.begin_due(0.25)
    wakes.ask(20.0, WAKE)
    wakes.ended(A, BeatRan(), 25.0)
    assert wakes.next_due() == 30.25


def test_a_skip_costs_no_spacing_and_counts_for_no_flood(wakes: Wakes) -> None:
    for number in range(10):
        assert wakes.beat(WAKE, float(number), BeatSkipped()) == number + 0.25


@pytest.mark.parametrize("reason", sorted(EVENT_REASONS & AWAITED_REASONS))
def test_the_sixth_beat_within_a_minute_pauses_event_wakes_for_five_minutes(wakes: Wakes, reason: WakeReason) -> None:
    wakes.flood(reason)
    wakes.ask(1.6, reason)
    assert wakes.begin_due(2.0) == [Paused(A, 302.0)]
    assert (wakes.paused_until(A, 2.0), wakes.is_held(A)) == (302.0, True)
    for moment in (3.0, 100.0, 301.0):
        wakes.ask(moment, HOOK)
        assert wakes.begin_due(moment + 0.5) == []
    wakes.ask(301.0, EXEC, target=B)
    assert wakes.begin(301.5) == [("other", EXEC)], "a pause is one target's own"
    assert wakes.next_due() == 302.0
    assert wakes.begin(302.0) == [("main", HOOK)]
    assert (wakes.paused_until(A, 302.0), wakes.is_held(A)) == (None, False)


@pytest.mark.parametrize(
    ("reason", "gap", "beats"), [(EXEC, 12.1, 20), (MANUAL, 0.3, 5), (INTERVAL, 60.0, 60)], ids=str
)
def test_slow_beats_and_those_of_operators_and_of_the_clock_are_no_flood(
    wakes: Wakes, reason: WakeReason, gap: float, beats: int
) -> None:
    wakes.beats(reason, (gap * number for number in range(beats)))
    wakes.beat(EXEC, gap * beats)


@pytest.mark.parametrize("reason", [MANUAL, INTERVAL])
def test_operators_and_the_interval_are_not_paused_and_what_is_held_is_not_lost(
    wakes: Wakes, reason: WakeReason
) -> None:
    wakes.flood()
    wakes.ask(1.6, EXEC)
    assert wakes.begin_due(2.0) == [Paused(A, 302.0)]
    wakes.ask(40.0, reason)
    assert wakes.begin(40.25) == [("main", reason)]
    wakes.ended(A, BeatRan(), 41.0)
    assert wakes.begin(302.0) == [("main", EXEC)]


def test_an_operators_beat_is_not_held_with_events_that_come_beside_it(wakes: Wakes) -> None:
    wakes.flood()
    wakes.ask(1.6, MANUAL)
    wakes.ask(1.7, EXEC)
    assert wakes.begin(2.0) == [("main", MANUAL)]


def test_a_loop_that_is_slower_than_a_flood_is_held_for_the_rest_of_the_hour(wakes: Wakes) -> None:
    wakes.beats(EXEC, (20.0 * number for number in range(30)))
    wakes.ask(600.0, EXEC)
    assert wakes.begin_due(601.0) == [Paused(A, 3600.25)]
    assert wakes.begin(3600.25) == [("main", EXEC)]


def test_a_pause_from_before_a_restart_goes_on(wakes: Wakes) -> None:
    wakes.pause(A, 200.0, 0.0)
    wakes.ask(10.0, EXEC)
    assert wakes.next_due() == 200.0
    assert wakes.begin(200.0) == [("main", EXEC)]


def test_an_idle_target_is_forgotten_once_its_past_does_not_count(wakes: Wakes) -> None:
    wakes.beat(WAKE, 0.0, BeatSkipped())
    assert len(wakes) == 0
    for number in range(100):
        target = BeatTarget("main", f"s{number}")
        wakes.ask(0.0, EXEC, target=target)
        wakes.begin_due(0.25)
        wakes.ended(target, BeatRan(), 0.25)
    assert len(wakes) == 100
    wakes.beat(EXEC, 3601.0)
    assert len(wakes) == 1


def test_too_many_targets_are_refused_and_an_idle_one_makes_room() -> None:
    wakes = Wakes(most_targets=2)
    wakes.beat(EXEC, 0.0)
    for name in ("second", "third"):
        wakes.ask(1.0, EXEC, target=BeatTarget(name, "s"))
    assert len(wakes) == 2
    with pytest.raises(PoolSaturated, match="2 sessions"):
        wakes.ask(1.0, EXEC)
    wakes.ask(1.1, CRON, target=BeatTarget("third", "s"))
    assert len(wakes.begin(math.inf)) == 2
