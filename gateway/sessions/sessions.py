"""The sessions that the gateway knows: a bounded table of settings and transcripts, persisted in the store."""

import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from errors import PoolSaturated, UsageError
from gateway.events import EventBus
from gateway.hook_types import SessionLifecycle
from gateway.hooks import HookRunner
from gateway.sessions.session_entry import SessionEntry, SessionStatus, entry_of
from gateway.settings import CurrentSettings
from pool import Pool
from pool.stimuli import SessionKnown
from router.keys import format_session_key, parse_session_key
from router.source import MessageSource
from rpc.data_paths import DataPaths
from store.records import RunKey, SessionRow
from store.store import Store
from wire.events import EventType


class SessionTable:
    """All sessions by key, the one used longest ago first. No method looks at more than the busy ones.

    The book is full at ``gateway.sessions``: then a new session makes it forget one that is doing nothing, of those
    without a transcript the one used longest ago, and only where there is none, of those with one.
    """

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings
        self._without_transcript: OrderedDict[str, SessionEntry] = OrderedDict()
        self._with_transcript: OrderedDict[str, SessionEntry] = OrderedDict()
        """Those with a transcript."""

    def __len__(self) -> int:
        return len(self._without_transcript) + len(self._with_transcript)

    def __iter__(self) -> Iterator[SessionEntry]:
        yield from self._without_transcript.values()
        yield from self._with_transcript.values()

    def __contains__(self, key: str) -> bool:
        return key in self._without_transcript or key in self._with_transcript

    def get(self, key: str) -> SessionEntry | None:
        """The session of this key, if it is remembered. Looking is no use of it."""
        return self._without_transcript.get(key) or self._with_transcript.get(key)

    def use(self, key: str, agent: str, role: str, *, wall_now: float) -> tuple[SessionEntry, list[SessionEntry]]:
        """The session of this key, made if need be, as the one used last; with those that were forgotten for it.

        ``agent`` and ``role`` become the session's. Raises PoolSaturated when the book is full of busy sessions.
        """
        entry = self.get(key)
        forgotten: list[SessionEntry] = []
        if entry is None:
            forgotten = self._make_room()
            entry = SessionEntry(key=key, agent="", role="", transcript=None, created_at=wall_now, updated_at=wall_now)
            self._without_transcript[key] = entry
        entry.agent, entry.role, entry.updated_at = sys.intern(agent), sys.intern(role), wall_now
        (self._without_transcript if entry.transcript is None else self._with_transcript).move_to_end(key)
        return entry, forgotten

    def set_transcript(self, key: str, transcript: str | None) -> SessionEntry | None:
        """The session's conversation is in this file from now on; None = in none yet. No-op for an unknown session."""
        entry = self._pop(key)
        if entry is not None:
            entry.transcript = transcript
            self._table_of(entry)[key] = entry
        return entry

    def _pop(self, key: str) -> SessionEntry | None:
        return self._without_transcript.pop(key, None) or self._with_transcript.pop(key, None)

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
            self._table_of(entry)[row.key] = entry
        return damaged

    def _table_of(self, entry: SessionEntry) -> OrderedDict[str, SessionEntry]:
        return self._without_transcript if entry.transcript is None else self._with_transcript

    def _make_room(self) -> list[SessionEntry]:
        forgotten: list[SessionEntry] = []
        while len(self) >= self._settings.value.sessions:
            entry = _pop_idle(self._without_transcript) or _pop_idle(self._with_transcript)
            if entry is None:
                raise PoolSaturated(
                    f"{len(self)} sessions are busy, which is the limit (gateway.sessions); try again later",
                    retry_after=1.0,
                )
            forgotten.append(entry)
        return forgotten


def _pop_idle(entries: OrderedDict[str, SessionEntry]) -> SessionEntry | None:
    """Remove the one used longest ago that does nothing; busy ones in its way are in use and go to the end."""
    for _ in range(len(entries)):
        key, entry = next(iter(entries.items()))
        if entry.status is SessionStatus.READY:
            del entries[key]
            return entry
        entries.move_to_end(key)
    return None


class Sessions(SessionTable):
    """All sessions by key. Every change is written behind; what a run needs is flushed with the run's own steps."""

    def __init__(
        self,
        settings: CurrentSettings,
        store: Store,
        bus: EventBus,
        pool: Pool,
        *,
        hooks: HookRunner,
        start_soon: Callable[..., None],
        data_dir: Path,
        is_busy: Callable[[str], bool] = lambda _session: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``is_busy``: whether a run of the session is running or waiting."""
        super().__init__(settings)
        self._is_busy = is_busy
        self._store = store
        self._bus = bus
        self._pool = pool
        self._hooks = hooks
        self.paths = DataPaths(data_dir)
        self._start_soon = start_soon
        self._clock = clock

    def load(self, rows: Iterable[SessionRow]) -> list[str]:
        """Take over what the store held; the pool learns which conversation is in which file.

        Returns the keys of those whose settings were damaged and are lost.
        """
        damaged = super().load(rows)
        for entry in self:
            kept = entry.transcript, entry.cwd
            entry.transcript, entry.cwd = self.paths.used(entry.transcript), self.paths.used(entry.cwd)
            if kept != (self.paths.stored(entry.transcript), self.paths.stored(entry.cwd)):
                self.save(entry)  # an older version wrote it
            if entry.transcript is not None:
                self._pool.submit(SessionKnown(entry.key, entry.transcript))
                if not entry.unwritten:
                    self._pool.known_transcripts.add(entry.transcript)
        return damaged

    def without_transcript(self) -> list[str]:
        """The keys of those whose transcript is missing. Reads the names in each directory of transcripts."""
        places: dict[str, set[str]] = {}
        missing: list[str] = []
        for entry in self._with_transcript.values():
            place, name = os.path.split(entry.transcript or "")
            if place not in places:
                places[place] = _names_in(place)
            if name not in places[place] and not entry.unwritten:
                missing.append(entry.key)
        return missing

    def resolve(self, text: str, agent: str | None, role: str | None, *, default: str) -> tuple[str, str, str]:
        """The session that a key means, in its one spelling, with the agent and the role that it is to have.

        Those that are named, else the key's own, else those it has had; a new session has the ``default`` agent.
        Raises UsageError for an invalid key, and where the session has, or is about to have, a conversation with
        another agent.
        """
        session, known = text, self.get(text)
        if known is None or ":" in text:  # only a structured key has other spellings, or names an agent
            key = parse_session_key(text)
            session = format_session_key(key)
            agent, known = agent or getattr(key, "agent", None), self.get(session)
        agent = agent or (known.agent if known else default)
        self._check_agent(session, known, agent)
        return session, agent, role or (known.role if known and known.agent == agent else "default")

    def _check_agent(self, key: str, known: SessionEntry | None, agent: str) -> None:
        """Every door comes through here: an agent that cannot read another's transcript would still write into it."""
        if known is None or known.agent == agent:
            return
        if known.transcript is not None or self._pool.has_session(key) or self._is_busy(key):
            raise UsageError(
                f"session {key} is a conversation with agent {known.agent!r}; to ask {agent!r}, name another session, "
                f"or begin this one again first (pool sessions reset {key})",
                session=key,
            )

    def ensure(
        self,
        key: str,
        agent: str,
        role: str,
        *,
        source: MessageSource | None,
        run: RunKey | None,
        from_session: str | None = None,
    ) -> SessionEntry:
        """A message for the session has come (``run``), or a hold: make it known, as this agent's in this role.

        A new session works in the directory that was chosen for ``from_session``, whose agent has opened it.

        Raises PoolSaturated; UsageError as ``resolve``.
        """
        known = self.get(key)
        self._check_agent(key, known, agent)
        entry, forgotten = self.use(key, agent, role, wall_now=self._clock())
        for old in forgotten:
            self._store.delete_session(old.key)
        giver = self.get(from_session) if known is None and from_session is not None else None
        if giver is not None:
            entry.cwd = giver.cwd
        if source is not None:
            entry.source = source
        if run is not None:
            entry.last_principal, _, entry.last_run = run
        self.save(entry)
        if known is None and "session:start" in self._hooks.table:
            life = SessionLifecycle(session=key, agent=agent, role=role, reason="first message" if run else "held")
            self._start_soon(self._hooks.notify, "session:start", life)
        return entry

    def mark_active(self, key: str) -> None:
        """Count a known session as used now."""
        entry = self.get(key)
        if entry is not None:
            self.use(key, entry.agent, entry.role, wall_now=self._clock())
            self.save(entry)

    def save(self, entry: SessionEntry) -> None:
        """Write a session whose fields were changed."""
        self._store.put_session(entry.row(self.paths.stored))

    def clear_last_run(self, key: str) -> None:
        """Record that the session's conversation is not that of its latest run."""
        entry = self.get(key)
        if entry is not None:
            entry.last_run = entry.last_principal = None
            self.save(entry)

    def record_transcript(self, key: str) -> None:
        """Write down which file the session's conversation is in, and whether there is one, where that is news."""
        transcript = self._pool.transcript_of(key)
        entry = self.get(key)
        if entry is None or transcript is None:
            return
        unwritten = transcript not in self._pool.known_transcripts
        if (entry.transcript, entry.unwritten) != (transcript, unwritten):
            self.set_transcript(key, transcript)
            entry.unwritten = unwritten
            self.save(entry)

    def drop_transcript(self, key: str) -> str | None:
        """The session begins a new conversation; returns the file of the old one."""
        entry = self.get(key)
        old = entry.transcript if entry is not None else None
        entry = self.set_transcript(key, None)
        if entry is not None:
            entry.context = None
            self.save(entry)
        return old

    def remove(self, key: str) -> SessionEntry | None:
        """Remove the session; returns what it was."""
        entry = self._pop(key)
        if entry is not None:
            self._store.delete_session(key)
        return entry

    def set_status(self, entry: SessionEntry | None, status: SessionStatus, reason: str) -> None:
        """Tell what the session is doing now, where that has changed."""
        if entry is None or entry.status is status:
            return
        was, entry.status = entry.status, status
        self._bus.publish(entry.key, EventType.STATE_CHANGED, {"from": was, "to": status, "reason": reason})


def _names_in(directory: str) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208 - names, not paths: there may be many
    except OSError:
        return set()
