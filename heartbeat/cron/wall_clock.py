"""Due times of wall-clock schedules across daylight-saving changes. Pure; instants are whole Unix seconds.

Setting a clock forward skips wall times, setting it back repeats some. As in cron daemons, a schedule of *fixed* times
of the day is due once: at the change if its time is skipped, at the first of two. An *elapsing* schedule follows
elapsed time.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo

Matches = Callable[[datetime], Iterator[datetime]]
"""The wall times of a schedule after the one given, in order, each without a zone; it may end."""

_YEARS = 50
_SECOND = timedelta(seconds=1)


def next_fixed(matches: Matches, after: int, zone: tzinfo) -> int | None:
    """The first instant after ``after`` at which a schedule of fixed times of the day is due; None = never."""
    for wall in matches(_shown(after, zone)):
        first, second = _readings(wall, zone)
        instant = offset_change(second, first, zone) if second < first else first
        if instant > after:
            return instant
    return None


def next_elapsing(matches: Matches, after: int, zone: tzinfo) -> int | None:
    """The same for a schedule that goes by the time that passes."""
    wall = _shown(after, zone)
    first, second = _readings(wall, zone)
    found = _first_elapsing(matches, wall, after, zone)
    if not first == after < second:
        return found
    begin = _shown(offset_change(first, second, zone), zone) - _SECOND
    again = _first_elapsing(matches, begin, second - (wall - begin) // _SECOND, zone)
    return min((instant for instant in (found, again) if instant is not None), default=None)


def _first_elapsing(matches: Matches, wall: datetime, after: int, zone: tzinfo) -> int | None:
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
