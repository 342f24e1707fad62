"""When agents beat by the clock: jittered intervals and active hours. Pure.

``now`` is monotonic, ``wall`` Unix time, both in seconds. A due agent stays due until ``mark_done``: a beat that waits
or is retried does not advance the schedule.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from hashlib import blake2b

import msgspec

from errors import UsageError
from heartbeat.cron.schedule import offset_change, utc_offset, zone_named
from heartbeat.settings import HeartbeatSettings
from heartbeat.wake import BeatTarget
from router.keys import main_session_key
from wire.timers import KeyedTimers

_JITTER = 0.1


def jittered(every: float, agent: str) -> float:
    """The interval of this agent, in the unit of ``every``: within 10 % of it, and the same one each time."""
    number = int.from_bytes(blake2b(agent.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return every * (1 - _JITTER + 2 * _JITTER * number / (2**64 - 1))


_DAY = 86400
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_MAX_QUOTED = 64
_MAX_STEPS = 8
"""One for the start, one for each change of the clock on the way; real zones have at most one in a day."""


class ActiveWindow(msgspec.Struct, frozen=True, kw_only=True):
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
        now = datetime.fromtimestamp(wall, UTC).astimezone(self.zone)
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
        for _ in range(_MAX_STEPS):
            if self.is_active(at):
                return at
            at = self._next_candidate(math.floor(at))
        return None

    def _next_candidate(self, at: int) -> int:
        """When the clock shows ``start`` next, or when it is changed, if that is earlier."""
        offset = utc_offset(at, self.zone)
        there = at + (self.start - at - int(offset.total_seconds())) % _DAY
        return there if utc_offset(there, self.zone) == offset else offset_change(at, there, self.zone)


ALWAYS_ACTIVE = ActiveWindow()
"""What holds where no hours are set."""


def parse_active_hours(start: str, end: str, tz: str = "") -> ActiveWindow:
    """The window of these settings: ``"HH:MM"`` each, ``end`` also ``"24:00"``; ``tz`` an IANA name, or empty: local.

    Raises nothing: what is not understood opens the window altogether, with a ``warning``.
    """
    try:
        return _parse_window(start, end, tz)
    except UsageError as exc:
        return ActiveWindow(warning=f"active_hours.{exc}; until that is mended the heartbeat is active at any hour")


def hours_problem(start: str, end: str, tz: str = "") -> str | None:
    """What of these settings cannot be understood: the name of one, and why; None = nothing."""
    try:
        _parse_window(start, end, tz)
    except UsageError as exc:
        return exc.message
    return None


def _parse_window(start: str, end: str, tz: str) -> ActiveWindow:
    return ActiveWindow(
        start=_parse_time_of_day("start", start, "23:59"),
        end=_parse_time_of_day("end", end, "24:00"),
        zone=zone_named(tz.strip(), UTC) if tz.strip() else None,
    )


def _parse_time_of_day(name: str, text: str, latest: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None or int(found[2]) > 59 or f"{int(found[1]):02}:{found[2]}" > latest:
        shown = repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")
        raise UsageError(f'{name} = {shown} is no time of day; write one from "00:00" to "{latest}"')
    return int(found[1]) * 3600 + int(found[2]) * 60


_TICK = 1.0
"""Seconds; agents are due on whole ticks, so that thousands cost few wake-ups a second."""
_CATCH_UP_SPREAD = 60.0
"""Seconds over which agents that became due during downtime are spread."""
_MAX_SLEEP = 3600.0
"""The wall clock may be set, so a wait for active hours is re-evaluated this often."""
_STAGGER = 0.1
"""Part of the interval over which agents with the same active hours are spread."""


class AgentSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's schedule. ``every``: its jittered interval; ``offset``: its place from 0 to 1 among the others."""

    agent: str
    main_target: BeatTarget
    settings: HeartbeatSettings
    window: ActiveWindow
    every: float
    offset: float

    @classmethod
    def of(cls, agent: str, settings: HeartbeatSettings) -> "AgentSchedule":
        """Build it from settings. ``window.warning`` reports invalid active hours."""
        hours = settings.active_hours
        return cls(
            agent=agent,
            main_target=BeatTarget(agent, main_session_key(agent)),
            settings=settings,
            window=ALWAYS_ACTIVE if hours is None else parse_active_hours(hours.start, hours.end, hours.tz),
            every=jittered(settings.every, agent),
            offset=(jittered(1.0, agent) - 0.9) / 0.2,
        )


class BeatSchedule:
    """All agents with heartbeat settings, also disabled ones. Every step costs O(log n)."""

    def __init__(self) -> None:
        self._agents: dict[str, AgentSchedule] = {}
        self._timers: KeyedTimers[str] = KeyedTimers()
        """When each agent is re-evaluated next, at most ``_MAX_SLEEP`` before it is due."""
        self._due: dict[str, float] = {}
        self._due_since: dict[str, float] = {}

    def agents(self) -> Mapping[str, AgentSchedule]:
        """Every agent, in the order of the settings."""
        return self._agents

    def get(self, agent: str) -> AgentSchedule | None:
        """The agent; None where it is not configured."""
        return self._agents.get(agent)

    def next_due(self) -> float | None:
        """When to call ``pop_due``; None = never."""
        return self._timers.next_due()

    def pop_due(self, now: float, wall: float) -> list[AgentSchedule]:
        """Agents that are due now, the earliest first; others are re-evaluated."""
        members: list[AgentSchedule] = []
        while (at := self._timers.next_due()) is not None and at <= now:
            (agent,) = self._timers.pop_due(now, limit=1)
            if self._due[agent] > now:
                self._recheck_hours(self._agents[agent], now, wall)
            else:
                self._due_since[agent] = self._due.pop(agent)
                members.append(self._agents[agent])
        return members

    def due_of(self, agent: str) -> float | None:
        """When the agent is due; in the past until ``mark_done``. None = never."""
        since = self._due_since.get(agent)
        return self._due.get(agent) if since is None else since

    def is_due(self, agent: str) -> bool:
        """Whether the agent is due and not done."""
        return agent in self._due_since

    def mark_done(self, agent: str, now: float, wall: float) -> None:
        """End the due beat; the next one is due an interval after this one was."""
        since, member = self._due_since.pop(agent, None), self._agents.get(agent)
        if since is not None and member is not None:
            due = since + member.every
            self._plan(member, due if due > now else now + member.every, now, wall)

    def reconfigure(
        self, agents: Mapping[str, HeartbeatSettings], now: float, wall: float, last: Mapping[str, float]
    ) -> None:
        """Apply other settings. ``last``: the Unix time of each agent's last beat.

        Overdue agents beat soon; agents with the same settings keep their time.
        """
        known, self._agents = self._agents, {}
        for agent, settings in agents.items():
            member = known.get(agent)
            if member is None or member.settings != settings:
                member = AgentSchedule.of(agent, settings)
                self._replan(member, now, wall, last.get(agent))
            self._agents[agent] = member
        for agent in known.keys() - agents.keys():
            self._drop(agent)

    def _drop(self, agent: str) -> None:
        self._timers.discard(agent)
        self._due.pop(agent, None)
        self._due_since.pop(agent, None)

    def _replan(self, member: AgentSchedule, now: float, wall: float, last: float | None) -> None:
        self._drop(member.agent)
        if not member.settings.every:
            return
        since = 0.0 if last is None else max(wall - last, 0.0)  # a clock set back delays no beat
        left = member.every - since
        self._plan(member, now + (left if left > 0 else member.offset * _CATCH_UP_SPREAD), now, wall)

    def _plan(self, member: AgentSchedule, due: float, now: float, wall: float) -> None:
        """Make the agent due then, or when its active hours start next; never if they never do."""
        if not member.settings.every:
            return
        then = wall + (due - now)
        start = member.window.next_start(then)
        if start is None:
            return
        wait = start - then
        if wait > 0:
            wait += _stagger(member)
        self._set(member.agent, due + wait, due + min(wait, _MAX_SLEEP))

    def _recheck_hours(self, member: AgentSchedule, now: float, wall: float) -> None:
        """Plan the wait for active hours again by the current wall clock; the interval continues."""
        start = member.window.next_start(wall)
        if start is None:
            self._drop(member.agent)
            return
        wait = start - wall + _stagger(member)
        if start <= wall:  # within the stagger, or the clock was set
            wait = min(wait, self._due[member.agent] - now)
        self._set(member.agent, now + wait, now + min(wait, _MAX_SLEEP))

    def _set(self, agent: str, due: float, look_at: float) -> None:
        self._due[agent] = _round_to_tick(due)
        self._timers.set(agent, _round_to_tick(look_at))


def _stagger(member: AgentSchedule) -> float:
    return member.offset * _STAGGER * member.every


def _round_to_tick(due: float) -> float:
    return math.ceil(due / _TICK) * _TICK
