"""Sessions that a front end opens in a directory of its choice."""

import os
import secrets
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from errors import UsageError
from gateway.events import EventBus
from gateway.requests import OpenSessionRequest
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.options import SessionOptions, session_options
from gateway.sessions.session_entry import SessionEntry
from gateway.sessions.sessions import Sessions
from gateway.turns.approvals import PendingCall, PendingPermissions
from pool import Pool
from pool.stimuli import ForgetSession, SessionKnown
from profiles import AgentSettings
from router.keys import normalize_session_key
from router.workspaces import check_directory
from store.store import Store
from wire.mcp_servers import declared_servers
from wire.messages import ContextSize

_KEY_PREFIX = "acp-"
"""Of the keys that are made here."""
_KEY_CHARS = 12
_ALPHABET = string.ascii_lowercase + string.digits


class OpenedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as its front end has to know it."""

    session: str
    agent: str
    role: str
    cwd: str
    options: SessionOptions
    is_new: bool
    context: ContextSize | None
    head: int
    """The seq of the last event before this answer."""
    pending: list[PendingCall]
    """The calls that wait for approval there."""
    ignored: list[str]
    """What was given and has no effect: ``mcp_servers``, where the agent takes none."""


class SessionOpenings:
    """Opens sessions; each is in the store when its front end gets it."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        profile_cache: ProfileCache,
        pool: Pool,
        store: Store,
        bus: EventBus,
        permissions: PendingPermissions,
        is_busy: Callable[[str], bool],
        data_dir: Path,
    ) -> None:
        self._sessions = sessions
        self._profile_cache = profile_cache
        self._pool = pool
        self._store = store
        self._bus = bus
        self._permissions = permissions
        self._is_busy = is_busy
        self._data_dir = data_dir

    async def open(self, request: OpenSessionRequest) -> OpenedSession:
        """A session that works in ``cwd``, durable before this returns; made unless it ``exists``.

        Raises PoolSaturated; UsageError: a bad directory, an unknown agent or role, too large MCP servers, an unknown
        session where it must exist, and (with ``cwd`` in its details) one whose conversation is in another directory.
        """
        cwd = check_directory(request.cwd, self._data_dir)
        default = self._profile_cache.parts.router.default_agent
        name = request.session or self._new_key()
        key, agent, role = self._sessions.resolve(name, request.agent, request.role, default=default)
        known = self._sessions.get(key)
        if request.exists and known is None:
            raise UsageError(f"there is no session {key!r}", session=key)
        self._profile_cache.check(agent, role)
        servers = _declared(request)
        if known is not None:
            self._check_directory(known, cwd)
        entry = self._sessions.ensure(key, agent, role, source=None, run=None)
        if not self._has_conversation(entry):
            entry.cwd = cwd
            self._sessions.save(entry)
        takes_servers = self._declare(entry, servers)
        await self._store.flush()
        return OpenedSession(
            session=key,
            agent=agent,
            role=role,
            cwd=cwd,
            options=self._options(entry),
            is_new=known is None,
            context=entry.known_context(self._pool.report_of(key)),
            head=self._bus.head,
            pending=self._permissions.pending(key),
            ignored=["mcp_servers"] if servers and not takes_servers else [],
        )

    def options(self, key: str) -> SessionOptions:
        """What can be set in a session. Raises UsageError for an unknown one."""
        entry = self._sessions.get(normalize_session_key(key))
        if entry is None:
            raise UsageError(f"there is no session {key!r}", session=key)
        return self._options(entry)

    def _options(self, entry: SessionEntry) -> SessionOptions:
        definition = self._profile_cache.parts.profiles.agents.get(entry.agent, AgentSettings())
        return session_options(entry, definition, self._pool.agent_records.find(entry.agent))

    def _declare(self, entry: SessionEntry, servers: list[dict[str, Any]] | None) -> bool:
        """Keep the session's MCP servers; whether its agent takes any."""
        is_taken = self._profile_cache.parts.profiles.traits_of(entry.agent).takes_mcp_servers
        if servers is not None and self._pool.declared_servers.declare(entry.key, servers if is_taken else []):
            self._unbind(entry.key)
        return is_taken

    def _unbind(self, key: str) -> None:
        """Have the next turn give the conversation to a worker again: agents connect servers at a begin or a load.

        Where something runs, also in the background, the session stays where it is until it loses its worker.
        """
        transcript = self._pool.transcript_of(key)
        if transcript is None or not self._pool.is_quiescent(key):
            return
        try:
            self._pool.submit(ForgetSession(key))
        except UsageError:
            return  # a worker is being prepared for a request that has left
        self._pool.submit(SessionKnown(key, transcript))

    def _new_key(self) -> str:
        while True:
            key = _KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(_KEY_CHARS))
            if key not in self._sessions:
                return key

    def _check_directory(self, known: SessionEntry, cwd: str) -> None:
        """Raise UsageError where the session has, or is about to have, its conversation in another directory."""
        place = self._profile_cache.directory_of(known)
        if place is None or os.path.realpath(place) == cwd:
            return
        if not self._has_conversation(known):
            return  # nothing binds it yet
        raise UsageError(
            f"session {known.key} works in {place}, not in {cwd}; open it there, or begin another one",
            session=known.key,
            cwd=place,
        )

    def _has_conversation(self, entry: SessionEntry) -> bool:
        return entry.transcript is not None or self._pool.has_session(entry.key) or self._is_busy(entry.key)


def _declared(request: OpenSessionRequest) -> list[dict[str, Any]] | None:
    if request.mcp_servers is None:
        return None
    try:
        return declared_servers(request.mcp_servers)
    except ValueError as exc:
        raise UsageError(f"mcp_servers: {exc}") from exc
