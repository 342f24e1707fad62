"""Per-agent schedule, jitter, active hours. Pure.

By how much an agent's interval differs from the one that is set, so that not all of them beat at once. Pure.

At which hours of its day an agent beats: a window of local time, over midnight too, through changes of the clock.

Who beats by the clock, and when next: one timetable for all agents. Pure.

``now`` is monotonic, ``wall`` Unix time, both in seconds. An agent that has come up stays due until it is said to be
``done``: a beat that has to wait, or to be tried again, does not advance its schedule.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from hashlib import blake2b
from zoneinfo import ZoneInfo

import msgspec

from heartbeat.settings import HeartbeatSettings
from heartbeat.wake import Target
from router.keys import main_session_key
from wire.timers import Timetable

_SHARE = 0.1


def jittered(every: float, agent: str) -> float:
    """The interval of this agent, in the unit of ``every``: within 10 % of it, and the same one each time."""
    number = int.from_bytes(blake2b(agent.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return every * (1 - _SHARE + 2 * _SHARE * number / (2**64 - 1))


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


_TICK = 1.0
"""Seconds; agents are due on whole ticks, so that thousands of them cost a few wake-ups of the supervisor a second."""
_CATCH_UP = 60.0
"""Seconds over which those are spread who all became due while nobody was there."""
_LONGEST_NAP = 3600.0
"""Somebody may set the calendar's clock: until the next opening hour it is looked at so often."""
_STAGGER = 0.1
"""Part of the interval over which those are spread whose hours begin at the same time."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One agent with what its settings come to.

    ``home``: its own conversation, where it beats. ``every``: its own interval; ``share``: its place among others.
    """

    agent: str
    home: Target
    settings: HeartbeatSettings
    window: Window
    every: float
    share: float

    @classmethod
    def of(cls, agent: str, settings: HeartbeatSettings) -> "Member":
        """From its settings. What of its hours is not understood is in ``window.warning``."""
        hours = settings.active_hours
        return cls(
            agent=agent,
            home=Target(agent, main_session_key(agent)),
            settings=settings,
            window=ALWAYS if hours is None else parse(hours.start, hours.end, hours.tz),
            every=jittered(settings.every, agent),
            share=(jittered(1.0, agent) - 0.9) / 0.2,
        )


class Rota:
    """All agents that have a heartbeat configured, also those for which it is off. Every step costs O(log n)."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._timetable: Timetable[str] = Timetable()
        """When each agent is looked at next, which may be before it is due: see ``_LONGEST_NAP``."""
        self._due: dict[str, float] = {}
        self._due_since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, agent: str) -> bool:
        return agent in self._members

    def members(self) -> Mapping[str, Member]:
        """Every agent, in the order of the settings."""
        return self._members

    def get(self, agent: str) -> Member | None:
        """The agent; None where it is not configured."""
        return self._members.get(agent)

    # --- time ---------------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When ``pop_due`` has something to give; None = never."""
        return self._timetable.next_due()

    def pop_due(self, now: float, wall: float) -> list[Member]:
        """Agents that have become due, the earliest first; those that were only to be looked at are not among them."""
        members: list[Member] = []
        while (at := self._timetable.next_due()) is not None and at <= now:
            (agent,) = self._timetable.pop_due(now, limit=1)
            if self._due[agent] > now:
                self._look_again(self._members[agent], now, wall)
            else:
                self._due_since[agent] = self._due.pop(agent)
                members.append(self._members[agent])
        return members

    def due_of(self, agent: str) -> float | None:
        """When the agent is due; in the past when it has come up and is not done. None = never."""
        since = self._due_since.get(agent)
        return self._due.get(agent) if since is None else since

    def is_due(self, agent: str) -> bool:
        """Whether it has come up and is not done."""
        return agent in self._due_since

    def done(self, agent: str, now: float, wall: float) -> None:
        """The agent has had its beat, or there was to be none; the next one is an interval after that was due."""
        since, member = self._due_since.pop(agent, None), self._members.get(agent)
        if since is not None and member is not None:
            due = since + member.every
            self._plan(member, due if due > now else now + member.every, now, wall)

    # --- settings -----------------------------------------------------------------------------------------------------

    def reconfigure(
        self, agents: Mapping[str, HeartbeatSettings], now: float, wall: float, last: Mapping[str, float]
    ) -> None:
        """Other agents, other settings. ``last``: when each had its last beat, in Unix time; others are new.

        Whoever should have beaten long ago does so soon; whose settings are the same keeps its time.
        """
        known, self._members = self._members, {}
        for agent, settings in agents.items():
            member = known.get(agent)
            if member is None or member.settings != settings:
                member = Member.of(agent, settings)
                self._replan(member, now, wall, last.get(agent))
            self._members[agent] = member
        for agent in known.keys() - agents.keys():
            self._drop(agent)

    def _drop(self, agent: str) -> None:
        self._timetable.discard(agent)
        self._due.pop(agent, None)
        self._due_since.pop(agent, None)

    def _replan(self, member: Member, now: float, wall: float, last: float | None) -> None:
        self._drop(member.agent)
        if not member.settings.every:
            return
        since = 0.0 if last is None else max(wall - last, 0.0)  # a clock that was set back makes nobody wait longer
        left = member.every - since
        self._plan(member, now + (left if left > 0 else member.share * _CATCH_UP), now, wall)

    def _plan(self, member: Member, due: float, now: float, wall: float) -> None:
        """Have the agent due at that time, or when its hours begin after that; never where they never do."""
        if not member.settings.every:
            return
        then = wall + (due - now)
        start = member.window.next_start(then)
        if start is None:
            return
        wait = start - then
        if wait > 0:
            wait += _stagger(member)
        self._set(member.agent, due + wait, due + min(wait, _LONGEST_NAP))

    def _look_again(self, member: Member, now: float, wall: float) -> None:
        """Plan a wait for its hours by the calendar's clock of now, which may have been set; its interval goes on."""
        start = member.window.next_start(wall)
        if start is None:
            self._drop(member.agent)
            return
        wait = start - wall + _stagger(member)
        if start <= wall:  # they have begun: it is within its stagger, or the clock was set
            wait = min(wait, self._due[member.agent] - now)
        self._set(member.agent, now + wait, now + min(wait, _LONGEST_NAP))

    def _set(self, agent: str, due: float, look_at: float) -> None:
        self._due[agent] = _ticks(due)
        self._timetable.set(agent, _ticks(look_at))


def _stagger(member: Member) -> float:
    return member.share * _STAGGER * member.every


def _ticks(due: float) -> float:
    return math.ceil(due / _TICK) * _TICK
