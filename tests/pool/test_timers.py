import math
import random

from wire.timers import Timers


def test_timers_fire_in_order_of_time_and_then_of_arming() -> None:
    timers = Timers()
    fired: list[str] = []
    timers.at(2.0, fired.append, "late")
    timers.at(1.0, fired.append, "first")
    timers.at(1.0, fired.append, "second")
    assert timers.next_at() == 1.0
    assert timers.fire(1.0)
    assert fired == ["first", "second"]
    assert timers.next_at() == 2.0
    assert not timers.fire(1.5)


def test_a_cancelled_timer_never_fires_and_does_not_wake_anybody() -> None:
    timers = Timers()
    fired: list[str] = []
    timer = timers.at(1.0, fired.append, "x")
    timers.cancel(timer)
    timers.cancel(timer)
    timers.cancel(None)
    assert timers.next_at() is None
    assert not timers.fire(5.0)
    assert fired == []


def test_an_infinite_deadline_never_comes() -> None:
    timers = Timers()
    timers.cancel(timers.at(math.inf, print, "x"))
    timers.at(math.inf, print, "x")
    assert timers.next_at() is None
    assert len(timers) == 0


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    keep = timers.at(1e6, print, "kept")
    for number in range(10_000):
        timers.cancel(timers.at(1000.0 + number, print, number))
    assert len(timers) == 1
    assert len(timers._heap) < 200
    timers.cancel(keep)
    assert timers.next_at() is None


def test_any_mix_of_arming_and_cancelling_fires_exactly_the_armed_ones() -> None:
    rng = random.Random(7)
    timers = Timers()
    fired: list[int] = []
    armed = {}
    for number in range(2000):
        armed[number] = timers.at(rng.random(), fired.append, number)
        if rng.random() < 0.6:
            timers.cancel(armed.pop(rng.choice(list(armed))))
    timers.fire(1.0)
    assert sorted(fired) == sorted(armed)
