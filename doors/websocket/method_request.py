"""One request of a WebSocket as the protocol's methods get it, and what the requests of a connection share."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from doors.http.access import TokenIdentity
from doors.http.services import HttpCaller, HttpServices
from doors.websocket.peer import SocketSubscriptions

Params = dict[str, Any]


class NoMethodParams(msgspec.Struct):
    """A method without parameters."""


class ConnectionContext(NamedTuple):
    """What the requests of one connection share. ``presence``: the entries of all connections."""

    services: HttpServices
    presence: Callable[[], list[dict[str, Any]]]
    subscriptions: SocketSubscriptions


class MethodRequest:
    """``say`` sends an answer before the last one. ``ignored``: parameters that have no effect here."""

    def __init__(
        self,
        context: ConnectionContext,
        identity: TokenIdentity,
        request_id: str,
        say: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.services, self.presence, self.subscriptions = context
        self.identity = identity
        self.ignored: list[str] = []
        self.send_interim = say
        self._caller = HttpCaller(identity, request_id)

    async def call(self, method: str, params: Params | None = None) -> Any:
        """Run a method of the control socket, whose parameters that are None are left out. Raises PoolError."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return await self.call_with_nulls(method, given)

    async def call_with_nulls(self, method: str, params: Params) -> Any:
        """The same for a method whose parameters give None a meaning."""
        return await self.services.call(method, params, self._caller)

    async def default_agent(self) -> str:
        """Which agent a message is for that names none."""
        agents = await self.call("agents.list")
        return next(str(agent.name) for agent in agents if agent.is_default)

    def with_ignored(self, payload: Params) -> Params:
        """The payload, with what was asked for in vain."""
        return {**payload, "ignored": self.ignored} if self.ignored else payload
