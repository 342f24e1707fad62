"""A front end in trio over the real socket: requests side by side, each event handed to a function."""

import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec.json import decode, encode

Envelope = dict[str, Any]
_CHUNK_BYTES = 1 << 20


class Lost(Exception):
    """The connection ended before the answer came: nobody can say whether the request was heard."""


class Refused(Exception):
    """The supervisor answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["code"], error["message"])
        self.code: str = error["code"]


class LineClient:
    """One connection. ``on_events`` is called with each event of every push, in the order of their arrival."""

    def __init__(self, stream: trio.SocketStream, on_events: Callable[[Envelope], None]) -> None:
        self._stream = stream
        self._on_events = on_events
        self._ids = itertools.count(1)
        self._waiting: dict[str, trio.MemorySendChannel[dict[str, Any]]] = {}
        self._sending = trio.Lock()
        self.ended = trio.Event()
        """Nothing more will come."""

    async def call(self, method: str, **params: Any) -> Any:
        """The result. Raises Lost, Refused."""
        if self.ended.is_set():
            raise Lost
        request_id = str(next(self._ids))
        self._waiting[request_id], answers = trio.open_memory_channel[dict[str, Any]](1)
        try:
            async with self._sending:
                await self._stream.send_all(encode({"id": request_id, "method": method, "params": params}) + b"\n")
            answer = await answers.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel) as exc:
            raise Lost from exc
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    async def read(self) -> None:
        """Take in what arrives until the connection ends; whole lines only."""
        rest = b""
        try:
            while chunk := await self._stream.receive_some(_CHUNK_BYTES):
                *lines, rest = (rest + bytes(chunk)).split(b"\n")
                for line in lines:
                    self._take(decode(line))
        except trio.BrokenResourceError:
            pass  # as good as an end: a supervisor that is killed says no goodbye
        finally:
            self.ended.set()
            for waiting in self._waiting.values():
                waiting.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "event" not in message:
            self._waiting.pop(message["id"]).send_nowait(message)
        elif message["event"] == "events":
            for envelope in message["data"]["events"]:
                self._on_events(envelope)
        else:  # an end is no loss where the whole connection ends
            assert message["data"]["reason"] == "closing", message


@asynccontextmanager
async def connected(
    path: Path, on_events: Callable[[Envelope], None], *, seconds: float = math.inf
) -> AsyncIterator[LineClient]:
    """A connection while the block lasts, and at most so many seconds."""
    with trio.fail_after(seconds):
        async with await trio.open_unix_socket(str(path)) as stream, trio.open_nursery() as nursery:
            client = LineClient(stream, on_events)
            nursery.start_soon(client.read)
            yield client
            nursery.cancel_scope.cancel()
