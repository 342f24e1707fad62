import pytest

from pool.health import Health, HealthDecision, Observation
from pool.settings import PoolSettings
from wire.units import Seconds

SETTINGS = PoolSettings(
    ping_interval_idle=Seconds(15),
    ping_interval_busy=Seconds(30),
    ping_timeout=Seconds(10),
    ping_failures=3,
    turn_stall=Seconds(600),
)
IDLE = Observation(events=0, in_turn=False)


def in_turn(events: int, **facts: bool) -> Observation:
    return Observation(events=events, in_turn=True, **facts)


def test_an_idle_worker_is_pinged_every_idle_interval() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    assert health.next_check() == 15
    assert health.check(IDLE, 14.9) is HealthDecision.FINE
    assert health.check(IDLE, 15) is HealthDecision.PING
    health.ping_answered(15.1)
    assert health.last_ping == 15.1
    assert health.check(IDLE, 29.9) is HealthDecision.FINE
    assert health.check(IDLE, 30) is HealthDecision.PING


def test_a_worker_in_a_turn_is_pinged_every_busy_interval() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    assert health.check(in_turn(1), 15) is HealthDecision.PING
    health.ping_answered(15.0)
    assert health.check(in_turn(2), 44.9) is HealthDecision.FINE
    assert health.check(in_turn(3), 45) is HealthDecision.PING


def test_three_unanswered_pings_in_a_row_are_the_end() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    now = 15.0
    for _ in range(3):
        assert health.check(IDLE, now) is HealthDecision.PING
        now += 10
        health.ping_failed()
    assert health.check(IDLE, now) is HealthDecision.UNRESPONSIVE


def test_a_ping_whose_answer_we_held_back_ourselves_counts_neither_way() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    now = 15.0
    for _ in range(10):
        assert health.check(IDLE, now) is HealthDecision.PING
        health.ping_inconclusive()
        now += 15
    assert health.failures == 0
    assert health.last_ping is None


def test_an_answered_ping_forgives_the_unanswered_ones_before_it() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    for now in (15.0, 25.0):
        assert health.check(IDLE, now) is HealthDecision.PING
        health.ping_failed()
    assert health.check(IDLE, 35.0) is HealthDecision.PING
    health.ping_answered(35.1)
    assert health.failures == 0
    assert health.check(IDLE, 36.0) is HealthDecision.FINE


def test_no_second_ping_goes_out_while_one_is_unanswered() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    assert health.check(IDLE, 15) is HealthDecision.PING
    assert health.check(IDLE, 24) is HealthDecision.FINE
    assert health.next_check() > 24


def test_a_worker_whose_output_we_do_not_read_is_not_asked() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    assert health.check(in_turn(1, backpressured=True), 15) is HealthDecision.FINE
    assert health.next_check() == 45
    assert health.check(in_turn(1), 45) is HealthDecision.PING


def test_a_silent_turn_is_aborted_then_its_worker_fails() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    health.check(in_turn(5), 0)
    assert health.check(in_turn(5), 599) is not HealthDecision.ABORT_TURN
    assert health.check(in_turn(5), 600) is HealthDecision.ABORT_TURN
    assert health.next_check() <= 610
    assert health.check(in_turn(5), 610) is HealthDecision.STALLED


def test_a_turn_that_ends_when_aborted_is_forgiven() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    health.check(in_turn(5), 0)
    assert health.check(in_turn(5), 600) is HealthDecision.ABORT_TURN
    assert health.check(Observation(events=6, in_turn=False), 601) in (HealthDecision.FINE, HealthDecision.PING)
    health.check(in_turn(6), 602)
    assert health.check(in_turn(6), 1201) is not HealthDecision.ABORT_TURN
    assert health.check(in_turn(6), 1202) is HealthDecision.ABORT_TURN


@pytest.mark.parametrize("fact", ["awaits_person", "backpressured"])
def test_the_stall_clock_stands_while_nobody_can_expect_progress(fact: str) -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    health.check(in_turn(5), 0)
    assert health.check(in_turn(5, **{fact: True}), 500) in (HealthDecision.FINE, HealthDecision.PING)
    assert health.check(in_turn(5), 1000) is not HealthDecision.ABORT_TURN
    assert health.check(in_turn(5), 1100) is HealthDecision.ABORT_TURN


def test_every_event_restarts_the_stall_clock() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    for step in range(10):
        assert health.check(in_turn(step), step * 500.0) in (HealthDecision.FINE, HealthDecision.PING)


def test_an_idle_worker_never_stalls() -> None:
    health = Health(lambda: SETTINGS, now=0.0)
    for hour in range(1, 5):
        assert health.check(IDLE, hour * 3600.0) is HealthDecision.PING
        health.ping_answered(hour * 3600.0)


def test_a_turn_that_begins_right_after_a_look_is_found_silent_within_twice_the_limit() -> None:
    settings = PoolSettings(turn_stall=Seconds(2), ping_interval_idle=Seconds(15))
    health = Health(lambda: settings, now=0.0)
    assert health.check(IDLE, health.next_check()) is HealthDecision.FINE
    began = health.next_check() - 2 + 0.001
    while (now := health.next_check()) < began + 10:
        verdict = health.check(in_turn(1), now)
        if verdict is HealthDecision.ABORT_TURN:
            break
    assert 2 <= now - began <= 4
