"""What the tests of the HTTP port share: a server on a free port of this machine, and clients of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from doors.http import api, events, limits, metrics, routes
from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from gateway.caller import MethodDispatcher
from tests.doors.conftest import methods
from tests.doors.http.peer import TOKEN, Answer, HttpPeer
from tests.doors.methods import FakeMethods
from tests.gateway.world import World, open_world
from wire.units import ByteCount, Seconds

__all__ = ["SMALL", "Connect", "Door", "Open", "connect", "door", "methods", "open_door", "settle", "world"]

Connect = Callable[..., Awaitable[HttpPeer]]
_TIMES = ("header_timeout", "body_timeout", "idle_timeout", "write_stall", "close_grace")
_SIZES = {"max_body": ByteCount(100_000), "body_bytes": ByteCount(300_000), "max_headers": ByteCount(4096)}
SMALL: dict[str, Any] = {
    "bind": "127.0.0.1:0",
    "token": TOKEN,
    "max_connections": 4,
    "rate": 0,
    **_SIZES,
    **dict.fromkeys(_TIMES, Seconds(30)),
}


class Door:
    """A server that serves."""

    def __init__(self, server: HttpServer, scope: trio.CancelScope, data_dir: Path) -> None:
        self.server = server
        self.url = server.url
        self.figures = server.services.stats
        self.data_dir = data_dir
        self._scope = scope
        self._peers: list[HttpPeer] = []
        self.ended = trio.Event()

    def close(self) -> None:
        """What the supervisor does at its end."""
        self._scope.cancel()

    async def connect(self, token: str | None = TOKEN) -> HttpPeer:
        """A connection of a client, open until the server has ended."""
        self._peers.append(await HttpPeer.connect(self.url, token))
        return self._peers[-1]

    def disconnect_peers(self) -> None:
        for peer in self._peers:
            peer.stream.socket.close()

    async def call(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN, **headers: str
    ) -> Answer:
        """One request over a connection of its own."""
        peer = await HttpPeer.connect(self.url, token)
        async with peer.stream:
            return await peer.call(method, path, body, **headers)


Open = Callable[..., Awaitable[Door]]


@pytest.fixture
async def open_door(
    nursery: trio.Nursery, tmp_path: Path, methods: FakeMethods, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Open]:
    """Opens a server with small limits, or others, and long timeouts; other doors' routes are left out.

    Connections without a token may cost as much as the test makes of them: ``test_limits`` holds what they may.
    """
    monkeypatch.setattr(limits, "BURST_SECONDS", 1000.0)
    monkeypatch.setattr(limits, "FREE_READS", 10**6)
    monkeypatch.setattr(routes, "DOORS", (api.health_routes, metrics.routes, api.routes, events.routes))

    async def open_it(stands_behind: MethodDispatcher | None = None, **changes: Any) -> Door:
        settings = HttpSettings(**{**SMALL, **changes})
        server = HttpServer(stands_behind or methods, settings, tmp_path, hide=lambda _: None, env={})
        scope = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[Door]) -> None:
            with scope:
                async with trio.open_nursery() as serving:
                    await serving.start(server.serve)
                    task_status.started(Door(server, scope, tmp_path))
            opened.ended.set()

        opened: Door = await nursery.start(serve)
        doors.append(opened)
        return opened

    doors: list[Door] = []
    yield open_it
    for opened_door in doors:
        opened_door.disconnect_peers()


@pytest.fixture
async def door(open_door: Open) -> Door:
    return await open_door()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A whole gateway, to stand behind a server: ``open_door(world.methods)``."""
    async with open_world(tmp_path / "world") as opened:
        yield opened


async def settle(until: Callable[[], object]) -> None:
    """Let the server's tasks go on until something holds, within reason."""
    with trio.fail_after(20):
        while not until():
            await wait_all_tasks_blocked(0.005)


@pytest.fixture
async def connect() -> Connect:
    """Connects to a server; the connection is closed when the test ends."""
    return Door.connect
