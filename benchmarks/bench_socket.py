"""The control socket: a round trip as a blocking client sees it, a flood of requests, events pushed to a subscriber."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import trio

from benchmarks.door_server import PUSHED_END, DoorServer, control, door_server, drain, push_pieces, serve
from benchmarks.harness import Result, best_of, median, percentile, result
from benchmarks.programs import ECHO, on_one_cpu, ping_pong, program
from benchmarks.promises import Promise
from doors.control.client import ControlClient
from gateway.caller import Caller

_ROUNDS = 20
_TRIPS = 200
_REQUESTS = 200_000
_EVENTS = 2_000_000
_BATCH = 1000


def run() -> list[Result]:
    with door_server("benchmarks.bench_socket") as server:
        return [*ping(server), *_flood(server), *_events(server)]


# --- round trips ------------------------------------------------------------------------------------------------------


def ping(server: DoorServer, promise: Promise | None = None) -> list[Result]:
    """Round trips with both ends placed, on two CPUs and on one."""
    with on_one_cpu() as cpus:
        base, ours = _measure_trips(server, cpus[-1])
        pinned_base, pinned_ours = _measure_trips(server, cpus[0])
    server.process.cpu_affinity(cpus)
    what = "" if promise else "ping through a bare server's socket, "
    name = "us blocking pipe ping-pong"
    beside: dict[str, Any] = {"promise": promise, "ratio_at_most": 5.0}
    most = (percentile(base, 0.99), name)
    return [
        result(f"{what}two CPUs, p50", median(ours), "us", beside=(median(base), name), **beside),
        result(f"{what}one CPU, p50", median(pinned_ours), "us", beside=(median(pinned_base), name), **beside),
        result(f"{what}two CPUs, p99", percentile(ours, 0.99), "us", promise=promise, beside=most),
    ]


def _measure_trips(server: DoorServer, cpu: int) -> tuple[list[float], list[float]]:
    """Microseconds of the pipe and of the socket, in turns, so that both see the same machine."""
    base: list[float] = []
    ours: list[float] = []
    server.process.cpu_affinity([cpu])
    with program(ECHO) as plain, control(server) as sock:
        os.sched_setaffinity(plain.pid, {cpu})
        plain.wait_for(b'{"event":"ready"')
        for _ in range(_ROUNDS):
            base += plain.ping_pong(_TRIPS)
            ours += ping_pong(sock.fileno(), sock.fileno(), _TRIPS)
    return base[_TRIPS:], ours[_TRIPS:]


# --- throughput -------------------------------------------------------------------------------------------------------


def _flood(server: DoorServer) -> list[Result]:
    """One peer that sends as fast as it is let, in large writes, and reads the answers."""
    return [result("requests of one flooding peer", _REQUESTS / best_of(2, lambda: _send_all(server)), "/s")]


def _send_all(server: DoorServer) -> float:
    block = b"".join(b'{"id":%d,"method":"ping"}\n' % number for number in range(_BATCH))
    begin = time.perf_counter()
    with control(server) as sock:
        for _ in range(_REQUESTS // _BATCH):
            sock.sendall(block)
            left = _BATCH
            while left:
                left -= sock.recv(1 << 20).count(b"\n")
    return time.perf_counter() - begin


def _events(server: DoorServer) -> list[Result]:
    """One subscriber: its bytes only, and with every envelope decoded by the client of the command line."""
    bare = _EVENTS / best_of(2, lambda: drain(control(server), b'{"id":"1","method":"subscribe"}\n', PUSHED_END))
    decoded = _EVENTS / best_of(2, lambda: _decode_events(server.path))
    name, beside = "events to a subscriber that decodes them", (bare, "/s bytes only")
    return [
        result("events to a subscriber of the socket", bare, "/s", at_least=500_000),
        result(name, decoded, "/s", beside=beside, at_least=500_000),
    ]


def _decode_events(path: Path) -> float:
    begin = time.perf_counter()
    with ControlClient(path) as client:
        seen = sum(len(batch) for batch in client.subscribe().batches())
    if seen != _EVENTS:
        raise AssertionError(f"{seen} of {_EVENTS} events arrived")
    return time.perf_counter() - begin


class _Handlers:
    """``ping`` answers at once; ``subscribe`` pushes batches of text pieces, encoded already."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:  # noqa: ARG002  # neither has any
        if method == "subscribe":
            caller.start(lambda: push_pieces(caller, _EVENTS))
            return {"subscription": "1", "head": 0, "complete": True}
        return {}


if __name__ == "__main__":
    trio.run(serve, _Handlers(), Path(sys.argv[1]))
