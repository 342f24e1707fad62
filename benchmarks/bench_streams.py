"""One worker's 400,000 pieces through a real supervisor to one reader of each door, and what a reader costs who waits.

A reader looks no closer at what it gets than it must to count the pieces.
"""

import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from websockets.sync.client import ClientConnection, connect

from benchmarks import stream_worker
from benchmarks.harness import Result, result
from benchmarks.programs import program
from benchmarks.promises import Promise
from benchmarks.supervisor import STREAMING_AGENT, Supervisor, running
from doors.control.client import ControlClient

_PIECES = 400_000
_PIECE = "word "
_ROUNDS = 3
_IDLE = 500
_PATIENCE = 30.0
_TOKEN = "a-token-of-the-benchmarks"
_SETTINGS = f"""
[http]
bind = "127.0.0.1:0"
token = "{_TOKEN}"
max_connections = {_IDLE + 10}
rate = 0
{STREAMING_AGENT}
"""

Reader = Callable[[Supervisor], AbstractContextManager[Callable[[], int]]]
"""A context manager that connects, and gives a function that waits for the end; its value: the pieces that it saw."""


def run() -> list[Result]:
    return [found for measure in (_streams, _idle) for found in _alone(measure)]


def _alone(measure: Callable[[Supervisor], list[Result]]) -> list[Result]:
    """With a supervisor of its own: memory that others have used and left would be taken for nothing."""
    with tempfile.TemporaryDirectory(prefix="pool-") as place, running(Path(place), _SETTINGS) as supervisor:
        return measure(supervisor)


# --- streams ----------------------------------------------------------------------------------------------------------


def _streams(supervisor: Supervisor) -> list[Result]:
    bare = _cat()
    _rate(supervisor, _control_reader)  # the worker makes its blocks
    return [
        result(
            f"to a reader of the {door}",
            max(_rate(supervisor, reader) for _ in range(_ROUNDS)),
            "/s",
            promise=Promise.DOORS,
            beside=(bare, "/s the worker's bytes, unread"),
            at_least=at_least,
        )
        for door, reader, at_least in (
            ("control socket", _control_reader, 500_000),
            ("SSE door, in batches", _sse_reader, 200_000),
            ("WebSocket door, joined", _websocket_reader, 20_000),
        )
    ]


def _rate(supervisor: Supervisor, reader: Reader) -> float:
    """Pieces a second, from the prompt to the last one."""
    with reader(supervisor) as wait, ControlClient(supervisor.socket) as client:
        started = time.perf_counter()
        accepted = client.call("agent", {"session": "stream", "text": str(_PIECES), "queue": "followup"})
        seen = wait()
        taken = time.perf_counter() - started
        client.call("agent.wait", {"run_id": accepted["run_id"]})
    return seen / taken


@contextmanager
def _control_reader(supervisor: Supervisor) -> Iterator[Callable[[], int]]:
    with ControlClient(supervisor.socket) as client:
        subscription = client.subscribe({"session": "stream", "channels": ["progress"]})
        yield lambda: _count(bytes(events) for events in subscription)


@contextmanager
def _sse_reader(supervisor: Supervisor) -> Iterator[Callable[[], int]]:
    with socket.create_connection(("127.0.0.1", supervisor.http_port())) as sock:
        path = "/events?session=stream&channels=progress&batch=true"
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n".encode(),
        )
        head = sock.recv(65536)
        if b" 200 " not in head:
            raise AssertionError(head)
        yield lambda: _count(iter(lambda: sock.recv(1 << 20), b""))


def _count(blocks: Iterator[bytes]) -> int:
    mark = b'"text_chunk"'
    seen, tail = 0, b""
    for block in blocks:
        data = tail + block
        seen += data.count(mark)
        if seen >= _PIECES:
            return seen
        tail = data[-len(mark) + 1 :]
    raise AssertionError(f"the stream ended after {seen} pieces")


@contextmanager
def _websocket_reader(supervisor: Supervisor) -> Iterator[Callable[[], int]]:
    """Pieces that arrive together are published as one event, so their text is counted, not the events.

    A reader that is too slow loses some, and still receives the end of the run.
    """
    with _websocket(supervisor) as websocket:
        yield lambda: _count_text(websocket)


def _count_text(websocket: ClientConnection) -> int:
    seen = 0
    while True:
        event = json.loads(websocket.recv(_PATIENCE))
        if event.get("event") == "agent":
            data = event["payload"]["data"]
            if event["payload"]["stream"] == "lifecycle" and data.get("phase") == "end":
                return seen // len(_PIECE)
            seen += len(data.get("delta", ""))


def _cat() -> float:
    """Baseline: the same worker, read by a client that discards the lines."""
    taken = 0.0  # of the second prompt; the first one warms the worker
    with program((sys.executable, "-P", str(Path(stream_worker.__file__)))) as worker:
        for number in range(2):
            started = time.perf_counter()
            worker.say(b'{"id":"%d","method":"prompt","params":{"text":"%d"}}\n' % (number, _PIECES))
            tail = b""
            while b'"id":"%d"' % number not in tail:
                tail = tail[-20:] + os.read(worker.stdout.fileno(), 1 << 20)
            taken = time.perf_counter() - started
    return _PIECES / taken


# --- readers that wait ------------------------------------------------------------------------------------------------


def _idle(supervisor: Supervisor) -> list[Result]:
    """Connect without a subscription; the first connection creates the shared parts."""
    with ExitStack() as stack:
        stack.enter_context(_websocket(supervisor))
        before = supervisor.memory()
        for _ in range(_IDLE):
            stack.enter_context(_websocket(supervisor))
        cost = (supervisor.memory() - before) * 1048.576 / _IDLE
    return [result(f"each of {_IDLE}", cost, "kB", promise=Promise.IDLE_WEBSOCKET, at_most=40.0)]


@contextmanager
def _websocket(supervisor: Supervisor) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{supervisor.http_port()}/ws", compression=None, max_size=None) as websocket:
        websocket.recv()
        params = {"minProtocol": 4, "maxProtocol": 4, "auth": {"token": _TOKEN}}
        websocket.send(json.dumps({"type": "req", "id": "1", "method": "connect", "params": params}))
        if not json.loads(websocket.recv())["ok"]:
            raise AssertionError("not let in")
        yield websocket
