"""One request of a peer, as the methods of the protocol see it."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from doors.http.access import Identity
from doors.http.caller import HttpCaller
from doors.http.services import Services
from doors.websocket.subscriptions import Subscriptions

__all__ = ["Params", "Request", "RequestContext"]

Params = dict[str, Any]


class RequestContext(NamedTuple):
    """What the requests of one connection share. ``presence``: the entries of all connections."""

    services: Services
    presence: Callable[[], list[dict[str, Any]]]
    subscriptions: Subscriptions


class Request:
    """``say`` sends an answer before the last one. ``ignored``: parameters that have no effect here."""

    def __init__(
        self, context: RequestContext, identity: Identity, request_id: str, say: Callable[[Any], Awaitable[None]]
    ) -> None:
        self.services, self.presence, self.subscriptions = context
        self.identity = identity
        self.ignored: list[str] = []
        self.say = say
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
