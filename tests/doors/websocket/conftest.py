"""What the tests of the WebSocket door share: a gateway of memory behind a server on which there is only this door."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from doors.http import routes as served
from doors.http.settings import HttpToken
from doors.websocket import connection
from doors.websocket.frames import SocketLimits
from doors.websocket.hub import EventHub
from tests.doors.http.conftest import Connect, Door, Open, connect, methods, open_door, settle, world
from tests.doors.websocket.peer import SocketPeer
from tests.gateway.world import World
from wire.units import ByteCount

__all__ = ["Join", "connect", "follows", "hub_of", "methods", "open_door", "settle", "world"]

LIMITS = {"max_requests": 4, "max_refused": 3, "buffered_bytes": ByteCount(300_000)}
READER = "a-token-that-may-look-0123456789"
WRITER = "a-token-that-may-write-0123456789"


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as a supervisor knows of itself."""
    monkeypatch.setattr("tests.gateway.world.Supervisor.facts", lambda _: {"pid": 1, "uptime": 2.5})


@pytest.fixture
def limits() -> dict[str, Any]:
    """Small ones; a test may change them before the door opens."""
    return dict(LIMITS)


@pytest.fixture
def open_ws(open_door: Open, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> Open:
    """Opens a server on which there is only this door."""
    monkeypatch.setattr(served, "DOORS", (connection.routes,))
    monkeypatch.setattr(connection, "SocketLimits", lambda: SocketLimits(**limits))

    async def open_it(*behind: Any, **changes: Any) -> Door:
        tokens = {"reader": HttpToken(token=READER), "writer": HttpToken(token=WRITER, scope="write")}
        return await open_door(*behind, **{"tokens": tokens, **changes})

    return open_it


@pytest.fixture
async def door(open_ws: Open, world: World) -> Door:
    return await open_ws(world.methods)


Join = Callable[..., Awaitable[SocketPeer]]


@pytest.fixture
def join(connect: Connect, door: Door) -> Join:
    """Connects to the door and says ``connect``; ``to`` another door."""

    async def join_it(to: Door | None = None, **params: Any) -> SocketPeer:
        peer = SocketPeer(await connect(to or door, None))
        await peer.open()
        answer = await peer.connect(**params)
        assert answer["ok"], answer
        return peer

    return join_it


def hub_of(door: Door) -> EventHub:
    """What tells the door's WebSockets of events."""
    (chore,) = door.server.services.background_tasks
    hub: EventHub = chore.__self__  # type: ignore[attr-defined]  # it is a method
    return hub


def follows(world: World) -> bool:
    """Whether the door follows the gateway's events."""
    return bool(world.methods._subscriptions._open)
