"""The HTTP door beside the control socket: events to one reader, what an idle stream costs, a call's round trip."""

import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import trio

from benchmarks.door_server import DoorServer, control, door_server, request_beside_ping
from benchmarks.harness import Result, best_of, result
from doors.control.server import ControlServer
from doors.http.server import HttpServer
from doors.http.settings import HttpSettings
from gateway.caller import Caller

_TOKEN = "a-token-of-the-benchmarks"
_EVENTS = 1_000_000
_BATCH = 500
_IDLE = 500
_MODULE = "benchmarks.bench_http"
_END = b'"reason":"behind"}'


def run() -> list[Result]:
    with door_server(_MODULE) as server:
        return [*events(server), *idle(server), *ping(server)]


# --- events -----------------------------------------------------------------------------------------------------------


def events(server: DoorServer) -> list[Result]:
    """The same events, encoded already, to one reader of each door."""
    plain = _EVENTS / best_of(2, lambda: _drain(control(server), b'{"id":1,"method":"subscribe"}\n'))
    single = _EVENTS / best_of(2, lambda: _drain(_http(server), _get("/events")))
    batched = _EVENTS / best_of(2, lambda: _drain(_http(server), _get("/events?batch=true")))
    beside: dict[str, Any] = {"baseline": plain, "baseline_name": "/s control socket", "at_least": 200_000}
    return [
        result("events over SSE, a message each", single, "/s", **beside),
        result("events over SSE, in batches", batched, "/s", **beside),
    ]


def _drain(sock: socket.socket, request: bytes) -> float:
    begin = time.perf_counter()
    with sock:
        sock.sendall(request)
        tail = b""
        while _END not in tail:
            chunk = sock.recv(1 << 20)
            if not chunk:
                raise AssertionError(f"the stream ended early: {tail!r}")
            tail = (tail + chunk)[-200:]
    return time.perf_counter() - begin


# --- idle connections -------------------------------------------------------------------------------------------------


def idle(server: DoorServer) -> list[Result]:
    """Streams on which nothing happens, and connections that wait for their next request."""
    with ExitStack() as stack:
        plain = _cost(server, stack, lambda: control(server), b'{"id":1,"method":"idle"}\n')
        streams = _cost(server, stack, lambda: _http(server), _get("/events?session=idle"))
        resting = _cost(server, stack, lambda: _http(server), _get("/health"))
    beside: dict[str, Any] = {"baseline": plain, "baseline_name": "kB control socket", "at_most": 40.0}
    return [
        result(f"each of {_IDLE} idle SSE streams", streams, "kB", **beside),
        result(f"each of {_IDLE} idle HTTP connections", resting, "kB", **beside),
    ]


def _cost(server: DoorServer, stack: ExitStack, connect: Any, request: bytes) -> float:
    """Kilobytes of the server's memory for each connection; they stay open until ``stack`` ends."""
    before = server.process.memory_info().rss
    for _ in range(_IDLE):
        sock = stack.enter_context(connect())
        sock.sendall(request)
        sock.recv(4096)
    return (server.process.memory_info().rss - before) / _IDLE / 1000


# --- round trips ------------------------------------------------------------------------------------------------------


def ping(server: DoorServer) -> list[Result]:
    return [request_beside_ping("ping as POST /api/ping, p50", server, _http(server), _request("POST", "/api/ping"))]


# --- clients ----------------------------------------------------------------------------------------------------------


def _http(server: DoorServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def _get(path: str) -> bytes:
    return _request("GET", path)


def _request(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n".encode()


# --- the server, in a process of its own ------------------------------------------------------------------------------


class _Handlers:
    """``subscribe`` pushes batches of text pieces, encoded already, or nothing to the session ``idle``."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        if method not in ("subscribe", "idle"):
            return {} if method == "ping" else []
        is_idle = method == "idle" or b'"idle"' in bytes(params)
        caller.start(trio.sleep_forever if is_idle else lambda: _push_all(caller))
        return {"subscription": "1", "head": 0, "complete": True}


async def _push_all(caller: Caller) -> None:
    envelope = (
        b'{"seq":%d,"ts":1700000000.123,"session":"alice","channel":"progress","type":"text_chunk",'
        b'"data":{"delta":"word "},"run_id":"r1"}'
    )
    batch = b",".join(envelope % number for number in range(_BATCH))
    data = b'{"subscription":"1","events":[%b]}' % batch
    for _ in range(_EVENTS // _BATCH):
        await caller.push_encoded("events", data)
    await caller.push("subscription_ended", {"subscription": "1", "bookmark": _EVENTS, "reason": "behind"})


async def _serve(path: Path) -> None:
    settings = HttpSettings(bind="127.0.0.1:0", token=_TOKEN, rate=0, max_connections=2 * _IDLE + 10)
    server = HttpServer(_Handlers(), settings, path.parent, hide=lambda _: None, env={})
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlServer(_Handlers(), path).serve)
        await nursery.start(server.serve)
        print(server.url.rpartition(":")[2], flush=True)


if __name__ == "__main__":
    trio.run(_serve, Path(sys.argv[1]))
