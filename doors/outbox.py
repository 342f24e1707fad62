"""What waits to be written to one peer: bounded, written in few large sends, given up when the peer stops reading."""

import trio

__all__ = ["Outbox", "PeerGone"]


class PeerGone(Exception):
    """The peer closed its end, or took nothing for too long."""


class Outbox:
    """The bytes on their way to one socket.

    At most ``limit`` bytes wait, plus one piece, plus what is being written at the moment; who has more waits in
    ``put``. Everything that gathers while one send is under way leaves in the next.
    """

    def __init__(self, sock: trio.socket.SocketType, *, limit: int, stall: float) -> None:
        """``stall``: seconds without the peer taking a single byte after which it counts as gone."""
        self._sock = sock
        self._limit = limit
        self._stall = stall
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._unsent = memoryview(b"")
        self._filled = trio.Event()
        self._room = trio.Event()

    @property
    def held_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._waiting_bytes + len(self._unsent)

    async def put(self, piece: bytes) -> None:
        """Add a piece, waiting first while too much waits already. Does not yield while there is room."""
        while self._waiting_bytes >= self._limit:
            await self._room.wait()
        self.put_nowait(piece)

    def put_nowait(self, piece: bytes) -> None:
        """Add a piece whatever waits already: for the last words of a connection."""
        self._parts.append(piece)
        self._waiting_bytes += len(piece)
        self._filled.set()

    async def send_forever(self) -> None:
        """Write what comes; raises PeerGone. A cancelled send is taken up again by ``flush``."""
        while True:
            await self._filled.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write all that waits now; raises PeerGone."""
        while self._unsent or self._parts:
            if not self._unsent:
                self._take_all()
            self._unsent = self._unsent[await self._send_some() :]

    def _take_all(self) -> None:
        self._unsent = memoryview(b"".join(self._parts))
        self._parts.clear()
        self._waiting_bytes = 0
        self._filled = trio.Event()
        self._room.set()
        self._room = trio.Event()

    async def _send_some(self) -> int:
        try:
            with trio.fail_after(self._stall):
                return await self._sock.send(self._unsent)
        except trio.TooSlowError as exc:
            raise PeerGone(f"the peer has read nothing for {self._stall:g} s") from exc
        except OSError as exc:
            raise PeerGone(f"the peer closed the connection: {exc.strerror}") from exc
