"""The MCP servers that front ends have declared for their sessions: in memory alone, since they may hold secrets."""

from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec

_MAX_BYTES = 16 * 1024 * 1024


class _Declared(NamedTuple):
    servers: list[dict[str, Any]]
    size: int


class DeclaredServers:
    """By session. Above ``max_bytes`` (as JSON) those of the session that declared them longest ago are dropped."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_session: OrderedDict[str, _Declared] = OrderedDict()

    def of(self, session: str) -> list[dict[str, Any]]:
        """Those of a session, in the words of the Agent Client Protocol."""
        found = self._by_session.get(session)
        return [] if found is None else found.servers

    def declare(self, session: str, servers: list[dict[str, Any]]) -> bool:
        """A session has these from now on, and no others; whether it had others."""
        is_change = servers != self.of(session)
        self.forget(session)
        if servers:
            declared = self._by_session[session] = _Declared(servers, len(msgspec.json.encode(servers)))
            self._bytes += declared.size
        while self._bytes > self._max_bytes:
            self.forget(next(iter(self._by_session)))
        return is_change

    def forget(self, session: str) -> None:
        """It has none."""
        found = self._by_session.pop(session, None)
        if found is not None:
            self._bytes -= found.size
