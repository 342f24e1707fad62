"""When beats begin: told as stories in seconds, without a clock."""

import math

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
    stronger_reason,
)

A = BeatTarget("main", "agent:main:main:main")
B = BeatTarget("other", "agent:other:main:main")


def begin(machine: WakeMachine, now: float) -> list[tuple[str, WakeReason]]:
    return [(action.target.agent, action.reason) for action in machine.begin_due(now) if isinstance(action, Begin)]


def beat(machine: WakeMachine, reason: WakeReason, now: float, end: BeatEnd | None = None) -> float:
    """Wake A and have its beat begin as soon as it may; returns when that was. It takes no time."""
    machine.request(A, reason, now)
    due = machine.next_due()
    assert due is not None
    assert begin(machine, due) == [("main", reason)]
    machine.ended(A, end or BeatRan(), due)
    return due


# --- coalescing and reasons -------------------------------------------------------------------------------------------


def test_wakes_of_a_quarter_of_a_second_are_one_beat_counted_from_the_first() -> None:
    machine = WakeMachine()
    for moment in (10.0, 10.1, 10.2):
        machine.request(A, WakeReason.WAKE, moment)
    assert machine.next_due() == 10.25
    assert machine.begin_due(10.24) == []
    assert begin(machine, 10.25) == [("main", WakeReason.WAKE)]
    machine.ended(A, BeatRan(), 11.0)
    assert machine.next_due() is None


@pytest.mark.parametrize(
    ("reasons", "winner"),
    [
        ([WakeReason.RETRY, WakeReason.INTERVAL], WakeReason.INTERVAL),
        ([WakeReason.INTERVAL, WakeReason.RETRY], WakeReason.INTERVAL),
        ([WakeReason.WAKE, WakeReason.INTERVAL], WakeReason.WAKE),
        ([WakeReason.EXEC, WakeReason.WAKE, WakeReason.INTERVAL], WakeReason.EXEC),
        ([WakeReason.EXEC, WakeReason.CRON], WakeReason.CRON),
        ([WakeReason.CRON, WakeReason.EXEC], WakeReason.EXEC),
        ([WakeReason.HOOK, WakeReason.MANUAL], WakeReason.MANUAL),
    ],
)
def test_the_reason_of_the_highest_rank_counts_and_of_equals_the_newest(
    reasons: list[WakeReason], winner: WakeReason
) -> None:
    machine = WakeMachine()
    for reason in reasons:
        machine.request(A, reason, 0.0)
    assert begin(machine, 1.0) == [("main", winner)]


def test_every_reason_has_a_rank_and_actions_have_the_highest() -> None:
    assert set(REASON_RANKS) == set(WakeReason)
    assert frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.HOOK, WakeReason.MANUAL}) == AWAITED_REASONS
    assert {WakeReason.MANUAL, WakeReason.INTERVAL, WakeReason.RETRY}.isdisjoint(EVENT_REASONS)
    assert stronger_reason(None, WakeReason.RETRY) is WakeReason.RETRY


# --- while a beat runs ------------------------------------------------------------------------------------------------


def test_a_wake_during_a_beat_starts_another_one_after_it() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, 0.0)
    machine.begin_due(0.25)
    assert machine.is_running(A)
    machine.request(A, WakeReason.CRON, 3.0)
    assert machine.next_due() is None
    assert machine.begin_due(50.0) == []
    machine.ended(A, BeatRan(), 60.0)
    assert machine.pending(A) is WakeReason.CRON
    assert begin(machine, 60.0) == [("main", WakeReason.CRON)]


def test_only_a_beat_that_has_begun_can_end() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, 0.0)
    with pytest.raises(RuntimeError, match="no beat"):
        machine.ended(A, BeatRan(), 0.0)


def test_no_more_beats_run_at_once_than_there_is_room_for_but_an_operator_is_let_in() -> None:
    machine = WakeMachine(most_running=2)
    targets = [BeatTarget(f"a{number}", "s") for number in range(4)]
    for target in targets:
        machine.request(target, WakeReason.EXEC, 0.0)
    assert begin(machine, 1.0) == [("a0", WakeReason.EXEC), ("a1", WakeReason.EXEC)]
    assert machine.next_due() is None  # nothing to do until one of them ends
    machine.request(B, WakeReason.MANUAL, 1.0)
    assert machine.next_due() == 1.25
    assert begin(machine, 1.25) == [("other", WakeReason.MANUAL)]
    machine.ended(B, BeatRan(), 1.5)
    assert machine.begin_due(2.0) == []
    machine.ended(targets[0], BeatRan(), 2.0)
    assert begin(machine, 2.0) == [("a2", WakeReason.EXEC)]
    assert machine.running == 2


# --- again ------------------------------------------------------------------------------------------------------------


def test_a_busy_session_is_tried_again_after_a_second_for_the_same_reason() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, 0.0)
    machine.begin_due(0.25)
    machine.ended(A, BeatBusy(), 0.25)
    assert machine.next_due() == 1.25
    machine.request(A, WakeReason.INTERVAL, 1.0)
    assert begin(machine, 1.25) == [("main", WakeReason.EXEC)]


def test_a_failed_beat_is_tried_again_so_many_times_each_after_the_delay() -> None:
    machine = WakeMachine()
    end = BeatFailed(max_retries=2, delay=5.0)
    assert beat(machine, WakeReason.INTERVAL, 0.0, end) == 0.25
    for moment in (5.25, 10.25):
        assert machine.next_due() == moment
        assert begin(machine, moment) == [("main", WakeReason.INTERVAL)]
        machine.ended(A, end, moment)
    assert machine.next_due() is None
    assert machine.pending(A) is None


def test_success_lets_the_retries_begin_anew() -> None:
    machine = WakeMachine()
    end = BeatFailed(max_retries=1, delay=5.0)
    beat(machine, WakeReason.MANUAL, 0.0, end)
    begin(machine, 10.0)
    machine.ended(A, BeatRan(), 10.0)
    beat(machine, WakeReason.MANUAL, 20.0, end)
    assert machine.pending(A) is WakeReason.MANUAL


def test_a_beat_that_failed_for_good_has_its_retries_again_the_next_time() -> None:
    machine = WakeMachine()
    end = BeatFailed(max_retries=1, delay=5.0)
    for start in (0.0, 100.0):
        beat(machine, WakeReason.MANUAL, start, end)
        assert begin(machine, start + 50.0) == [("main", WakeReason.MANUAL)]
        machine.ended(A, end, start + 50.0)
        assert machine.pending(A) is None


def test_events_whose_beat_failed_for_good_come_up_again_after_a_rest() -> None:
    machine = WakeMachine()
    beat(machine, WakeReason.MANUAL, 0.0, BeatFailed(max_retries=0, delay=5.0, cooldown=300.0))
    assert machine.next_due() == 300.25
    assert begin(machine, 300.25) == [("main", WakeReason.RETRY)]


def test_a_new_wake_does_not_wait_for_a_retry() -> None:
    machine = WakeMachine()
    beat(machine, WakeReason.CRON, 0.0, BeatFailed(max_retries=2, delay=60.0))
    machine.request(A, WakeReason.EXEC, 1.0)
    assert begin(machine, 1.25) == [("main", WakeReason.EXEC)]


def test_what_came_while_a_beat_failed_is_newer_than_the_retry() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, 0.0)
    machine.begin_due(0.25)
    machine.request(A, WakeReason.HOOK, 1.0)
    machine.ended(A, BeatFailed(max_retries=1, delay=60.0), 2.0)
    assert begin(machine, 2.0) == [("main", WakeReason.HOOK)]


def test_what_is_postponed_comes_up_when_its_time_has_come() -> None:
    machine = WakeMachine()
    beat(machine, WakeReason.EXEC, 0.0, BeatPostponed(3600.0))
    assert machine.next_due() == 3600.0
    assert begin(machine, 3600.0) == [("main", WakeReason.EXEC)]


def test_what_is_postponed_to_the_past_does_not_go_round_at_full_speed() -> None:
    machine = WakeMachine()
    begun = beat(machine, WakeReason.EXEC, 0.0, BeatPostponed(-5.0))
    assert machine.next_due() == begun + 1.0


# --- spacing and flood guard ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", sorted(set(WakeReason) - AWAITED_REASONS))
def test_half_a_minute_lies_between_beats_that_nobody_waits_for(reason: WakeReason) -> None:
    machine = WakeMachine()
    first = beat(machine, WakeReason.EXEC, 0.0)
    machine.request(A, reason, 1.0)
    assert machine.next_due() == first + 30.0


def test_spacing_counts_from_the_beginning_of_the_beat_that_runs() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.WAKE, 0.0)
    machine.begin_due(0.25)
    machine.request(A, WakeReason.WAKE, 20.0)
    machine.ended(A, BeatRan(), 25.0)
    assert machine.next_due() == 30.25


@pytest.mark.parametrize("reason", sorted(AWAITED_REASONS))
def test_actions_do_not_wait_for_spacing(reason: WakeReason) -> None:
    machine = WakeMachine()
    beat(machine, WakeReason.WAKE, 0.0)
    machine.request(A, WakeReason.INTERVAL, 1.0)
    machine.request(A, reason, 2.0)
    assert begin(machine, 2.25) == [("main", reason)]


def test_a_skip_costs_no_spacing_and_counts_for_no_flood() -> None:
    machine = WakeMachine()
    for number in range(10):
        assert beat(machine, WakeReason.WAKE, float(number), BeatSkipped()) == number + 0.25


def flood(machine: WakeMachine, reason: WakeReason = WakeReason.EXEC) -> float:
    """Five beats within a second and a bit; returns a moment after them."""
    for number in range(5):
        beat(machine, reason, number * 0.3)
    return 1.6


@pytest.mark.parametrize("reason", sorted(EVENT_REASONS & AWAITED_REASONS))
def test_the_sixth_beat_within_a_minute_pauses_event_wakes_for_five_minutes(reason: WakeReason) -> None:
    machine = WakeMachine()
    now = flood(machine, reason)
    machine.request(A, reason, now)
    assert machine.begin_due(2.0) == [Paused(A, 302.0)]
    assert machine.paused_until(A, 2.0) == 302.0
    for moment in (3.0, 100.0, 301.0):
        machine.request(A, WakeReason.HOOK, moment)
        assert machine.begin_due(moment + 0.5) == []
    assert machine.next_due() == 302.0
    assert begin(machine, 302.0) == [("main", WakeReason.HOOK)]
    assert machine.paused_until(A, 302.0) is None


def test_five_beats_in_a_minute_are_no_flood() -> None:
    machine = WakeMachine()
    for number in range(20):
        beat(machine, WakeReason.EXEC, number * 12.1)


def test_what_operators_ask_for_is_no_flood() -> None:
    machine = WakeMachine()
    now = flood(machine, WakeReason.MANUAL)
    beat(machine, WakeReason.EXEC, now)


@pytest.mark.parametrize("reason", [WakeReason.MANUAL, WakeReason.INTERVAL])
def test_operators_and_the_interval_are_not_paused(reason: WakeReason) -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, flood(machine))
    assert machine.begin_due(2.0) == [Paused(A, 302.0)]
    machine.request(A, reason, 40.0)
    assert begin(machine, 40.25) == [("main", reason)]
    machine.ended(A, BeatRan(), 41.0)
    assert begin(machine, 302.0) == [("main", WakeReason.EXEC)]  # what was held is not lost


def test_a_beat_that_an_operator_waits_for_is_not_held_with_events_that_come_beside_it() -> None:
    machine = WakeMachine()
    now = flood(machine)
    machine.request(A, WakeReason.MANUAL, now)
    machine.request(A, WakeReason.EXEC, now + 0.1)
    assert begin(machine, 2.0) == [("main", WakeReason.MANUAL)]


def test_a_pause_is_one_targets_own() -> None:
    machine = WakeMachine()
    machine.request(A, WakeReason.EXEC, flood(machine))
    machine.begin_due(2.0)
    machine.request(B, WakeReason.EXEC, 3.0)
    assert begin(machine, 3.25) == [("other", WakeReason.EXEC)]


def test_a_loop_that_is_slower_than_a_flood_is_held_for_the_rest_of_the_hour() -> None:
    machine = WakeMachine()
    for number in range(30):
        beat(machine, WakeReason.EXEC, 20.0 * number)
    machine.request(A, WakeReason.EXEC, 600.0)
    assert machine.begin_due(601.0) == [Paused(A, 3600.25)]
    assert begin(machine, 3600.25) == [("main", WakeReason.EXEC)]


def test_beats_by_the_clock_are_no_loop() -> None:
    machine = WakeMachine()
    for number in range(60):
        beat(machine, WakeReason.INTERVAL, 60.0 * number)
    beat(machine, WakeReason.EXEC, 3600.0)


def test_a_pause_from_before_a_restart_goes_on() -> None:
    machine = WakeMachine()
    machine.pause(A, 200.0, 0.0)
    machine.request(A, WakeReason.EXEC, 10.0)
    assert machine.next_due() == 200.0
    assert begin(machine, 200.0) == [("main", WakeReason.EXEC)]


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_target_with_nothing_before_it_is_forgotten_once_its_past_does_not_count() -> None:
    machine = WakeMachine()
    for number in range(100):
        target = BeatTarget("main", f"s{number}")
        machine.request(target, WakeReason.EXEC, 0.0)
        machine.begin_due(0.25)
        machine.ended(target, BeatRan(), 0.25)
    assert len(machine) == 100
    beat(machine, WakeReason.EXEC, 3601.0)
    assert len(machine) == 1


def test_a_past_that_counts_gives_way_to_a_target_with_something_before_it() -> None:
    machine = WakeMachine(most_targets=1)
    beat(machine, WakeReason.EXEC, 0.0)
    machine.request(B, WakeReason.EXEC, 1.0)
    assert len(machine) == 1


def test_a_skipped_target_is_forgotten_at_once() -> None:
    machine = WakeMachine()
    beat(machine, WakeReason.WAKE, 0.0, BeatSkipped())
    assert len(machine) == 0


def test_too_many_targets_are_refused_and_those_that_wait_stay() -> None:
    machine = WakeMachine(most_targets=2)
    machine.request(A, WakeReason.EXEC, 0.0)
    machine.request(B, WakeReason.EXEC, 0.0)
    with pytest.raises(PoolSaturated, match="2 sessions"):
        machine.request(BeatTarget("third", "s"), WakeReason.EXEC, 0.0)
    machine.request(A, WakeReason.CRON, 0.1)
    assert len(begin(machine, math.inf)) == 2
