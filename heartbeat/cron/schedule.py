"""Due times by cron expression, interval or moment, and time zones. Pure; times are Unix seconds."""

import math
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from errors import UsageError
from heartbeat.cron.wall_clock import next_elapsing, next_fixed

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
    except (KeyError, ValueError, OSError) as exc:  # unknown; no name of a file below the database; a directory
        raise UsageError(
            f'tz = {name[:_MAX_ZONE_NAME]!r} is no time zone here; write an IANA name such as "Europe/Berlin"'
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
_SHORTEST_PERIOD = 1.0
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
            raise UsageError(f'every = "{period:g}s" is too often; the shortest is "1s"')
        case At(when) | Every(anchor=when) if not 0 <= when < _LATEST:
            raise UsageError("at and anchor are moments between the years 1970 and 3000")
        case Cron(expression) if next_due(schedule, after, zone_of(schedule, local)) is None:
            raise UsageError(f"cron = {expression!r} never comes: no time of the next 50 years matches it")


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
    return (next_elapsing if is_elapsing else next_fixed)(matches, math.floor(after), zone)


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
