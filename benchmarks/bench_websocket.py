"""The WebSocket door beside the control socket: events to one reader, what an idle connection costs, a round trip."""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import trio

from benchmarks.door_server import (
    IDLE,
    DoorServer,
    control,
    cost,
    door_server,
    read_until,
    request_beside_ping,
    serve,
    websocket,
    websocket_frame,
)
from benchmarks.harness import Result, best_of, result
from gateway.caller import Caller

_PIECES = 400_000
_PIECES_OF_A_RUN = 2000
_CALLS = 100_000
_BATCH = 500
_END = b"the last word"


def run() -> list[Result]:
    with door_server("benchmarks.bench_websocket") as server:
        return [*_events(server), _idle(server), _ping(server)]


def _events(server: DoorServer) -> list[Result]:
    """The same events to one reader of each door.

    Pieces of text that arrive together are published as one event, which repeats the answer so far: the pieces that
    a reader received are counted. Each tool call is an event of its own.
    """
    found = []
    for what, name, count in (
        ("text", "pieces of text over WebSocket, joined", _PIECES),
        ("calls", "events of tool calls over WebSocket", _CALLS),
    ):
        with _subscriber(server) as control:
            plain = count / best_of(2, partial(_drain, server, control, f"{what} to control"))
        with websocket(server.port) as reader:
            ours = count / best_of(2, partial(_drain, server, reader, f"{what} to websocket"))
        found.append(result(name, ours, "/s", beside=(plain, "/s control socket"), at_least=20_000))
    return found


def _drain(server: DoorServer, reader: socket.socket, what: str) -> float:
    with control(server) as trigger:
        begin = time.perf_counter()
        trigger.sendall(b'{"id":1,"method":"pour","params":{"what":"%b"}}\n' % what.encode())
        read_until(reader, _END)
        return time.perf_counter() - begin


# --- connections ------------------------------------------------------------------------------------------------------


def _idle(server: DoorServer) -> Result:
    """Those that have said connect, and hear of nothing."""
    with ExitStack() as stack:
        plain = cost(server, stack, lambda: _subscriber(server))
        ours = cost(server, stack, lambda: websocket(server.port))
    return result(f"each of {IDLE} idle WebSockets", ours, "kB", beside=(plain, "kB control socket"), at_most=40.0)


def _ping(server: DoorServer) -> Result:
    asked = websocket_frame({"type": "req", "id": "1", "method": "health"})
    return request_beside_ping("a request over WebSocket, p50", server, websocket(server.port), asked)


def _subscriber(server: DoorServer) -> socket.socket:
    sock = control(server)
    sock.sendall(b'{"id":1,"method":"subscribe"}\n')
    read_until(sock, b"\n")
    return sock


# --- the server, in a process of its own ------------------------------------------------------------------------------


class _Handlers:
    """``pour`` pushes events, encoded already, to the client that has subscribed last over that door."""

    def __init__(self) -> None:
        self._callers: dict[bool, Caller] = {}
        """By whether it is the WebSockets'."""
        self._head = 0

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        if method == "status":
            return self._status()
        if method == "sessions.list":
            return []
        if method == "subscribe":
            self._callers[caller.name == "websocket"] = caller
            caller.start(trio.sleep_forever)
        if method == "pour":
            wish = bytes(params)
            await self._pour(self._callers[b"websocket" in wish], is_calls=b"calls" in wish)
        return {"subscription": "1", "head": self._head, "complete": True}

    def _status(self) -> Any:
        """As much of it as is looked at."""
        pool = SimpleNamespace(mode="running", total=0, idle=0, leased=0, max=0, waiting=0)
        gateway = SimpleNamespace(runs=0, sessions=0, events=SimpleNamespace(head=self._head))
        return SimpleNamespace(pool=pool, gateway=gateway)

    async def _pour(self, caller: Caller, *, is_calls: bool) -> None:
        for batch in _batches(self._calls() if is_calls else self._texts()):
            await caller.push_encoded("events", b'{"subscription":"1","events":[%b]}' % b",".join(batch))

    def _texts(self) -> Iterator[bytes]:
        for number in range(_PIECES):
            run = number // _PIECES_OF_A_RUN
            yield self._event("progress", "text_chunk", run, b'{"delta":"word "}')
            if number % _PIECES_OF_A_RUN == _PIECES_OF_A_RUN - 1:
                yield self._done(run, is_last=number == _PIECES - 1)

    def _calls(self) -> Iterator[bytes]:
        data = b'{"call":{"id":"c1","name":"bash","input_preview":"make","state":"COMPLETED"},"tail":"done"}'
        for _ in range(_CALLS):
            yield self._event("progress", "tool:end", 0, data)
        yield self._done(0, is_last=True)

    def _done(self, run: int, *, is_last: bool) -> bytes:
        text = _END if is_last else b"so it is"
        return self._event("progress", "done", run, b'{"reason":"completed","text":"%b"}' % text)

    def _event(self, channel: str, kind: str, run: int, data: bytes) -> bytes:
        self._head += 1
        envelope = (
            b'{"seq":%d,"ts":1700000000.123,"session":"alice","channel":"%b","type":"%b","data":%b,"run_id":"r%d"}'
        )
        return envelope % (self._head, channel.encode(), kind.encode(), data, run)


def _batches(items: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


if __name__ == "__main__":
    trio.run(serve, _Handlers(), Path(sys.argv[1]))
