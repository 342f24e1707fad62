"""What has arrived for one request and its endpoint has not taken yet: bounded, and never in the way of its end."""

from collections import deque
from typing import Any

import trio

__all__ = ["Inbox"]

_ENDS = frozenset({"http.disconnect", "websocket.disconnect"})


class Inbox:
    """ASGI's messages for one endpoint; pieces of a body that wait are joined.

    ``put`` waits while ``limit`` bytes wait, until the endpoint takes them, has ended, or the peer is gone.
    """

    __slots__ = ("_end", "_has_ended", "_limit", "_messages", "_room", "_size", "_taker")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[dict[str, Any]] = deque()
        self._size = 0
        self._end: dict[str, Any] | None = None
        self._has_ended = False
        self._taker = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def put(self, message: Any) -> None:
        """Add a message; the last one, that the peer is gone, does not wait."""
        if message["type"] in _ENDS:
            self._end = message
            self._taker.unpark()
            self._room.unpark_all()
            return
        await trio.lowlevel.checkpoint()
        while self._size >= self._limit and self._end is None and not self._has_ended:
            await self._room.park()
        if not self._has_ended:
            self._add(message)
            self._taker.unpark()

    def _add(self, message: dict[str, Any]) -> None:
        self._size += len(message.get("body") or message.get("bytes") or message.get("text") or b"")
        if message["type"] != "http.request":
            self._messages.append(message)
        elif self._messages:
            self._messages[-1]["body"] += message["body"]
            self._messages[-1]["more_body"] = message["more_body"]
        else:
            self._messages.append({**message, "body": bytearray(message["body"])})

    async def receive(self) -> dict[str, Any]:
        """The next message: ASGI's ``receive``. Once the peer is gone it says so each time it is asked."""
        await trio.lowlevel.checkpoint()
        while not self._messages:
            if self._end is not None:
                return self._end
            await self._taker.park()
        message = self._messages.popleft()
        self._size = 0 if not self._messages else self._size - len(message.get("bytes") or message.get("text") or b"")
        if message["type"] == "http.request":
            message["body"] = bytes(message["body"])
        self._room.unpark_all()
        return message

    def end(self) -> None:
        """The endpoint has ended: nothing waits for it any more."""
        self._has_ended = True
        self._messages.clear()
        self._room.unpark_all()
