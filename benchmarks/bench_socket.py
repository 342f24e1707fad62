"""The control socket: a round trip as a blocking client sees it, a flood of requests, events pushed to a subscriber."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from benchmarks import echo_worker
from benchmarks.harness import Result, best_of, median, percentile, result
from benchmarks.promises import Promise
from doors.control.client import ControlClient
from doors.control.server import ControlServer
from gateway.caller import Caller

_ROUNDS = 20
_TRIPS = 200
_REQUESTS = 200_000
_EVENTS = 2_000_000
_BATCH = 1000
_ECHO = (sys.executable, "-P", str(Path(echo_worker.__file__)))
_SERVER = (sys.executable, "-P", "-m", "benchmarks.bench_socket")


def run() -> list[Result]:
    with _server() as (process, path):
        return [*ping(process.pid, path), *flood(path), *events(path)]


# --- round trips ------------------------------------------------------------------------------------------------------


def ping(server: int, path: Path, promise: Promise | None = None) -> list[Result]:
    """Of the server with that pid. Both ends placed, on two CPUs and on one: where the scheduler puts them decides
    more than the code does.
    """
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])
    try:
        base, ours = _measure_trips(server, path, cpus[-1])
        pinned_base, pinned_ours = _measure_trips(server, path, cpus[0])
    finally:
        os.sched_setaffinity(0, cpus)
        os.sched_setaffinity(server, cpus)
    what = "" if promise else "ping through a bare server's socket, "
    beside: dict[str, Any] = {"promise": promise, "baseline_name": "us blocking pipe ping-pong"}
    return [
        result(f"{what}two CPUs, p50", median(ours), "us", baseline=median(base), ratio_at_most=5.0, **beside),
        result(
            f"{what}one CPU, p50",
            median(pinned_ours),
            "us",
            baseline=median(pinned_base),
            ratio_at_most=5.0,
            **beside,
        ),
        result(f"{what}two CPUs, p99", percentile(ours, 0.99), "us", baseline=percentile(base, 0.99), **beside),
    ]


def _measure_trips(server: int, path: Path, cpu: int) -> tuple[list[float], list[float]]:
    """Microseconds of the pipe and of the socket, in turns, so that both see the same machine."""
    base: list[float] = []
    ours: list[float] = []
    os.sched_setaffinity(server, {cpu})
    with (
        subprocess.Popen(_ECHO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as plain,
        _talk(path) as sock,
    ):
        assert plain.stdin is not None
        assert plain.stdout is not None
        os.sched_setaffinity(plain.pid, {cpu})
        os.read(plain.stdout.fileno(), 65536)
        for _ in range(_ROUNDS):
            base += _ping_pong(plain.stdin.fileno(), plain.stdout.fileno())
            ours += _ping_pong(sock.fileno(), sock.fileno())
        plain.stdin.close()
    return base[_TRIPS:], ours[_TRIPS:]


def _ping_pong(write_end: int, read_end: int) -> list[float]:
    times = []
    for number in range(_TRIPS):
        begin = time.perf_counter()
        os.write(write_end, b'{"id":"%d","method":"ping","params":{}}\n' % number)
        os.read(read_end, 65536)
        times.append((time.perf_counter() - begin) * 1e6)
    return times


# --- throughput -------------------------------------------------------------------------------------------------------


def flood(path: Path) -> list[Result]:
    """One peer that sends as fast as it is let, in large writes, and reads the answers."""
    return [result("requests of one flooding peer", _REQUESTS / best_of(2, lambda: _flood(path)), "/s")]


def _flood(path: Path) -> float:
    block = b"".join(b'{"id":%d,"method":"ping"}\n' % number for number in range(_BATCH))
    begin = time.perf_counter()
    with _talk(path) as sock:
        for _ in range(_REQUESTS // _BATCH):
            sock.sendall(block)
            left = _BATCH
            while left:
                left -= sock.recv(1 << 20).count(b"\n")
    return time.perf_counter() - begin


def events(path: Path) -> list[Result]:
    """One subscriber: its bytes only, and with every envelope decoded by the client of the command line."""
    bare = _EVENTS / best_of(2, lambda: _drain_events(path))
    decoded = _EVENTS / best_of(2, lambda: _decode_events(path))
    return [
        result("events to a subscriber of the socket", bare, "/s", at_least=500_000),
        result(
            "events to a subscriber that decodes them",
            decoded,
            "/s",
            baseline=bare,
            baseline_name="/s bytes only",
            at_least=500_000,
        ),
    ]


def _drain_events(path: Path) -> float:
    begin = time.perf_counter()
    with _talk(path) as sock:
        sock.sendall(b'{"id":"1","method":"subscribe"}\n')
        tail = b""
        while not tail.endswith(b'"reason":"behind"}}\n'):
            tail = (tail + sock.recv(1 << 20))[-100:]
    return time.perf_counter() - begin


def _decode_events(path: Path) -> float:
    begin = time.perf_counter()
    with ControlClient(path) as client:
        seen = sum(len(batch) for batch in client.subscribe().batches())
    if seen != _EVENTS:
        raise AssertionError(f"{seen} of {_EVENTS} events arrived")
    return time.perf_counter() - begin


@contextmanager
def _talk(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        yield sock


# --- the server, in a process of its own ------------------------------------------------------------------------------


@contextmanager
def _server() -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        path = Path(folder, "s")
        with subprocess.Popen([*_SERVER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                if process.stdout.readline() != b"ready\n":
                    raise AssertionError("the server did not start")
                yield process, path
            finally:
                process.terminate()


class _Handlers:
    """``ping`` answers at once; ``subscribe`` pushes batches of text pieces, encoded already."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:  # noqa: ARG002  # neither has any
        if method == "subscribe":
            caller.start(lambda: _push_all(caller))
            return {"subscription": 1, "head": 0, "complete": True}
        return {}


async def _push_all(caller: Caller) -> None:
    envelope = (
        b'{"seq":%d,"ts":1700000000.123,"session":"alice","channel":"progress","type":"text_chunk",'
        b'"data":{"delta":"word "},"run_id":"r1"}'
    )
    batch = b",".join(envelope % number for number in range(_BATCH))
    data = b'{"subscription":1,"events":[%b]}' % batch
    for _ in range(_EVENTS // _BATCH):
        await caller.push_encoded("events", data)
    await caller.push("subscription_ended", {"subscription": 1, "bookmark": _EVENTS, "reason": "behind"})


async def _serve(path: Path) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlServer(_Handlers(), path).serve)
        print("ready", flush=True)


if __name__ == "__main__":
    trio.run(_serve, Path(sys.argv[1]))
