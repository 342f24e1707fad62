"""One connection as the methods of the protocol see it: its presence, its event subscriptions, a request of it."""

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from itertools import islice
from typing import Any

import msgspec

from doors.http.access import TokenIdentity
from doors.http.services import HttpCaller, HttpServices
from doors.websocket.frames import milliseconds
from doors.websocket.handshake import ROLE, HandshakeResult
from errors import PoolSaturated
from wire.messages import omit_none

MOST_ENTRIES = 500


def presence_entry(admission: HandshakeResult, connected_at: float) -> dict[str, Any]:
    """The entry of one connection. A client's facts about itself are unchecked, and bounded."""
    client = admission.client
    host = client.display_name or client.id or "a client"
    mode = client.mode or ROLE
    return {
        "host": host,
        "mode": mode,
        "reason": "connect",
        "text": f"{host} ({mode})",
        "ts": milliseconds(connected_at),
        "roles": [ROLE],
        "scopes": admission.scopes,
        **omit_none(
            version=client.version,
            platform=client.platform,
            deviceFamily=client.device_family,
            modelIdentifier=client.model_identifier,
            instanceId=client.instance_id,
        ),
    }


def presence_entries(
    host: str, version: str, started_at: float, connected: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The supervisor itself, then its connections, the oldest first."""
    ourselves = {
        "host": host,
        "mode": "gateway",
        "version": version,
        "reason": "self",
        "text": f"pool {version}",
        "ts": milliseconds(started_at),
    }
    return [ourselves, *islice(connected, MOST_ENTRIES)]


MOST_SESSIONS = 256
"""Sessions whose messages one connection may follow."""


class Audience(Enum):
    """The connections that get an event."""

    ALL = auto()
    APPROVERS = auto()
    """Connections that may approve."""
    SESSIONS = auto()
    """Those that follow the list of sessions."""
    MESSAGES = auto()
    """Those that follow the messages of the event's session."""


class SocketSubscriptions:
    """The subscriptions of one connection."""

    def __init__(self) -> None:
        self.approves = False
        """Whether it may approve tool calls."""
        self.sessions = False
        """Whether it follows the list of sessions."""
        self._messages: set[str] = set()

    def subscribe_messages(self, session: str) -> None:
        """Add a session's messages. Raises PoolSaturated."""
        if session not in self._messages and len(self._messages) >= MOST_SESSIONS:
            raise PoolSaturated(
                f"this connection follows the messages of {MOST_SESSIONS} sessions already, which is the limit"
            )
        self._messages.add(session)

    def unsubscribe_messages(self, session: str) -> None:
        """Remove them."""
        self._messages.discard(session)

    def includes(self, audience: Audience, session: str) -> bool:
        """Whether this connection gets the event."""
        if audience is Audience.MESSAGES:
            return session in self._messages
        return {Audience.ALL: True, Audience.APPROVERS: self.approves, Audience.SESSIONS: self.sessions}[audience]


Params = dict[str, Any]


class NoMethodParams(msgspec.Struct):
    """A method without parameters."""


class MethodRequest:
    """One request of a WebSocket as the protocol's methods get it.

    ``presence``: the entries of all connections; ``send_interim`` sends an answer before the last one; ``ignored``:
    parameters that have no effect here.
    """

    def __init__(
        self,
        services: HttpServices,
        identity: TokenIdentity,
        request_id: str,
        *,
        presence: Callable[[], list[dict[str, Any]]],
        subscriptions: SocketSubscriptions,
        send_interim: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.services = services
        self.presence = presence
        self.subscriptions = subscriptions
        self.identity = identity
        self.ignored: list[str] = []
        self.send_interim = send_interim
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
