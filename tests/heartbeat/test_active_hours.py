"""At which hours an agent beats: over midnight, in its own time zone, while the clock is changed."""

import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.cron import schedule
from heartbeat.schedule import parse_active_hours

NEW_YORK = "America/New_York"  # 2026: forward at 02:00 on March 8, back at 02:00 on November 1
BERLIN = "Europe/Berlin"
YEAR_2026 = 1_767_225_600
HOUR, DAY = 3600, 86400


def at(zone: str, text: str) -> float:
    """Unix time of a local time; of two the first, unless the text has an offset."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp()


@pytest.fixture
def machine_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", NEW_YORK)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("start", "end", "active", "quiet"),
    [
        ("09:00", "17:00", ["09:00:00", "12:00:00", "16:59:59"], ["08:59:59", "17:00:00", "00:00:00"]),
        ("22:00", "06:00", ["22:00:00", "23:59:59", "00:00:00", "05:59:59"], ["06:00:00", "12:00:00", "21:59:59"]),
        ("08:00", "24:00", ["08:00:00", "23:59:59"], ["00:00:00", "07:59:59"]),
        ("08:00", "00:00", ["08:00:00", "23:59:59"], ["00:00:00", "07:59:59"]),
        ("00:00", "24:00", ["00:00:00", "12:00:00", "23:59:59"], []),
        ("00:00", "00:00", [], ["00:00:00", "12:00:00", "23:59:59"]),
        ("12:00", "12:00", [], ["11:59:59", "12:00:00", "12:00:01"]),
        ("23:59", "00:01", ["23:59:00", "00:00:59"], ["00:01:00", "23:58:59"]),
        ("9:30", "9:31", ["09:30:00", "09:30:59"], ["09:29:59", "09:31:00"]),
        (" 09:00 ", "17:00 ", ["09:00:00"], ["17:00:00"]),
    ],
)
def test_the_start_belongs_to_the_window_and_the_end_does_not(
    start: str, end: str, active: list[str], quiet: list[str]
) -> None:
    window = parse_active_hours(start, end, BERLIN)
    assert window.warning == ""
    assert [text for text in active if not window.is_active(at(BERLIN, f"2026-02-03T{text}"))] == []
    assert [text for text in quiet if window.is_active(at(BERLIN, f"2026-02-03T{text}"))] == []


@pytest.mark.parametrize(
    ("start", "end", "zone"),
    [
        *(("12:00", "13:00", BERLIN), ("06:00", "07:00", NEW_YORK)),
        *(("16:45", "16:46", "Asia/Kathmandu"), ("11:00", "12:00", "UTC")),
    ],
)
def test_the_zone_decides_which_hour_it_is(start: str, end: str, zone: str) -> None:
    assert parse_active_hours(start, end, zone).is_active(at(BERLIN, "2026-02-03T12:00"))


@pytest.mark.usefixtures("machine_in_new_york")
@pytest.mark.parametrize("zone", ["", "  "])
def test_no_zone_is_the_machines_own(zone: str) -> None:
    window = parse_active_hours("09:00", "17:00", zone)
    assert window.warning == ""
    assert window.is_active(at(NEW_YORK, "2026-02-03T09:00"))
    assert window.is_active(at(NEW_YORK, "2026-07-03T16:59"))
    assert not window.is_active(at(NEW_YORK, "2026-07-03T17:00"))
    assert window.next_start(at(NEW_YORK, "2026-03-07T17:00")) == at(NEW_YORK, "2026-03-08T09:00")


@pytest.mark.parametrize(
    ("start", "end", "zone", "named"),
    [
        ("25:00", "06:00", "", "start = '25:00'"),
        ("24:00", "06:00", "", "start = '24:00'"),
        ("09:60", "17:00", "", "start = '09:60'"),
        ("9", "17:00", "", "start = '9'"),
        ("", "17:00", "", "start = ''"),
        ("-9:00", "17:00", "", "start = '-9:00'"),
        ("٠٩:00", "17:00", "", "start = '٠٩:00'"),
        ("09:00", "24:01", "", "end = '24:01'"),
        ("09:00", "5 pm", "", "end = '5 pm'"),
        ("09:00", "17:00:00", "", "end = '17:00:00'"),
        ("09:00", "17:00", "Mars/Base", "tz = 'Mars/Base'"),
        ("09:00", "17:00", "Europe", "tz = 'Europe'"),
        ("09:00", "17:00", "/etc/passwd", "tz = '/etc/passwd'"),
        ("09:00", "17:00", "../../etc/passwd", "tz = '../../etc/passwd'"),
        ("09:00", "17:00", "Europe/Ber\0lin", "tz = 'Europe/Ber\\x00lin'"),
        ("09:00", "17:00", "\ud800", "tz = '\\ud800'"),
        ("09:00", "17:00", "x" * 100_000, "tz = 'xxx"),
        ("9" * 100_000, "17:00", "", "start = '999"),
    ],
)
def test_what_is_not_understood_is_told_and_silences_nothing(start: str, end: str, zone: str, named: str) -> None:
    window = parse_active_hours(start, end, zone)
    assert window.warning.startswith(f"active_hours.{named}")
    assert "write" in window.warning
    assert len(window.warning) < 300
    assert all(window.is_active(YEAR_2026 + hour * HOUR) for hour in range(24))


def test_a_zone_whose_file_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> ZoneInfo:
        raise PermissionError(name)

    monkeypatch.setattr(schedule, "ZoneInfo", refuse)
    assert parse_active_hours("09:00", "17:00", BERLIN).warning.startswith(
        "active_hours.tz = 'Europe/Berlin' is no time zone"
    )


@pytest.mark.parametrize(
    ("start", "end", "now", "then"),
    [
        ("09:00", "17:00", "2026-02-03T08:00", "2026-02-03T09:00"),
        ("09:00", "17:00", "2026-02-03T17:00", "2026-02-04T09:00"),
        ("09:00", "17:00", "2026-12-31T18:00", "2027-01-01T09:00"),
        ("22:00", "06:00", "2026-02-03T06:00", "2026-02-03T22:00"),
        ("00:00", "06:00", "2026-02-03T06:00", "2026-02-04T00:00"),
        ("09:00", "17:00", "2026-02-03T09:00", "2026-02-03T09:00"),
        ("09:00", "17:00", "2026-02-03T12:34:56.5", "2026-02-03T12:34:56.5"),
        ("09:00", "17:00", "2026-02-03T08:59:59.5", "2026-02-03T09:00"),
    ],
)
def test_the_window_opens_next(start: str, end: str, now: str, then: str) -> None:
    assert parse_active_hours(start, end, BERLIN).next_start(at(BERLIN, now)) == at(BERLIN, then)


def test_a_window_that_is_never_open_has_no_next_start() -> None:
    assert parse_active_hours("08:00", "08:00", BERLIN).next_start(YEAR_2026) is None


@pytest.mark.parametrize(
    ("hours", "zone", "now", "then"),
    [
        # forward: a start in the hour that is left out is the change; a whole window in it does not open that day
        (("02:30", "06:00"), NEW_YORK, "2026-03-08T00:00", "2026-03-08T03:00"),
        (("02:10", "02:50"), NEW_YORK, "2026-03-07T03:00", "2026-03-09T02:10"),
        (("08:00", "17:00"), NEW_YORK, "2026-03-07T20:00", "2026-03-08T08:00"),
        # back: what the clock shows twice opens twice, also the end of a window over midnight
        (("01:30", "01:45"), NEW_YORK, "2026-11-01T00:30", "2026-11-01T01:30"),
        (("01:30", "01:45"), NEW_YORK, "2026-11-01T01:45", "2026-11-01T01:30-05:00"),
        (("01:30", "01:45"), NEW_YORK, "2026-11-01T01:45-05:00", "2026-11-02T01:30"),
        (("22:00", "01:30"), NEW_YORK, "2026-11-01T01:30", "2026-11-01T01:00-05:00"),
        (("08:00", "17:00"), NEW_YORK, "2026-10-31T20:00", "2026-11-01T08:00"),
        (("00:00", "06:00"), "Asia/Beirut", "2022-03-26T12:00", "2022-03-27T01:00"),  # midnight itself is left out
        (("00:00", "06:00"), "Australia/Lord_Howe", "2026-04-04T12:00", "2026-04-05T00:00"),  # half an hour
        (("00:00", "06:00"), "Pacific/Apia", "2011-12-29T12:00", "2011-12-31T00:00"),  # a whole day is left out
    ],
)
def test_a_window_opens_by_the_clock_on_the_wall(hours: tuple[str, str], zone: str, now: str, then: str) -> None:
    window = parse_active_hours(*hours, zone)
    assert window.next_start(at(zone, now)) == at(zone, then)
    assert not window.is_active(at(zone, now))
    assert window.is_active(at(zone, then))
    assert not window.is_active(at(zone, then) - 1)


TIMES = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 45, 59]))
ZONES = st.sampled_from(
    ["", "UTC", BERLIN, NEW_YORK, "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca"]
)
MOMENTS = st.integers(YEAR_2026 // 60, (YEAR_2026 + 365 * DAY) // 60).map(lambda minute: minute * 60)
NEAR_CHANGES = st.builds(
    lambda change, minutes: change + minutes * 60,
    st.sampled_from([at(NEW_YORK, "2026-03-08T03:00"), at(NEW_YORK, "2026-11-01T01:00-05:00")]),
    st.integers(-1600, 200),
)


@given(start=TIMES, end=TIMES, zone=ZONES, now=MOMENTS | NEAR_CHANGES)
def test_the_next_start_is_the_first_minute_of_the_window(start: str, end: str, zone: str, now: float) -> None:
    window = parse_active_hours(start, end, zone)
    then = window.next_start(now)
    if then is None:
        assert start == end
        return
    assert window.is_active(then)
    assert now <= then <= now + 2 * DAY
    assert not any(window.is_active(now + second) for second in range(0, int(then - now), 60))
