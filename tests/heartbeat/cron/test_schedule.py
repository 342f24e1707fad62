"""When a job is due: tables for the days on which the clock changes, and the rules against counting by the minute."""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from errors import UsageError
from heartbeat.cron.schedule import At, Cron, Every, check_schedule, format_schedule, next_due, zone_of

NEW_YORK, BERLIN, LORD_HOWE = (ZoneInfo(name) for name in ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe"))


def instant(text: str, zone: tzinfo = UTC) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def dues(expression: str, zone: tzinfo, after: str, count: int) -> list[str]:
    """The next due times after a wall time, as a wall clock with its offset shows them."""
    found: list[str] = []
    at: float | None = instant(after, zone)
    for _ in range(count):
        assert at is not None
        at = next_due(Cron(expression), at, zone)
        if at is None:
            return [*found, "never"]
        found.append(datetime.fromtimestamp(at, zone).strftime("%d %H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # 2025-03-09 in New York: 01:59:59 -0500, then 03:00:00 -0400
        ("30 2 * * *", NEW_YORK, "2025-03-08T12:00", ["09 03:00-0400", "10 02:30-0400"]),
        ("0 2 * * *", NEW_YORK, "2025-03-08T12:00", ["09 03:00-0400", "10 02:00-0400"]),
        ("15,45 2 * * *", NEW_YORK, "2025-03-08T12:00", ["09 03:00-0400", "10 02:15-0400"]),
        ("30 2,3 * * *", NEW_YORK, "2025-03-08T12:00", ["09 03:00-0400", "09 03:30-0400"]),
        ("0 3 * * *", NEW_YORK, "2025-03-08T12:00", ["09 03:00-0400", "10 03:00-0400"]),
        ("*/30 * * * *", NEW_YORK, "2025-03-09T01:00", ["09 01:30-0500", "09 03:00-0400", "09 03:30-0400"]),
        ("* 2 * * *", NEW_YORK, "2025-03-08T12:00", ["10 02:00-0400", "10 02:01-0400"]),
        ("30 */2 * * *", NEW_YORK, "2025-03-09T00:00", ["09 00:30-0500", "09 04:30-0400"]),
        # 2025-03-30 in Berlin: 02:00 +0100 becomes 03:00 +0200
        ("30 2 * * *", BERLIN, "2025-03-29T12:00", ["30 03:00+0200", "31 02:30+0200"]),
        ("*/20 * * * *", BERLIN, "2025-03-30T01:20", ["30 01:40+0100", "30 03:00+0200", "30 03:20+0200"]),
        # 2025-10-05 at Lord Howe: 02:00 +1030 becomes 02:30 +1100, half an hour
        ("15 2 * * *", LORD_HOWE, "2025-10-04T12:00", ["05 02:30+1100", "06 02:15+1100"]),
        ("*/15 * * * *", LORD_HOWE, "2025-10-05T01:30", ["05 01:45+1030", "05 02:30+1100", "05 02:45+1100"]),
        ("0 */2 * * *", LORD_HOWE, "2025-10-04T22:30", ["05 00:00+1030", "05 04:00+1100"]),
    ],
)
def test_what_the_clock_leaves_out_is_due_at_the_change_or_goes_by_the_time_that_passes(
    expression: str, zone: tzinfo, after: str, expected: list[str]
) -> None:
    assert dues(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # 2025-11-02 in New York: 01:59:59 -0400, then 01:00:00 -0500
        ("30 1 * * *", NEW_YORK, "2025-11-01T12:00", ["02 01:30-0400", "03 01:30-0500"]),
        ("0 1-3 * * *", NEW_YORK, "2025-11-02T00:00", ["02 01:00-0400", "02 02:00-0500", "02 03:00-0500"]),
        (
            *("*/30 * * * *", NEW_YORK, "2025-11-02T00:30"),
            ["02 01:00-0400", "02 01:30-0400", "02 01:00-0500", "02 01:30-0500", "02 02:00-0500"],
        ),
        ("50 * * * *", NEW_YORK, "2025-11-02T00:50", ["02 01:50-0400", "02 01:50-0500", "02 02:50-0500"]),
        # from within the second time: what was due the first time is not due again
        ("30 1 * * *", NEW_YORK, "2025-11-02T01:15-05:00", ["03 01:30-0500"]),
        ("20,40 1-2 * * *", NEW_YORK, "2025-11-02T01:30-05:00", ["02 02:20-0500"]),
        # 2025-10-26 in Berlin: 03:00 +0200 becomes 02:00 +0100
        ("30 2 * * *", BERLIN, "2025-10-25T12:00", ["26 02:30+0200", "27 02:30+0100"]),
        ("0 * * * *", BERLIN, "2025-10-26T01:30", ["26 02:00+0200", "26 02:00+0100", "26 03:00+0100"]),
        # 2025-04-06 at Lord Howe: 02:00 +1100 becomes 01:30 +1030
        ("45 1 * * *", LORD_HOWE, "2025-04-05T12:00", ["06 01:45+1100", "07 01:45+1030"]),
        (
            *("*/15 * * * *", LORD_HOWE, "2025-04-06T01:15"),
            ["06 01:30+1100", "06 01:45+1100", "06 01:30+1030", "06 01:45+1030", "06 02:00+1030"],
        ),
        ("0 */2 * * *", LORD_HOWE, "2025-04-06T00:30", ["06 02:00+1030", "06 04:00+1030"]),
    ],
)
def test_what_the_clock_shows_twice_is_due_once_or_goes_by_the_time_that_passes(
    expression: str, zone: tzinfo, after: str, expected: list[str]
) -> None:
    assert dues(expression, zone, after, len(expected)) == expected


CHANGES = [
    (NEW_YORK, instant("2025-03-09T07:00Z")),
    (NEW_YORK, instant("2025-11-02T06:00Z")),
    (BERLIN, instant("2025-03-30T01:00Z")),
    (BERLIN, instant("2025-10-26T01:00Z")),
    (LORD_HOWE, instant("2025-10-04T15:30Z")),
    (LORD_HOWE, instant("2025-04-05T15:00Z")),
]
MINUTES = {"*": range(60), "*/15": range(0, 60, 15), "*/40": (0, 40), "0": (0,), "37": (37,), "10,50": (10, 50)}
HOURS = {"*": range(24), "*/2": range(0, 24, 2), "1": (1,), "2": (2,), "0-2": (0, 1, 2), "3,15": (3, 15)}


def counted(minutes: str, hours: str, after: float, zone: tzinfo) -> float:
    """The rules by their words: every minute looked at, one after the other."""
    if minutes.startswith("*") or hours.startswith("*"):
        at = (after // 60 + 1) * 60
        while not matches(datetime.fromtimestamp(at, zone), minutes, hours):
            at += 60
        return at
    wall = datetime.fromtimestamp(after, zone).replace(tzinfo=None, hour=0, minute=0, second=0, fold=0)
    walls = (wall + timedelta(minutes=step) for step in range(-1440, 5 * 1440))
    return min(at for each in walls if matches(each, minutes, hours) and (at := first_seen(each, zone)) > after)


def matches(wall: datetime, minutes: str, hours: str) -> bool:
    return wall.minute in MINUTES[minutes] and wall.hour in HOURS[hours]


def first_seen(wall: datetime, zone: tzinfo) -> float:
    """When a clock on the wall first shows that time, or a later one."""
    at = wall.replace(tzinfo=UTC).timestamp() - 15 * 3600
    while datetime.fromtimestamp(at, zone).replace(tzinfo=None) < wall:
        at += 30 * 60 if wall - datetime.fromtimestamp(at, zone).replace(tzinfo=None) > timedelta(hours=2) else 60
    return at


@given(
    change=st.sampled_from(CHANGES),
    minutes=st.sampled_from(sorted(MINUTES)),
    hours=st.sampled_from(sorted(HOURS)),
    offset=st.integers(-8 * 3600, 8 * 3600),
)
@example(change=CHANGES[1], minutes="10,50", hours="1", offset=1200)
@example(change=CHANGES[5], minutes="0", hours="*/2", offset=900)
def test_a_due_time_is_what_counting_finds(change: tuple[tzinfo, float], minutes: str, hours: str, offset: int) -> None:
    zone, at = change
    expected = counted(minutes, hours, at + offset, zone)
    assert next_due(Cron(f"{minutes} {hours} * * *"), at + offset, zone) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 8 * * 1-5", ["03 08:00+0000", "06 08:00+0000"]),
        ("0 0 L * *", ["31 00:00+0000", "28 00:00+0000"]),
        ("0 0 * * FRI#2", ["10 00:00+0000", "14 00:00+0000"]),
        ("30 0 8 1 * *", ["01 08:00+0000", "01 08:00+0000"]),
    ],
)
def test_an_expression_means_what_cron_means(expression: str, expected: list[str]) -> None:
    assert dues(expression, UTC, "2025-01-03T00:00", 2) == expected


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("0 0 30 2 *", UTC),
        ("0 0 31 4,6 *", UTC),
        ("0 0 LW * */7", UTC),
        ("0 0 LW 2 */7", BERLIN),
        ("* 2 * 3 SUN#2", NEW_YORK),  # the day without an hour from 2 to 3
        ("* * 2 * 3 SUN#2", NEW_YORK),
    ],
)
def test_what_never_comes_is_refused_within_a_moment(expression: str, zone: tzinfo) -> None:
    begin = time.process_time()
    with pytest.raises(UsageError, match="never comes"):
        check_schedule(Cron(expression), instant("2025-01-01"), zone)
    assert time.process_time() - begin < 1.0


def test_a_day_that_comes_once_in_28_years_is_found() -> None:
    due = next_due(Cron("0 0 * 2 MON#5"), instant("2025-01-01"), UTC)
    assert due == instant("2044-02-29")


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * * *", "61 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
        *("x * * * *", "*/0 * * * *", "5-1 * * * *", "1,,2 * * * *", "@daily", "* * * * MON#6", "9" * 250),
    ],
)
def test_what_is_no_expression_is_refused_with_how_to_write_one(expression: str) -> None:
    with pytest.raises(UsageError, match=r"0 8 \* \* 1-5|at most 200"):
        check_schedule(Cron(expression), 0.0, UTC)


@given(st.text(alphabet="0123456789*/,-#LWSUNMON .@²ß", max_size=40))
def test_any_text_is_an_expression_or_a_refusal(text: str) -> None:
    with suppress(UsageError):  # anything else is a failure
        check_schedule(Cron(text), 1.7e9, BERLIN)
        due = next_due(Cron(text), 1.7e9, BERLIN)
        assert due is not None
        assert due > 1.7e9


@pytest.mark.parametrize("name", ["Nowhere/Land", "../etc/passwd", "Europe", "x" * 100, "/etc/localtime", "\0"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="Europe/Berlin"):
        zone_of(Cron("0 0 * * *", name), UTC)


def test_a_span_counts_from_its_anchor() -> None:
    schedule = Every(300.0, anchor=1000.0)
    assert next_due(schedule, 1000.0, UTC) == 1300.0
    assert next_due(schedule, 1299.9, UTC) == 1300.0
    assert next_due(schedule, 99_999.0, UTC) == 100_000.0


@given(period=st.floats(1.0, 1e8), anchor=st.floats(0, 2e9), after=st.floats(0, 3e9))
def test_a_span_is_due_after_and_within_one_period(period: float, anchor: float, after: float) -> None:
    due = next_due(Every(period, anchor), after, UTC)
    assert due is not None
    assert after < due <= after + period * 1.000001


def test_a_moment_is_due_once_however_far_away() -> None:
    when = instant("2055-05-01T08:00Z")
    assert next_due(At(when), 0.0, UTC) == when
    assert next_due(At(when), when - 0.5, UTC) == when
    assert next_due(At(when), when, UTC) is None


@pytest.mark.parametrize(
    ("schedule", "word"),
    [
        (Every(0.5, 0.0), "too often"),
        (Every(float("nan"), 0.0), "too often"),
        (At(-1.0), "1970"),
        (At(9e11), "3000"),
        (Every(60.0, 9e11), "3000"),
    ],
)
def test_spans_and_moments_that_cannot_be_meant_are_refused(schedule: Every | At, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        check_schedule(schedule, 0.0, UTC)


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        (Cron("0 8 * * *", "Europe/Berlin"), "cron 0 8 * * * (Europe/Berlin)"),
        (Cron("0 8 * * *"), "cron 0 8 * * *"),
        (Every(7200.0, 0.0), "every 2h"),
        (Every(90.0, 0.0), "every 90s"),
        (At(instant("2031-05-01T06:00Z")), "at 2031-05-01T08:00:00+02:00"),
    ],
)
def test_a_schedule_is_shown_as_people_write_it(schedule: Cron | Every | At, shown: str) -> None:
    assert format_schedule(schedule, BERLIN) == shown
