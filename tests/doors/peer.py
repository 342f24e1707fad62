"""A raw peer of the control socket for tests: sends any bytes, reads lines, each within 20 s or the test fails."""

from pathlib import Path
from typing import Any

import msgspec
import trio

from wire.framing import LineFramer


class Peer:
    """One connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.received_chunks = 0
        self._framer = LineFramer()
        self._lines: list[bytes] = []

    @classmethod
    async def connect(cls, path: Path) -> "Peer":
        return cls(await trio.open_unix_socket(str(path)))

    def close(self) -> None:
        self.stream.socket.close()

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

    async def line(self) -> dict[str, Any]:
        """The next line."""
        line = await self.hear()
        assert line is not None, "the connection has ended"
        return line

    async def refusal(self) -> tuple[Any, str, str]:
        """The next line, an error: its id, code and message."""
        line = await self.line()
        return line["id"], line["error"]["code"], line["error"]["message"]

    async def rest(self) -> list[dict[str, Any]]:
        """All lines to the end of the stream."""
        lines = []
        while (line := await self.hear()) is not None:
            lines.append(line)
        return lines

    async def call(self, request_id: Any, method: str, **params: Any) -> dict[str, Any]:
        """Ask and return the answer; events on the way are passed over."""
        await self.ask(request_id, method, **params)
        while "event" in (line := await self.line()):
            pass
        return line
