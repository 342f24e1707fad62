"""Who beats by the clock and when next, in plain numbers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.schedule import BeatSchedule
from heartbeat.settings import ActiveHours, HeartbeatSettings
from router.keys import main_session_key
from tests.heartbeat.house_around import ON
from wire.units import Seconds

MIDNIGHT = 1_700_006_400.0
"""UTC."""
HOURLY = msgspec.structs.replace(ON, every=Seconds(3600))


def rota_of(*names: str, settings: HeartbeatSettings = HOURLY, last: float | None = None) -> BeatSchedule:
    rota = BeatSchedule()
    beats = {} if last is None else dict.fromkeys(names, last)
    rota.reconfigure(dict.fromkeys(names, settings), 0.0, MIDNIGHT, beats)
    return rota


def due(rota: BeatSchedule, agent: str = "main") -> float:
    at = rota.due_of(agent)
    assert at is not None
    return at


def due_next(rota: BeatSchedule) -> float:
    """When there is something to look at next."""
    at = rota.next_due()
    assert at is not None
    return at


def come_up(rota: BeatSchedule, now: float) -> list[str]:
    return [member.agent for member in rota.pop_due(now, MIDNIGHT + now)]


def test_a_new_agent_beats_first_after_one_interval_of_its_own() -> None:
    rota = rota_of("main", "other")
    for agent in ("main", "other"):
        assert due(rota, agent) == pytest.approx(rota.agents()[agent].every, abs=1)
    assert due(rota, "main") != due(rota, "other")
    assert rota.next_due() == min(due(rota, "main"), due(rota, "other"))
    assert rota.agents()["main"].main_target == ("main", main_session_key("main"))


@pytest.mark.parametrize("every", [3600, 4 * 3600, 12 * 3600])
def test_who_is_looked_at_meanwhile_beats_when_its_hours_begin(every: int) -> None:
    hours = ActiveHours(start="15:00", end="16:00", tz="UTC")
    rota = rota_of("main", settings=HeartbeatSettings(every=Seconds(every), active_hours=hours))
    promised = due(rota)
    assert 15 * 3600 <= promised <= 15 * 3600 + every / 10 + 1
    looks = 0
    while not come_up(rota, now := due_next(rota)):
        looks += 1
        assert due(rota) == pytest.approx(promised, abs=1)
    assert now == pytest.approx(promised, abs=1)
    assert looks > 1


def test_a_clock_that_is_set_while_hours_are_waited_for_is_noticed_within_the_hour() -> None:
    rota = rota_of("main", settings=with_hours("20:00", "21:00"))
    look = due_next(rota)
    assert rota.pop_due(look, MIDNIGHT + 20.5 * 3600) == []
    assert due(rota) <= look + 361
    rota = rota_of("main", settings=with_hours("20:00", "21:00"))
    assert rota.pop_due(look, MIDNIGHT + 19.5 * 3600) == []
    assert look + 1800 <= due(rota) <= look + 1800 + 361


def test_who_has_come_up_stays_due_until_it_is_done() -> None:
    rota = rota_of("main")
    first = due(rota)
    assert come_up(rota, first - 1) == []
    assert come_up(rota, first) == ["main"]
    assert rota.is_due("main")
    assert (due(rota), rota.next_due()) == (first, None)
    rota.mark_done("main", first + 100, MIDNIGHT + first + 100)
    assert not rota.is_due("main")
    assert due(rota) == pytest.approx(first + rota.agents()["main"].every, abs=1)


def test_being_done_without_having_come_up_changes_nothing() -> None:
    rota = rota_of("main")
    first = due(rota)
    rota.mark_done("main", 10.0, MIDNIGHT)
    rota.mark_done("nobody", 10.0, MIDNIGHT)
    assert due(rota) == first


def test_a_beat_that_took_longer_than_the_interval_is_followed_by_a_whole_one() -> None:
    rota = rota_of("main")
    come_up(rota, 5000.0)
    rota.mark_done("main", 20_000.0, MIDNIGHT + 20_000)
    assert due(rota) == pytest.approx(20_000 + rota.agents()["main"].every, abs=1)


def test_agents_are_due_on_whole_seconds_so_that_many_come_up_together() -> None:
    rota = rota_of(*(f"a{number}" for number in range(1000)))
    assert all(due(rota, agent).is_integer() for agent in rota.agents())


def test_an_agent_that_beat_before_the_restart_waits_for_the_rest_of_its_interval() -> None:
    rota = rota_of("main", last=MIDNIGHT - 1000)
    assert due(rota) == pytest.approx(rota.agents()["main"].every - 1000, abs=1)


@pytest.mark.parametrize("last", [MIDNIGHT - 86_400, 0.0])
def test_those_who_are_late_come_up_within_a_minute_and_not_all_at_once(last: float) -> None:
    names = [f"a{number}" for number in range(600)]
    rota = rota_of(*names, last=last)
    assert max(len(come_up(rota, float(second))) for second in range(62)) < 40
    assert all(map(rota.is_due, names))


def test_a_last_beat_in_the_future_makes_nobody_wait_longer() -> None:
    rota = rota_of("main", last=MIDNIGHT + 10**9)
    assert due(rota) == pytest.approx(rota.agents()["main"].every, abs=1)


def test_who_is_off_is_known_and_never_due() -> None:
    rota = rota_of("main", settings=HeartbeatSettings())
    assert "main" in rota
    assert (len(rota), rota.due_of("main"), rota.next_due()) == (1, None, None)


def test_other_settings_begin_the_interval_anew_and_the_same_do_not() -> None:
    rota = rota_of("main", "other", "gone")
    before = due(rota)
    faster = msgspec.structs.replace(HOURLY, every=Seconds(60))
    rota.reconfigure({"main": HOURLY, "other": faster}, 600.0, MIDNIGHT + 600, {})
    assert due(rota) == before
    assert due(rota, "other") == pytest.approx(660, abs=8)
    assert (rota.due_of("gone"), rota.get("gone")) == (None, None)
    rota.reconfigure({"main": HeartbeatSettings()}, 600.0, MIDNIGHT + 600, {})
    assert rota.next_due() is None


def test_an_agent_that_is_switched_off_while_it_is_due_does_not_come_up_again() -> None:
    rota = rota_of("main")
    come_up(rota, 5000.0)
    rota.reconfigure({"main": HeartbeatSettings()}, 5000.0, MIDNIGHT, {})
    rota.mark_done("main", 5001.0, MIDNIGHT)
    assert (rota.is_due("main"), rota.next_due()) == (False, None)


def with_hours(start: str, end: str) -> HeartbeatSettings:
    return msgspec.structs.replace(HOURLY, active_hours=ActiveHours(start=start, end=end, tz="UTC"))


def test_hours_that_begin_within_the_hour_are_waited_for_and_those_far_away_are_looked_for_again() -> None:
    near = rota_of("main", settings=with_hours("01:30", "02:00"))
    assert 5400 <= due(near) <= 5400 + 360 + 1
    far = rota_of("main", settings=with_hours("20:00", "21:00"))
    assert due(far) == pytest.approx(20 * 3600, abs=400)
    assert far.next_due() == pytest.approx(far.agents()["main"].every + 3600, abs=1)


def test_hours_that_never_begin_are_not_waited_for() -> None:
    assert rota_of("main", settings=with_hours("08:00", "08:00")).next_due() is None


def test_hours_that_are_not_understood_are_told_and_shut_nobody_out() -> None:
    rota = rota_of("main", settings=with_hours("8 o'clock", "08:00"))
    assert "8 o'clock" in rota.agents()["main"].window.warning
    assert rota.next_due() is not None


@given(st.lists(st.floats(1, 20_000), max_size=30))
def test_nobody_who_is_on_is_ever_forgotten(naps: list[float]) -> None:
    rota = rota_of("main", "other", settings=with_hours("06:00", "05:00"))
    now = 0.0
    for nap in naps:
        now += nap
        for member in rota.pop_due(now, MIDNIGHT + now):
            rota.mark_done(member.agent, now, MIDNIGHT + now)
        assert all(now < due(rota, agent) <= now + 3 * 3600 for agent in ("main", "other"))
