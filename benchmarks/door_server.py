"""What benchmarks of the doors share: a server in a process of its own, its control socket, what connections cost."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import trio

from benchmarks.harness import Result, median, result
from doors.control.server import ControlServer
from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from gateway.caller import Caller, MethodDispatcher

TOKEN = "a-token-of-the-benchmarks"
_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
IDLE = 500
"""Connections whose cost is measured."""
_TRIPS = 2000
_TURNS = 4
_BATCH = 500


class DoorServer(NamedTuple):
    """A running one: its control socket's path, and the port of its other door."""

    process: psutil.Process
    path: Path
    port: int


@contextmanager
def door_server(module: str) -> Iterator[DoorServer]:
    """``python -m module PATH``, which calls ``serve``; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        path = Path(folder, "s")
        command = (sys.executable, "-P", "-m", module, str(path))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield DoorServer(psutil.Process(process.pid), path, int(process.stdout.readline()))
            finally:
                process.terminate()


def control(server: DoorServer) -> socket.socket:
    """A connection to its control socket."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(server.path))
    return sock


def read_until(reader: socket.socket, end: bytes) -> int:
    """Read up to a chunk that ends with, or has, ``end``; returns how many bytes."""
    tail, size = b"", 0
    while end not in tail:
        chunk = reader.recv(1 << 20)
        if not chunk:
            raise AssertionError(f"the stream ended early: {tail!r}")
        tail = tail[-len(end) :] + chunk
        size += len(chunk)
    return size


def drain(sock: socket.socket, request: bytes, end: bytes) -> float:
    """Seconds from a request to the end of what it brings; the connection is closed."""
    begin = time.perf_counter()
    with sock:
        sock.sendall(request)
        read_until(sock, end)
    return time.perf_counter() - begin


def websocket(port: int) -> socket.socket:
    """One that has been let in."""
    sock = socket.create_connection(("127.0.0.1", port))
    connect = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": TOKEN}}
    sock.sendall(_HANDSHAKE)
    read_until(sock, b"connect.challenge")
    sock.sendall(websocket_frame({"type": "req", "id": "1", "method": "connect", "params": connect}))
    read_until(sock, b"tickIntervalMs")
    return sock


def websocket_frame(content: dict[str, Any]) -> bytes:
    """A client's frame, of a size that has two bytes; its mask is zero, which changes nothing."""
    data = json.dumps(content).encode().ljust(126)
    return b"\x81\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data


def cost(server: DoorServer, stack: ExitStack, connect: Callable[[], socket.socket]) -> float:
    """Kilobytes of the server's memory for each of ``IDLE`` connections; they stay open until ``stack`` ends."""
    before = server.process.memory_info().rss
    for _ in range(IDLE):
        stack.enter_context(connect())
    return (server.process.memory_info().rss - before) / IDLE / 1000


def request_beside_ping(name: str, server: DoorServer, connection: socket.socket, request: bytes) -> Result:
    """Its round trip beside a ping through the control socket; in turns, so that both see the same machine."""
    plain: list[float] = []
    ours: list[float] = []
    with control(server) as beside, connection:
        for _ in range(_TURNS):
            plain += _trips(beside, b'{"id":1,"method":"ping"}\n')
            ours += _trips(connection, request)
    return result(name, median(ours), "us", beside=(median(plain), "us control socket"), at_most=2000)


def _trips(sock: socket.socket, request: bytes) -> list[float]:
    times = []
    for _ in range(_TRIPS // _TURNS):
        begin = time.perf_counter()
        sock.sendall(request)
        if not sock.recv(65536):
            raise AssertionError("the server has hung up")
        times.append((time.perf_counter() - begin) * 1e6)
    return times


# --- in the server's process ------------------------------------------------------------------------------------------


async def serve(methods: MethodDispatcher, path: Path) -> None:
    """A control socket at ``path`` and an HTTP port, which is printed."""
    settings = HttpSettings(bind="127.0.0.1:0", token=TOKEN, rate=0, max_connections=2 * IDLE + 10)
    server = HttpServer(methods, settings, path.parent, hide=lambda _: None, env={})
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlServer(methods, path).serve)
        await nursery.start(server.serve)
        print(server.url.rpartition(":")[2], flush=True)


PUSHED_END = b'"reason":"behind"}'


async def push_pieces(caller: Caller, events: int) -> None:
    """Push batches of text pieces, encoded already, then the end of the subscription."""
    envelope = (
        b'{"seq":%d,"ts":1700000000.123,"session":"alice","channel":"progress","type":"text_chunk",'
        b'"data":{"delta":"word "},"run_id":"r1"}'
    )
    batch = b",".join(envelope % number for number in range(_BATCH))
    data = b'{"subscription":"1","events":[%b]}' % batch
    for _ in range(events // _BATCH):
        await caller.push_encoded("events", data)
    await caller.push("subscription_ended", {"subscription": "1", "bookmark": events, "reason": "behind"})
