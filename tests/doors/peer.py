"""A raw peer of the control socket for tests: says any bytes, reads lines."""

from pathlib import Path
from typing import Any

import msgspec
import trio

from wire.framing import LineFramer


class Peer:
    """One connection; everything it waits for it gets within 20 s, or the test fails."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.received_chunks = 0
        self._framer = LineFramer()
        self._lines: list[bytes] = []

    @classmethod
    async def connect(cls, path: Path) -> "Peer":
        return cls(await trio.open_unix_socket(str(path)))

    async def say(self, line: bytes) -> None:
        await self.stream.send_all(line + b"\n")

    async def ask(self, request_id: Any, method: str, **params: Any) -> None:
        await self.say(msgspec.json.encode({"id": request_id, "method": method, "params": params}))

    async def hear(self) -> dict[str, Any] | None:
        """The next line, or None at the end of the stream."""
        with trio.fail_after(20):
            while not self._lines:
                try:
                    chunk = await self.stream.receive_some(1 << 20)
                except trio.BrokenResourceError:
                    return None
                if not chunk:
                    return None
                self.received_chunks += 1
                self._lines = self._framer.feed(bytes(chunk))
        line: dict[str, Any] = msgspec.json.decode(self._lines.pop(0))
        return line

    async def call(self, request_id: Any, method: str, **params: Any) -> dict[str, Any]:
        """Ask and return the answer; events on the way are passed over."""
        await self.ask(request_id, method, **params)
        while True:
            line = await self.hear()
            assert line is not None
            if "event" not in line:
                return line
