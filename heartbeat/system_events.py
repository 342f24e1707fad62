"""System events: what a session's next turn reports, queued by session. Pure; ``now`` comes in.

An event stays until a turn that was shown it succeeds and acknowledges it by id. Number, size and age of events are
bounded. Results of what the agent started itself (a command, a delegated task) are kept for days.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from itertools import takewhile
from operator import itemgetter

import msgspec


class SystemEventKind(StrEnum):
    """What has happened."""

    EXEC = "exec"
    """A command that ran in the background has ended. Two of them may well say the same."""
    CRON = "cron"
    """A scheduled task has fired."""
    DELEGATE = "delegate"
    """A task that was given to another agent has come to its end."""
    CHANNEL = "channel"
    """Something in a channel besides messages."""
    OTHER = "other"


RESULT_KINDS = (SystemEventKind.EXEC, SystemEventKind.DELEGATE)
"""What comes of something that the agent itself has begun."""


class SystemEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. ``ts`` is Unix time in seconds; ``context`` names what it is about, for programs."""

    id: str
    session: str
    kind: SystemEventKind
    text: str
    ts: float
    context: str | None = None


class SystemEventLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept. Beyond any of these the oldest goes."""

    per_session: int = 20
    sessions: int = 10_000
    """Of the session over it all events go: its oldest is the oldest of all."""
    chars: int = 16_000_000
    """Of the texts of all events together."""
    text: int = 40_000
    """Characters of one text; a longer one is cut."""
    age: float = 3600.0
    """Seconds."""
    age_of_results: float = 7 * 86_400.0
    """The same for ends of background commands and of delegated tasks."""

    def age_of(self, kind: SystemEventKind) -> float:
        """How long an event of the kind is kept, in seconds."""
        return self.age_of_results if kind in RESULT_KINDS else self.age


class SystemEventStats(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at one moment, and what has become of events since the start."""

    pending: int
    sessions: int
    injected: int
    ignored: int
    """Empty, or the same text again."""
    evicted: int
    expired: int


class _SessionEvents(msgspec.Struct):
    """One session's events, the oldest first. ``shown``: the last one that a turn has been shown."""

    events: deque[SystemEvent] = msgspec.field(default_factory=deque)
    shown: str | None = None


class SystemEventQueue:
    """All sessions' events. ``now`` is any clock that only goes forward, in seconds.

    ``pop_changed`` returns the sessions whose events have changed.
    """

    def __init__(self, new_id: Callable[[], str], limits: SystemEventLimits | None = None) -> None:
        """``new_id`` returns an id that is unique across restarts."""
        self._new_id = new_id
        self._limits = limits or SystemEventLimits()
        self._entries: OrderedDict[str, SystemEvent] = OrderedDict()
        """Every event by its id, the oldest first. The first of a plain dict is far behind its gaps."""
        self._expiring: dict[float, OrderedDict[str, float]] = {}
        """When each event expires, by its id, the earliest first; for each age that the limits have."""
        self.by_session: dict[str, _SessionEvents] = {}
        """What is queued; a session without events is not in it."""
        self._changed: dict[str, None] = {}
        self._chars = 0
        self._injected = self._ignored = self._evicted = self._expired = 0

    def inject(
        self, session: str, text: str, *, kind: SystemEventKind, now: float, wall_now: float, context: str | None = None
    ) -> SystemEvent | None:
        """Queue an event; None for an empty text, or the text of the session's last event.

        The end of a command is always new, and so is a text that a turn was shown. ``wall_now`` is Unix time.
        """
        self.gc(now)
        text = _truncated(text.strip(), self._limits.text)
        if not text or (kind is not SystemEventKind.EXEC and self._is_last(session, text)):
            self._ignored += 1
            return None
        self._injected += 1
        event = SystemEvent(id=self._new_id(), session=session, kind=kind, text=text, ts=wall_now, context=context)
        self._changed[session] = None
        self._add(event, now)
        return event

    def restore(self, events: Iterable[SystemEvent], *, now: float, wall_now: float) -> None:
        """Restore kept events, those of a session in their order; expired ones are dropped.

        Call it once, before ``inject``. A clock that was set back makes no event older than it is.
        """
        ages: dict[str, float] = {}
        aged: list[tuple[float, SystemEvent]] = []
        for event in events:
            own = max(wall_now - event.ts, 0.0)
            ages[event.session] = min(own, ages.get(event.session, own))  # no event is older than one that came first
            aged.append((ages[event.session], event))
        for age, event in sorted(aged, key=itemgetter(0), reverse=True):
            if event.id not in self._entries:
                self._add(event, now - age)
        self.gc(now)

    def _is_last(self, session: str, text: str) -> bool:
        pending = self.by_session.get(session)
        if pending is None:
            return False
        last = pending.events[-1]
        return last.text == text and last.id != pending.shown

    def _add(self, event: SystemEvent, since: float) -> None:
        age = self._limits.age_of(event.kind)
        self._entries[event.id] = event
        self._expiring.setdefault(age, OrderedDict())[event.id] = since + age
        self.by_session.setdefault(event.session, _SessionEvents()).events.append(event)
        self._chars += len(event.text)
        self._enforce_limits(event.session)

    def _enforce_limits(self, session: str) -> None:
        limits = self._limits
        crowd = self.by_session[session].events
        if len(crowd) > limits.per_session:
            self._evict([crowd[0]])
        if len(self.by_session) > limits.sessions:
            self._evict(list(self.by_session[self._oldest().session].events))
        while self._chars > limits.chars:
            self._evict([self._oldest()])

    def _oldest(self) -> SystemEvent:
        return next(iter(self._entries.values()))

    def _evict(self, events: Sequence[SystemEvent]) -> None:
        self._evicted += len(events)
        for event in events:
            self._drop(event)

    def peek(self, session: str, now: float) -> list[SystemEvent]:
        """The session's events, the oldest first."""
        self.gc(now)
        pending = self.by_session.get(session)
        return [] if pending is None else list(pending.events)

    def mark_shown(self, session: str, ids: Collection[str]) -> None:
        """A turn was shown these: the same text queued again is new. Unknown ids are ignored."""
        pending = self.by_session.get(session)
        if pending is not None and pending.events[-1].id in ids:
            pending.shown = pending.events[-1].id

    def sessions(self) -> list[str]:
        """Every session with events."""
        return list(self.by_session)

    def next_expiry(self) -> float | None:
        """When the first event expires; None = there is none."""
        first = (next(iter(due.values())) for due in self._expiring.values() if due)
        return min(first, default=None)

    def stats(self) -> SystemEventStats:
        """Figures of this moment."""
        return SystemEventStats(
            pending=len(self._entries),
            sessions=len(self.by_session),
            injected=self._injected,
            ignored=self._ignored,
            evicted=self._evicted,
            expired=self._expired,
        )

    def consume(self, session: str, ids: Collection[str]) -> int:
        """Delete events the session has reported; ids of other sessions and unknown ones are ignored."""
        events = [event for name in ids if (event := self._entries.get(name)) and event.session == session]
        for event in events:
            self._drop(event)
        return len(events)

    def discard(self, session: str, kinds: Collection[SystemEventKind]) -> int:
        """Drop the session's events of these kinds."""
        pending = self.by_session.get(session)
        events = [event for event in pending.events if event.kind in kinds] if pending is not None else []
        for event in events:
            self._drop(event)
        return len(events)

    def gc(self, now: float) -> int:
        """Drop expired events; return their number."""
        old: list[str] = []
        for due in self._expiring.values():
            old += (name for name, _ in takewhile(lambda entry: entry[1] <= now, due.items()))
        for name in old:
            self._drop(self._entries[name])
        self._expired += len(old)
        return len(old)

    def _drop(self, event: SystemEvent) -> None:
        del self._entries[event.id], self._expiring[self._limits.age_of(event.kind)][event.id]
        self._chars -= len(event.text)
        self._changed[event.session] = None
        pending = self.by_session[event.session]
        pending.events.remove(event)
        if not pending.events:
            del self.by_session[event.session]

    def pop_changed(self) -> dict[str, list[SystemEvent]]:
        """The sessions whose events changed since the last call, with their current events.

        A restored event is no change until it is dropped.
        """
        changed, self._changed = self._changed, {}
        return {name: list(self.by_session[name].events) if name in self.by_session else [] for name in changed}


def _truncated(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
