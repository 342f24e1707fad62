"""What the gateway remembers of its sessions: who they are, how they are set, where they last spoke; bounded."""

import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from errors import PoolSaturated
from gateway.settings import GatewaySettings, QueueMode
from profiles.settings import ThinkingLevel
from router.source import MessageSource
from store.records import SessionRow

__all__ = ["SessionBook", "SessionEntry", "SessionStatus"]


class SessionStatus(StrEnum):
    """What a session is doing; not kept over a restart, after which nothing is in its turn."""

    READY = "READY"
    WORKING = "WORKING"
    PAUSED = "PAUSED"
    """In a turn that waits for a person's approval."""


class _Memory(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What of a session is kept as JSON in its row's ``data``. ``gc=False``: nothing in here can point back to it."""

    queue_mode: QueueMode | None = None
    """The session's own; None = as the settings say. So for the two that follow: None = as the agent's definition."""
    model: str | None = None
    thinking: ThinkingLevel | None = None
    verbose: bool = False
    """Whether its answers show what the tools do."""
    reasoning: bool = False
    """Whether its answers show what the model thinks."""
    source: MessageSource | None = None
    """The latest message's: where the session last spoke."""
    last_run: str | None = None
    label: str | None = None
    """A name for people, of this session only."""


class SessionEntry(_Memory, kw_only=True, eq=False, gc=False):
    """One session. Times are Unix times in seconds. Its fields may be changed, but ``transcript`` only by the book.

    ``unknown``: fields of ``data`` that a newer version wrote, kept as they are.
    """

    key: str
    agent: str
    role: str
    transcript: str | None
    created_at: float
    updated_at: float
    status: SessionStatus = SessionStatus.READY
    unknown: dict[str, Any] | None = None

    def row(self) -> SessionRow:
        """As the store keeps it."""
        known = {name: getattr(self, name) for name in _FIELDS}
        data = {**(self.unknown or {}), **{name: value for name, value in known.items() if value not in (None, False)}}
        return SessionRow(
            key=self.key,
            agent=self.agent,
            role=self.role,
            transcript=self.transcript,
            created_at=self.created_at,
            updated_at=self.updated_at,
            data=msgspec.json.encode(data),
        )


_FIELDS = {field.name: field.type for field in msgspec.structs.fields(_Memory)}


def entry_of(row: SessionRow) -> SessionEntry:
    """The entry of a row. A field that this version cannot read is kept in ``unknown`` and counts as not set.

    Raises msgspec.DecodeError when the row's ``data`` is no JSON object.
    """
    data = msgspec.json.decode(row.data, type=dict[str, Any])
    known = {name: value for name in _FIELDS if (value := _read(name, data)) is not None}
    unknown = {name: value for name, value in data.items() if name not in known}
    return SessionEntry(
        key=row.key,
        agent=sys.intern(row.agent),  # few names, many sessions
        role=sys.intern(row.role),
        transcript=row.transcript,
        created_at=row.created_at,
        updated_at=row.updated_at,
        unknown=unknown or None,
        **known,
    )


def _read(name: str, data: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(data.get(name), _FIELDS[name])
    except msgspec.ValidationError:
        return None  # the value itself stays in ``unknown``


class SessionBook:
    """All sessions by key, the one used longest ago first. No method looks at more than the busy ones.

    The book is full at ``gateway.sessions``: then a new session makes it forget one that is doing nothing, of those
    without a transcript the one used longest ago, and only where there is none, of those with one.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._most = settings.sessions
        self._bare: OrderedDict[str, SessionEntry] = OrderedDict()
        self._told: OrderedDict[str, SessionEntry] = OrderedDict()
        """Those with a transcript."""

    def __len__(self) -> int:
        return len(self._bare) + len(self._told)

    def __iter__(self) -> Iterator[SessionEntry]:
        yield from self._bare.values()
        yield from self._told.values()

    def __contains__(self, key: str) -> bool:
        return key in self._bare or key in self._told

    def reconfigure(self, settings: GatewaySettings) -> None:
        """Another limit; it holds from the next new session on."""
        self._most = settings.sessions

    def get(self, key: str) -> SessionEntry | None:
        """The session of this key, if it is remembered. Looking is no use of it."""
        return self._bare.get(key) or self._told.get(key)

    def use(self, key: str, agent: str, role: str, *, wall_now: float) -> tuple[SessionEntry, list[SessionEntry]]:
        """The session of this key, made if need be, as the one used last; with those that were forgotten for it.

        ``agent`` and ``role`` become the session's. Raises PoolSaturated when the book is full of busy sessions.
        """
        entry = self.get(key)
        forgotten: list[SessionEntry] = []
        if entry is None:
            forgotten = self._make_room()
            entry = SessionEntry(key=key, agent="", role="", transcript=None, created_at=wall_now, updated_at=wall_now)
            self._bare[key] = entry
        entry.agent, entry.role, entry.updated_at = sys.intern(agent), sys.intern(role), wall_now
        self._place(entry).move_to_end(key)
        return entry, forgotten

    def set_transcript(self, key: str, transcript: str | None) -> SessionEntry | None:
        """The session's conversation is in this file from now on; None = in none yet. No-op for an unknown session."""
        entry = self.forget(key)
        if entry is not None:
            entry.transcript = transcript
            self._place(entry)[key] = entry
        return entry

    def forget(self, key: str) -> SessionEntry | None:
        """Remove a session; returns what it was."""
        return self._bare.pop(key, None) or self._told.pop(key, None)

    def load(self, rows: Iterable[SessionRow]) -> list[str]:
        """Take over what the store held; returns the keys of those whose ``data`` was damaged and is lost.

        No row is left out, whatever the limit is.
        """
        damaged: list[str] = []
        for row in sorted(rows, key=lambda row: row.updated_at):
            try:
                entry = entry_of(row)
            except msgspec.DecodeError:
                damaged.append(row.key)
                entry = entry_of(msgspec.structs.replace(row, data=b"{}"))
            self._place(entry)[row.key] = entry
        return damaged

    def _place(self, entry: SessionEntry) -> OrderedDict[str, SessionEntry]:
        return self._bare if entry.transcript is None else self._told

    def _make_room(self) -> list[SessionEntry]:
        forgotten: list[SessionEntry] = []
        while len(self) >= self._most:
            entry = _take_idle(self._bare) or _take_idle(self._told)
            if entry is None:
                raise PoolSaturated(
                    f"{len(self)} sessions are busy, which is the limit (gateway.sessions); try again later",
                    retry_after=1.0,
                )
            forgotten.append(entry)
        return forgotten


def _take_idle(entries: OrderedDict[str, SessionEntry]) -> SessionEntry | None:
    """Remove the one used longest ago that does nothing; busy ones in its way are in use and go to the end."""
    for _ in range(len(entries)):
        key, entry = next(iter(entries.items()))
        if entry.status is SessionStatus.READY:
            del entries[key]
            return entry
        entries.move_to_end(key)
    return None
