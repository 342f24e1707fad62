"""The HTTP door beside the control socket: events to one reader, what an idle stream costs, a call's round trip."""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import trio

from benchmarks.door_server import (
    IDLE,
    PUSHED_END,
    TOKEN,
    DoorServer,
    control,
    cost,
    door_server,
    drain,
    push_pieces,
    request_beside_ping,
    serve,
)
from benchmarks.harness import Result, best_of, result
from gateway.caller import Caller

_EVENTS = 1_000_000


def run() -> list[Result]:
    with door_server("benchmarks.bench_http") as server:
        return [*_events(server), *_idle(server), _ping(server)]


def _events(server: DoorServer) -> list[Result]:
    """The same events, encoded already, to one reader of each door."""
    subscribe = b'{"id":1,"method":"subscribe"}\n'
    plain = _EVENTS / best_of(2, lambda: drain(control(server), subscribe, PUSHED_END))
    single = _EVENTS / best_of(2, lambda: drain(_http(server), _request("GET /events"), PUSHED_END))
    batched = _EVENTS / best_of(2, lambda: drain(_http(server), _request("GET /events?batch=true"), PUSHED_END))
    beside = (plain, "/s control socket")
    return [
        result("events over SSE, a message each", single, "/s", beside=beside, at_least=200_000),
        result("events over SSE, in batches", batched, "/s", beside=beside, at_least=200_000),
    ]


def _idle(server: DoorServer) -> list[Result]:
    """Streams on which nothing happens, and connections that wait for their next request."""
    with ExitStack() as stack:
        plain = cost(server, stack, lambda: _asked(control(server), b'{"id":1,"method":"idle"}\n'))
        streams = cost(server, stack, lambda: _asked(_http(server), _request("GET /events?session=idle")))
        resting = cost(server, stack, lambda: _asked(_http(server), _request("GET /health")))
    beside = (plain, "kB control socket")
    return [
        result(f"each of {IDLE} idle SSE streams", streams, "kB", beside=beside, at_most=40.0),
        result(f"each of {IDLE} idle HTTP connections", resting, "kB", beside=beside, at_most=40.0),
    ]


def _ping(server: DoorServer) -> Result:
    return request_beside_ping("ping as POST /api/ping, p50", server, _http(server), _request("POST /api/ping"))


def _http(server: DoorServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port))


def _asked(sock: socket.socket, request: bytes) -> socket.socket:
    """The connection, once it has brought something."""
    sock.sendall(request)
    sock.recv(4096)
    return sock


def _request(what: str) -> bytes:
    return f"{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


class _Handlers:
    """``subscribe`` pushes batches of text pieces, encoded already, or nothing to the session ``idle``."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        if method not in ("subscribe", "idle"):
            return {} if method == "ping" else []
        is_idle = method == "idle" or b'"idle"' in bytes(params)
        caller.start(trio.sleep_forever if is_idle else lambda: push_pieces(caller, _EVENTS))
        return {"subscription": "1", "head": 0, "complete": True}


if __name__ == "__main__":
    trio.run(serve, _Handlers(), Path(sys.argv[1]))
