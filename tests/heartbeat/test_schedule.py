"""Which agents beat by the clock and when next, in plain numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.schedule import BeatSchedule, jittered
from heartbeat.settings import ActiveHours, HeartbeatSettings
from router.keys import main_session_key
from tests.heartbeat.worlds import MIDNIGHT, but
from wire.units import Seconds

HOURLY = but(every=Seconds(3600))


class Schedule(BeatSchedule):
    def __init__(self, *names: str, settings: HeartbeatSettings = HOURLY, last: float | None = None) -> None:
        super().__init__()
        self.configure(dict.fromkeys(names, settings), 0.0, {} if last is None else dict.fromkeys(names, last))

    def configure(self, agents: dict[str, HeartbeatSettings], now: float, last: dict[str, float] | None = None) -> None:
        self.reconfigure(agents, now, MIDNIGHT + now, last or {})

    def due(self, agent: str = "main") -> float:
        at = self.due_of(agent)
        assert at is not None
        return at

    def look(self) -> float:
        """When there is something to look at next."""
        at = self.next_due()
        assert at is not None
        return at

    def come_up(self, now: float) -> list[str]:
        return [member.agent for member in self.pop_due(now, MIDNIGHT + now)]

    @property
    def every(self) -> float:
        return self.agents()["main"].every


def with_hours(start: str, end: str, every: float = 3600) -> HeartbeatSettings:
    return but(every=Seconds(every), active_hours=ActiveHours(start=start, end=end, tz="UTC"))


@given(st.floats(1, 1e9), st.text() | st.just("\ud800"))
def test_an_interval_is_within_a_tenth_of_the_one_that_is_set(every: float, agent: str) -> None:
    assert 0.9 * every * (1 - 1e-9) <= jittered(every, agent) <= 1.1 * every * (1 + 1e-9)
    assert jittered(300.0, "scout") == pytest.approx(289.9923045972449), "the same in every process"


def test_agents_are_spread_over_all_of_it() -> None:
    intervals = [jittered(300, f"agent-{number}") for number in range(10_000)]
    assert min(sum(270 + 6 * step <= each < 276 + 6 * step for each in intervals) for step in range(10)) > 800


def test_a_new_agent_beats_first_after_one_interval_of_its_own_on_a_whole_second() -> None:
    schedule = Schedule("main", "other")
    for agent in ("main", "other"):
        assert schedule.due(agent) == pytest.approx(schedule.agents()[agent].every, abs=1)
        assert schedule.due(agent).is_integer()
    assert schedule.due("main") != schedule.due("other")
    assert schedule.next_due() == min(schedule.due("main"), schedule.due("other"))
    assert schedule.agents()["main"].main_target == ("main", main_session_key("main"))


def test_a_due_agent_stays_due_until_it_is_done() -> None:
    schedule = Schedule("main")
    first = schedule.due()
    for agent in ("main", "unknown"):  # done without being due changes nothing
        schedule.mark_done(agent, 10.0, MIDNIGHT)
    assert schedule.come_up(first - 1) == []
    assert schedule.come_up(first) == ["main"]
    assert (schedule.is_due("main"), schedule.due(), schedule.next_due()) == (True, first, None)
    schedule.mark_done("main", first + 100, MIDNIGHT + first + 100)
    assert not schedule.is_due("main")
    assert schedule.due() == pytest.approx(first + schedule.every, abs=1)


def test_a_beat_that_took_longer_than_the_interval_is_followed_by_a_whole_one() -> None:
    schedule = Schedule("main")
    schedule.come_up(5000.0)
    schedule.mark_done("main", 20_000.0, MIDNIGHT + 20_000)
    assert schedule.due() == pytest.approx(20_000 + schedule.every, abs=1)


@pytest.mark.parametrize(("last", "left"), [(-1000, -1000), (10**9, 0)], ids=["the rest", "a clock set back"])
def test_a_last_beat_before_the_restart_counts(last: float, left: float) -> None:
    schedule = Schedule("main", last=MIDNIGHT + last)
    assert schedule.due() == pytest.approx(schedule.every + left, abs=1)


@pytest.mark.parametrize("last", [MIDNIGHT - 86_400, 0.0])
def test_overdue_agents_come_up_within_a_minute_and_not_all_at_once(last: float) -> None:
    names = [f"a{number}" for number in range(600)]
    schedule = Schedule(*names, last=last)
    assert max(len(schedule.come_up(float(second))) for second in range(62)) < 40
    assert all(map(schedule.is_due, names))


def test_an_agent_without_an_interval_is_known_and_never_due() -> None:
    schedule = Schedule("main", settings=HeartbeatSettings())
    assert schedule.get("main") is not None
    assert (schedule.due_of("main"), schedule.next_due()) == (None, None)


def test_other_settings_begin_another_interval_and_the_same_do_not() -> None:
    schedule = Schedule("main", "other", "gone")
    before = schedule.due()
    schedule.configure({"main": HOURLY, "other": but(every=Seconds(60))}, 600.0)
    assert schedule.due() == before
    assert schedule.due("other") == pytest.approx(660, abs=8)
    assert (schedule.due_of("gone"), schedule.get("gone")) == (None, None)
    schedule.configure({"main": HeartbeatSettings()}, 600.0)
    assert schedule.next_due() is None


def test_an_agent_that_is_switched_off_while_it_is_due_does_not_come_up_again() -> None:
    schedule = Schedule("main")
    schedule.come_up(5000.0)
    schedule.configure({"main": HeartbeatSettings()}, 5000.0)
    schedule.mark_done("main", 5001.0, MIDNIGHT)
    assert (schedule.is_due("main"), schedule.next_due()) == (False, None)


@pytest.mark.parametrize("every", [3600, 4 * 3600, 12 * 3600])
def test_an_agent_beats_when_its_hours_begin_and_is_looked_at_meanwhile(every: int) -> None:
    schedule = Schedule("main", settings=with_hours("15:00", "16:00", every))
    promised = schedule.due()
    assert 15 * 3600 <= promised <= 15 * 3600 + every / 10 + 1
    looks = 0
    while not schedule.come_up(now := schedule.look()):
        looks += 1
        assert schedule.due() == pytest.approx(promised, abs=1)
    assert now == pytest.approx(promised, abs=1)
    assert looks > 1


@pytest.mark.parametrize(("wall", "first", "last"), [(20.5, -1e9, 361), (19.5, 1800, 1800 + 361)])
def test_a_clock_that_is_set_while_hours_are_waited_for_is_noticed_within_the_hour(
    wall: float, first: float, last: float
) -> None:
    schedule = Schedule("main", settings=with_hours("20:00", "21:00"))
    look = schedule.look()
    assert schedule.pop_due(look, MIDNIGHT + wall * 3600) == []
    assert first <= schedule.due() - look <= last


def test_the_next_look_is_at_most_an_hour_after_the_interval() -> None:
    near, far = (Schedule("main", settings=with_hours(start, "23:00")) for start in ("01:30", "20:00"))
    assert 5400 <= near.due() <= 5400 + 360 + 1
    assert near.look() == near.due()
    assert far.due() == pytest.approx(20 * 3600, abs=400)
    assert far.look() == pytest.approx(far.every + 3600, abs=1)


def test_hours_that_never_begin_are_not_waited_for_and_invalid_ones_are_always() -> None:
    assert Schedule("main", settings=with_hours("08:00", "08:00")).next_due() is None
    schedule = Schedule("main", settings=with_hours("8 o'clock", "08:00"))
    assert "8 o'clock" in schedule.agents()["main"].window.warning
    assert schedule.due() == pytest.approx(schedule.every, abs=1)


@given(st.lists(st.floats(1, 20_000), max_size=30))
def test_no_agent_with_an_interval_is_ever_forgotten(naps: list[float]) -> None:
    schedule, now = Schedule("main", "other", settings=with_hours("06:00", "05:00")), 0.0
    for nap in naps:
        now += nap
        for agent in schedule.come_up(now):
            schedule.mark_done(agent, now, MIDNIGHT + now)
        assert all(now < schedule.due(agent) <= now + 3 * 3600 for agent in ("main", "other"))
