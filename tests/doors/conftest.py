"""What the tests of the doors share: short paths, and a control server with small limits to talk to."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from doors.control.connection import ControlLimits
from doors.control.server import ControlServer
from tests.doors.methods import FakeMethods
from tests.doors.peer import Peer
from wire.units import ByteCount, Seconds

Connect = Callable[[], Awaitable[Peer]]

SMALL = ControlLimits(
    max_connections=3,
    max_frame_bytes=ByteCount(200_000),
    max_requests=4,
    max_refused=5,
    max_tasks=4,
    input_bytes=ByteCount(200_000),
    out_buffer_bytes=ByteCount(100_000),
    output_bytes=ByteCount(2_000_000),
    write_stall=Seconds(0.2),
    flush_grace=Seconds(0.5),
)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private directory whose path leaves room for a socket's name (pytest's own are too long for that)."""
    with tempfile.TemporaryDirectory(prefix="pool-") as name:
        yield Path(name)


@pytest.fixture
def methods() -> FakeMethods:
    return FakeMethods()


@pytest.fixture
async def path(short_dir: Path, methods: FakeMethods, nursery: trio.Nursery) -> Path:
    """A server with small limits, listening."""
    started: Path = await nursery.start(lambda task_status: serve_small(methods, short_dir / "s", task_status))
    return started


async def serve_small(methods: FakeMethods, path: Path, task_status: trio.TaskStatus[Path]) -> None:
    await ControlServer(methods, path, limits=SMALL).serve(task_status=task_status)


@pytest.fixture
async def connect(path: Path) -> AsyncIterator[Connect]:
    peers: list[Peer] = []

    async def open_peer() -> Peer:
        peers.append(await Peer.connect(path))
        return peers[-1]

    yield open_peer
    for peer in peers:
        peer.stream.socket.close()
