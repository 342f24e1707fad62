"""The sessions as the gateway keeps them: remembered, written to the store, their state told as events."""

import time
from collections.abc import Callable, Iterable, Iterator

from errors import UsageError
from gateway.events import EventBus
from gateway.hook_runner import HookRunner
from gateway.hooks import SessionLife
from gateway.session_book import SessionBook, SessionEntry, SessionStatus
from gateway.settings import GatewaySettings
from pool import Pool
from pool.stimuli import SessionKnown
from router.keys import format_session_key, parse_session_key
from router.source import MessageSource
from store import Store
from store.records import SessionRow
from wire.envelope import Channel

__all__ = ["Sessions"]


class Sessions:
    """All sessions by key. Every change is written behind; what a run needs is flushed with the run's own steps."""

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        bus: EventBus,
        pool: Pool,
        *,
        hooks: HookRunner,
        start_soon: Callable[..., None],
        is_busy: Callable[[str], bool] = lambda _session: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``is_busy``: whether a run of the session is running or waiting."""
        self._book = SessionBook(settings)
        self._is_busy = is_busy
        self._store = store
        self._bus = bus
        self._pool = pool
        self._hooks = hooks
        self._start_soon = start_soon
        self._clock = clock

    def __iter__(self) -> Iterator[SessionEntry]:
        return iter(self._book)

    def __len__(self) -> int:
        return len(self._book)

    def __contains__(self, key: str) -> bool:
        return key in self._book

    def load(self, rows: Iterable[SessionRow]) -> list[str]:
        """Take over what the store held; the pool learns which conversation is in which file.

        Returns the keys of those whose settings were damaged and are lost.
        """
        damaged = self._book.load(rows)
        for entry in self._book:
            if entry.transcript is not None:
                self._pool.tell(SessionKnown(entry.key, entry.transcript))
        return damaged

    def reconfigure(self, settings: GatewaySettings) -> None:
        """Another limit."""
        self._book.reconfigure(settings)

    def get(self, key: str) -> SessionEntry | None:
        """The session of this key, if it is known."""
        return self._book.get(key)

    def whose(self, text: str, agent: str | None, role: str | None, *, default: str) -> tuple[str, str, str]:
        """The session that a key means, in its one spelling, with the agent and the role that it is to have.

        Those that are named, else the key's own, else those it has had; a new session has the ``default`` agent.
        Raises UsageError for an invalid key, and as ``check_agent``.
        """
        key = parse_session_key(text)
        session = format_session_key(key)
        known = self.get(session)
        agent = agent or getattr(key, "agent", None) or (known.agent if known else default)
        self.check_agent(session, agent)
        return session, agent, role or (known.role if known and known.agent == agent else "default")

    def check_agent(self, key: str, agent: str) -> None:
        """Raise UsageError where the session has, or is about to have, a conversation with another agent.

        Every door comes through here: an agent that cannot read another's transcript would still write into it.
        """
        known = self.get(key)
        if known is None or known.agent == agent:
            return
        if known.transcript is not None or self._pool.knows(key) or self._is_busy(key):
            raise UsageError(
                f"session {key} is a conversation with agent {known.agent!r}; to ask {agent!r}, name another session, "
                f"or begin this one again first (pool sessions reset {key})",
                session=key,
            )

    def use(self, key: str, agent: str, role: str, *, source: MessageSource | None, run: str | None) -> SessionEntry:
        """A message for the session has come (``run``), or a hold: make it known, as this agent's in this role.

        Raises PoolSaturated; UsageError as ``check_agent``.
        """
        self.check_agent(key, agent)
        is_new = key not in self._book
        entry, forgotten = self._book.use(key, agent, role, wall_now=self._clock())
        for old in forgotten:
            self._store.delete_session(old.key)
        if source is not None:
            entry.source = source
        if run is not None:
            entry.last_run = run
        self.save(entry)
        if is_new and self._hooks.has("session:start"):
            life = SessionLife(session=key, agent=agent, role=role, reason="first message" if run else "held")
            self._start_soon(self._hooks.notify, "session:start", life)
        return entry

    def touch(self, key: str) -> None:
        """A known session has said something by itself: that is activity."""
        entry = self._book.get(key)
        if entry is not None:
            self._book.use(key, entry.agent, entry.role, wall_now=self._clock())
            self.save(entry)

    def save(self, entry: SessionEntry) -> None:
        """Write a session whose fields were changed."""
        self._store.put_session(entry.row())

    def note_move(self, key: str) -> None:
        """The session has a conversation that somebody has chosen: it is not the one of its latest run."""
        entry = self._book.get(key)
        if entry is not None:
            entry.last_run = None
            self.save(entry)

    def note_transcript(self, key: str) -> None:
        """Write down which file the session's conversation is in, where that is news."""
        transcript = self._pool.transcript_of(key)
        entry = self._book.get(key)
        if entry is not None and transcript is not None and entry.transcript != transcript:
            self._book.set_transcript(key, transcript)
            self.save(entry)

    def drop_transcript(self, key: str) -> str | None:
        """The session begins a new conversation; returns the file of the old one."""
        entry = self._book.get(key)
        old = entry.transcript if entry is not None else None
        entry = self._book.set_transcript(key, None)
        if entry is not None:
            self.save(entry)
        return old

    def forget(self, key: str) -> SessionEntry | None:
        """Remove the session; returns what it was."""
        entry = self._book.forget(key)
        if entry is not None:
            self._store.delete_session(key)
        return entry

    def set_status(self, key: str, status: SessionStatus, reason: str) -> None:
        """Tell what the session is doing now, where that has changed."""
        entry = self._book.get(key)
        if entry is None or entry.status is status:
            return
        was, entry.status = entry.status, status
        self._bus.publish(key, Channel.MONITOR, "state_changed", {"from": was, "to": status, "reason": reason})
