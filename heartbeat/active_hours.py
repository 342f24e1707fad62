"""At which hours of its day an agent beats: a window of local time, over midnight too, through changes of the clock."""

import math
import re
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import msgspec

__all__ = ["ALWAYS", "Window", "hours_problem", "parse"]

_DAY = 86400
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_MOST_SHOWN = 64
_MOST_STEPS = 8
"""One for the start, one for each change of the clock on the way; real zones have at most one in a day."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From ``start`` (inclusive) to ``end`` (exclusive), in seconds of the local day; equal = never.

    ``zone`` None is the machine's own. ``warning`` says what of the settings was not understood: such a window is
    always open, since a heartbeat that is silent by mistake is noticed too late.
    """

    start: int = 0
    end: int = _DAY
    zone: tzinfo | None = None
    warning: str = ""

    def is_active(self, wall: float) -> bool:
        """Whether the window is open at ``wall`` (Unix time, seconds)."""
        now = _local(wall, self.zone)
        second = now.hour * 3600 + now.minute * 60 + now.second
        if self.start <= self.end:
            return self.start <= second < self.end
        return second >= self.start or second < self.end

    def next_start(self, wall: float) -> float | None:
        """The first time from ``wall`` on at which the window is open; None = never.

        An hour that the clock leaves out opens the window at the change; one that it repeats may open it twice.
        """
        if self.start == self.end:
            return None
        at = wall
        for _ in range(_MOST_STEPS):
            if self.is_active(at):
                return at
            at = self._next_candidate(math.floor(at))
        return None

    def _next_candidate(self, at: int) -> int:
        """When the clock shows ``start`` next, or when it is changed, if that is earlier."""
        offset = _offset(at, self.zone)
        there = at + (self.start - at - offset) % _DAY
        return there if _offset(there, self.zone) == offset else _change(at, there, self.zone)


ALWAYS = Window()
"""What holds where no hours are set."""


def parse(start: str, end: str, tz: str = "") -> Window:
    """The window of these settings: ``"HH:MM"`` each, ``end`` also ``"24:00"``; ``tz`` an IANA name, or empty: local.

    Raises nothing: what is not understood opens the window altogether, with a ``warning``.
    """
    try:
        return _parsed(start, end, tz)
    except ValueError as problem:
        return Window(warning=f"active_hours.{problem}; until that is mended the heartbeat is active at any hour")


def hours_problem(start: str, end: str, tz: str = "") -> str | None:
    """What of these settings cannot be understood: the name of one, and why; None = nothing."""
    try:
        _parsed(start, end, tz)
    except ValueError as problem:
        return str(problem)
    return None


def _parsed(start: str, end: str, tz: str) -> Window:
    return Window(start=_seconds("start", start, "23:59"), end=_seconds("end", end, "24:00"), zone=_zone(tz))


def _seconds(name: str, text: str, latest: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None or int(found[2]) > 59 or f"{int(found[1]):02}:{found[2]}" > latest:
        msg = f'{name} = {_shown(text)} is no time of day; write one from "00:00" to "{latest}"'
        raise ValueError(msg)
    return int(found[1]) * 3600 + int(found[2]) * 60


def _zone(name: str) -> tzinfo | None:
    if not name.strip():
        return None
    try:
        return ZoneInfo(name.strip())
    except (LookupError, ValueError, OSError) as problem:  # no such zone; no name at all; the name of a folder
        msg = f'tz = {_shown(name)} is no time zone; write an IANA name such as "Europe/Berlin", or "" for local time'
        raise ValueError(msg) from problem


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


def _local(wall: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(wall, UTC).astimezone(zone)


def _offset(wall: int, zone: tzinfo | None) -> int:
    """How far the local clock is ahead of UTC at that time, in seconds."""
    there = _local(wall, zone)
    return int((there.replace(tzinfo=UTC) - datetime.fromtimestamp(wall, UTC)).total_seconds())


def _change(before: int, after: int, zone: tzinfo | None) -> int:
    """The second from which the local clock runs otherwise than it does at ``before``; ``after`` is such a one."""
    offset = _offset(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if _offset(middle, zone) == offset else (before, middle)
    return after
