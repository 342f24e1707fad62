"""What the tests of the HTTP door share: a server on a free port of this machine, and clients of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from doors.http import anonymous, api, events, metrics, routes
from doors.http import api as health
from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from gateway.caller import MethodDispatcher
from tests.doors.http.peer import TOKEN, HttpPeer
from tests.doors.methods import FakeMethods
from tests.gateway.world import World, open_world
from wire.units import ByteCount, Seconds

Connect = Callable[..., Awaitable[HttpPeer]]

SMALL: dict[str, Any] = {
    "bind": "127.0.0.1:0",
    "token": TOKEN,
    "max_connections": 4,
    "max_body": ByteCount(100_000),
    "body_bytes": ByteCount(300_000),
    "max_headers": ByteCount(4096),
    "header_timeout": Seconds(30),
    "body_timeout": Seconds(30),
    "idle_timeout": Seconds(30),
    "write_stall": Seconds(30),
    "close_grace": Seconds(30),
    "rate": 0,
}


class Door:
    """A server that serves."""

    def __init__(self, server: HttpServer, scope: trio.CancelScope, data_dir: Path) -> None:
        self.server = server
        self.url = server.url
        self.figures = server.services.stats
        self.data_dir = data_dir
        self._scope = scope
        self.ended = trio.Event()

    def close(self) -> None:
        """What the supervisor does at its end."""
        self._scope.cancel()


Open = Callable[..., Awaitable[Door]]


@pytest.fixture
def methods() -> FakeMethods:
    return FakeMethods()


@pytest.fixture
def open_door(nursery: trio.Nursery, tmp_path: Path, methods: FakeMethods, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a door with small limits, or others, and much time. What other doors serve on its port is left out.

    Connections without a token may cost as much as the test makes of them: ``test_strangers`` holds what they may.
    """
    monkeypatch.setattr(anonymous, "BURST_SECONDS", 1000.0)
    monkeypatch.setattr(routes, "DOORS", (health.health_routes, metrics.routes, api.routes, events.routes))

    async def open_it(stands_behind: MethodDispatcher | None = None, **changes: Any) -> Door:
        settings = HttpSettings(**{**SMALL, **changes})
        server = HttpServer(stands_behind or methods, settings, tmp_path, hide=lambda _: None, env={})
        scope = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[Door]) -> None:
            with scope:
                await server.serve(task_status=_Started(task_status, lambda: Door(server, scope, tmp_path)))
            opened.ended.set()

        opened: Door = await nursery.start(serve)
        return opened

    return open_it


class _Started:
    """Tells the test of a door where the server tells of an address."""

    def __init__(self, outer: trio.TaskStatus[Door], make: Callable[[], Door]) -> None:
        self._outer = outer
        self._make = make

    def started(self, _url: str | None = None) -> None:
        self._outer.started(self._make())


@pytest.fixture
async def door(open_door: Open) -> Door:
    return await open_door()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A whole gateway, to stand behind a door: ``open_door(world.methods)``."""
    async with open_world(tmp_path / "world") as opened:
        yield opened


@pytest.fixture
async def world_with_small_ring(tmp_path: Path) -> AsyncIterator[World]:
    """The same, and little of the stream in memory."""
    async with open_world(tmp_path / "world", events={"ring": 256 * 1024}) as opened:
        yield opened


@pytest.fixture
async def connect(nursery: trio.Nursery) -> AsyncIterator[Connect]:
    """Connects to a door; hangs up when the test ends."""
    peers: list[HttpPeer] = []

    async def open_peer(to: Door, token: str | None = TOKEN) -> HttpPeer:
        peers.append(await HttpPeer.connect(to.url, token))
        return peers[-1]

    yield open_peer
    for peer in peers:
        peer.stream.socket.close()
