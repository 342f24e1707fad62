"""Due times by cron expression, interval or moment, and time zones. Pure; times are Unix seconds.

Setting a clock forward skips wall times, setting it back repeats some. As in cron daemons, a schedule of *fixed* times
of the day is due once: at the change if its time is skipped, at the first of two. An *elapsing* schedule follows
elapsed time.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from errors import UsageError

_MAX_ZONE_NAME = 64
_LOCALTIME = Path("/etc/localtime")


def zone_named(name: str, local: tzinfo) -> tzinfo:
    """The zone of that name; ``local`` for an empty one. Raises UsageError for a name that means none."""
    if not name:
        return local
    if name.upper() == "UTC":
        return UTC
    try:
        return _zone(name)
    except (LookupError, ValueError, OSError) as exc:  # unknown; no name of a file below the database; a directory
        raise UsageError(
            f'tz = {name[:_MAX_ZONE_NAME]!r} is no time zone here; write an IANA name such as "Europe/Berlin", '
            "or nothing for the machine's own"
        ) from exc


def machine_zone(env: Mapping[str, str] = os.environ, localtime: Path = _LOCALTIME) -> tzinfo:
    """The zone of ``$TZ``, else of ``/etc/localtime``, else UTC: as the C library has it."""
    named = env.get("TZ", "").removeprefix(":")
    try:
        if named:
            return _zone(named)
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (KeyError, ValueError, OSError):
        return UTC


def _zone(name: str) -> ZoneInfo:
    if len(name) > _MAX_ZONE_NAME:
        msg = "longer than any name of a zone"
        raise ValueError(msg)
    return ZoneInfo(name)


_LONGEST_EXPRESSION = 200
_SHORTEST_PERIOD = 60.0
_LATEST = 32_503_680_000.0
"""The year 3000: as far as a schedule reaches."""
_EXAMPLE = 'minute hour day-of-month month day-of-week, as "0 8 * * 1-5"; a sixth field in front is the second'


class Cron(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """Whenever the wall clock of a zone matches; an empty ``tz`` is the machine's own."""

    expression: str
    tz: str = ""


class Every(msgspec.Struct, frozen=True, tag="every", tag_field="kind"):
    """``anchor`` and every ``period`` seconds after it (and before it)."""

    period: float
    anchor: float


class At(msgspec.Struct, frozen=True, tag="at", tag_field="kind"):
    """Once."""

    when: float


Schedule = Cron | Every | At


def zone_of(schedule: Schedule, local: tzinfo) -> tzinfo:
    """The zone whose wall clock the schedule goes by. Raises UsageError where it names one that does not exist."""
    return zone_named(schedule.tz, local) if isinstance(schedule, Cron) else local


def check_schedule(schedule: Schedule, after: float, local: tzinfo) -> None:
    """Raise UsageError for what cannot be meant, and for what is not due even once in the 50 years after ``after``.

    A moment that has passed is no error here: of a job that has run it always has.
    """
    match schedule:
        case Every(period) if not _SHORTEST_PERIOD <= period < math.inf:
            raise UsageError(f'every = "{period:g}s" is too often; the shortest is "1m"')
        case At(when) | Every(anchor=when) if not 0 <= when < _LATEST:
            raise UsageError("at and anchor are moments between the years 1970 and 3000")
        case Cron(expression) if next_due(schedule, after, zone_of(schedule, local)) is None:
            raise UsageError(f"cron = {expression!r} never comes: no time of the next 50 years matches it")
        case Cron(expression) if _is_too_often(schedule, after, zone_of(schedule, local)):
            raise UsageError(f"cron = {expression!r} is due more than once a minute; give one second")


def _is_too_often(schedule: Cron, after: float, zone: tzinfo) -> bool:
    """Whether two seconds of one minute match: then the first two pauses are not both a minute long."""
    first = next_due(schedule, after, zone)
    second = None if first is None else next_due(schedule, first, zone)
    third = None if second is None else next_due(schedule, second, zone)
    dues = [due for due in (first, second, third) if due is not None]
    return any(later - due < _SHORTEST_PERIOD for due, later in pairwise(dues))


def next_due(schedule: Schedule, after: float, zone: tzinfo) -> float | None:
    """The first due time after ``after``; None = there is none (for an expression: none within 50 years).

    ``zone`` as ``zone_of`` returns it. Raises UsageError for an expression that is none.
    """
    match schedule:
        case At(when):
            return when if when > after else None
        case Every(period, anchor):
            return _next_multiple(period, anchor, after)
        case Cron(expression):
            return _next_match(expression, zone, after)


def format_schedule(schedule: Schedule, local: tzinfo) -> str:
    """The schedule for a person: ``cron 0 8 * * * (UTC)``, ``every 5m``, ``at 2031-05-01T08:00:00+02:00``."""
    match schedule:
        case At(when):
            return f"at {datetime.fromtimestamp(when, local).isoformat(timespec='seconds')}"
        case Every(period):
            return f"every {_format_span(period)}"
        case Cron(expression, tz):
            return f"cron {expression} ({tz})" if tz else f"cron {expression}"


def _next_multiple(period: float, anchor: float, after: float) -> float | None:
    count = math.floor((after - anchor) / period) + 1
    due = anchor + count * period
    while due <= after:  # the division was rounded
        count += 1
        due = anchor + count * period
    return due if due < _LATEST else None


def _next_match(expression: str, zone: tzinfo, after: float) -> float | None:
    fields = _fields(expression)

    def matches(wall: datetime) -> Iterator[datetime]:
        try:
            return iter(CronSim(expression, wall))
        except CronSimError as exc:
            reason = str(exc).lower().replace("bad ", "its ")
            raise UsageError(
                f"cron = {expression!r} cannot be used: {reason} is malformed, or never comes; write {_EXAMPLE}"
            ) from exc

    # The rule of Debian's cron, after which the library is made: a star for minute or hour means "through the day".
    is_elapsing = fields[-5].startswith("*") or fields[-4].startswith("*")
    return (_next_elapsing if is_elapsing else _next_fixed)(matches, math.floor(after), zone)


def _fields(expression: str) -> list[str]:
    fields = expression.split()
    if len(expression) > _LONGEST_EXPRESSION:
        raise UsageError(f"cron has {len(expression)} characters; an expression has at most {_LONGEST_EXPRESSION}")
    if len(fields) not in (5, 6):
        raise UsageError(f"cron = {expression!r} has {len(fields)} fields; write {_EXAMPLE}")
    return fields


def _format_span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


_Matches = Callable[[datetime], Iterator[datetime]]
"""The wall times of a schedule after the one given, in order, each without a zone; it may end."""

_YEARS = 50
_SECOND = timedelta(seconds=1)


def _next_fixed(matches: _Matches, after: int, zone: tzinfo) -> int | None:
    """The first instant after ``after`` at which a schedule of fixed times of the day is due; None = never."""
    for wall in matches(_shown(after, zone)):
        first, second = _readings(wall, zone)
        instant = offset_change(second, first, zone) if second < first else first
        if instant > after:
            return instant
    return None


def _next_elapsing(matches: _Matches, after: int, zone: tzinfo) -> int | None:
    """The same for a schedule that goes by the time that passes."""
    wall = _shown(after, zone)
    first, second = _readings(wall, zone)
    found = _first_elapsing(matches, wall, after, zone)
    if not first == after < second:
        return found
    begin = _shown(offset_change(first, second, zone), zone) - _SECOND
    again = _first_elapsing(matches, begin, second - (wall - begin) // _SECOND, zone)
    return min((instant for instant in (found, again) if instant is not None), default=None)


def _first_elapsing(matches: _Matches, wall: datetime, after: int, zone: tzinfo) -> int | None:
    last_year = wall.year + _YEARS
    while True:
        found = next(matches(wall), None)
        if found is None or found.year > last_year:
            return None
        first, second = _readings(found, zone)
        if first <= second:
            return first if first > after else second
        wall = _shown(offset_change(second, first, zone), zone) - _SECOND


def _readings(wall: datetime, zone: tzinfo) -> tuple[int, int]:
    """The instant of a wall time, read by the offset before a change and by the one after it.

    Equal at all ordinary times. Of a time that comes twice the first is the earlier; of one that is left out the
    second is, and the change lies between the two.
    """
    return int(wall.replace(tzinfo=zone, fold=0).timestamp()), int(wall.replace(tzinfo=zone, fold=1).timestamp())


def offset_change(before: int, after: int, zone: tzinfo | None) -> int:
    """The first instant after ``before``, up to ``after``, with another offset; there must be one."""
    offset = utc_offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if utc_offset(middle, zone) == offset else (before, middle)
    return after


def utc_offset(instant: int, zone: tzinfo | None) -> timedelta:
    """The offset of the zone's clock from UTC; ``zone`` None is the machine's own."""
    return datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset() or timedelta()


def _shown(instant: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)
