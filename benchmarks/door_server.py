"""What benchmarks of the doors share: a server in a process of its own, its control socket, round trips beside it."""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.harness import Result, median, result

_TRIPS = 2000
_TURNS = 4


class DoorServer(NamedTuple):
    """A running one: its control socket's path, and the port of its other door."""

    process: psutil.Process
    path: Path
    port: int


@contextmanager
def door_server(module: str) -> Iterator[DoorServer]:
    """``python -m module PATH``, which prints its port as soon as it serves; it ends with the block."""
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


def read_until(reader: socket.socket, end: bytes) -> None:
    """Read up to a chunk that ends with, or has, ``end``."""
    tail = b""
    while end not in tail:
        chunk = reader.recv(1 << 20)
        if not chunk:
            raise AssertionError(f"the stream ended early: {tail!r}")
        tail = tail[-len(end) :] + chunk


def request_beside_ping(name: str, server: DoorServer, connection: socket.socket, request: bytes) -> Result:
    """Its round trip beside a ping through the control socket; in turns, so that both see the same machine."""
    plain: list[float] = []
    ours: list[float] = []
    with control(server) as beside, connection:
        for _ in range(_TURNS):
            plain += _trips(beside, b'{"id":1,"method":"ping"}\n')
            ours += _trips(connection, request)
    baseline = median(plain)
    return result(name, median(ours), "us", baseline=baseline, baseline_name="us control socket", at_most=2000)


def _trips(sock: socket.socket, request: bytes) -> list[float]:
    times = []
    for _ in range(_TRIPS // _TURNS):
        begin = time.perf_counter()
        sock.sendall(request)
        if not sock.recv(65536):
            raise AssertionError("the server has hung up")
        times.append((time.perf_counter() - begin) * 1e6)
    return times
