"""What waits to be written to one peer: bounded, written in few large sends, given up when the peer stops reading."""

import math
import socket

import trio

from doors.budgets import OutputShare


class PeerDisconnected(Exception):
    """The peer closed its end, or took nothing for too long."""


class SendQueue:
    """The bytes on their way to one socket.

    At most ``limit`` bytes wait, plus one piece, plus what is being written at the moment; who has more waits in
    ``put``. Last words may take as much again. Everything that gathers until a send leaves in it. All of it is charged
    to a share, the pieces of those who wait included: a single one may be far larger than the limit.
    """

    def __init__(self, sock: socket.socket, *, limit: int, stall: float, share: OutputShare) -> None:
        """``sock`` does not block; ``stall``: seconds without it taking a byte after which the peer counts as gone."""
        self._sock = sock
        self._limit = limit
        self._stall = stall
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._unsent: bytes | memoryview = b""
        self._block_bytes = 0
        self._parked_bytes = 0
        self._share = share
        self._writer = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._is_closing = False
        self._is_discarded = False

    @property
    def held_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._waiting_bytes + len(self._unsent)

    @property
    def is_full(self) -> bool:
        """Whether ``put`` would wait."""
        return self._waiting_bytes >= self._limit

    # --- pieces in --------------------------------------------------------------------------------------------------

    async def put(self, piece: bytes) -> None:
        """Add a piece, waiting first while too much waits already. Does not yield while there is room.

        Last words, of a task that is being cancelled or a connection that closes, find room without waiting.
        """
        while self.is_full and not self._has_reserve():
            self._writer.unpark()
            await self._wait_for_room(len(piece))
        if self._is_discarded:
            await trio.lowlevel.checkpoint()  # a sender to a lost peer must notice its own cancellation
        self.put_nowait(piece)

    async def send(self, piece: bytes) -> None:
        """The same, and write it at once, with all that has gathered before it; the writer is not woken."""
        if self.is_full or self._is_discarded:
            await self.put(piece)
        else:
            self.add(piece)
            self.send_now()

    def put_nowait(self, piece: bytes) -> None:
        """Add a piece whatever waits already."""
        self.add(piece)
        self._writer.unpark()

    def add(self, piece: bytes) -> None:
        """The same for who will call ``send_now`` before it waits for anything: the writer is not woken."""
        if not self._is_discarded:
            self._parts.append(piece)
            self._waiting_bytes += len(piece)
            if self._waiting_bytes + self._block_bytes + self._parked_bytes > self._share.free:
                self._charge()

    async def _wait_for_room(self, size: int) -> None:
        self._parked_bytes += size
        try:
            self._charge()
            if not self._is_discarded:
                await self._room.park()
        finally:
            self._parked_bytes -= size
            self._charge()

    def _charge(self) -> None:
        """Of a block that is being sent all is held until its last byte has gone."""
        self._share.charge(0 if self._is_discarded else self._waiting_bytes + self._block_bytes + self._parked_bytes)

    def _has_reserve(self) -> bool:
        if self._waiting_bytes >= 2 * self._limit:
            return False
        return self._is_closing or trio.current_effective_deadline() == -math.inf

    # --- bytes out --------------------------------------------------------------------------------------------------

    def send_now(self) -> None:
        """Write what the socket takes at once, and leave the rest to the writer."""
        if not (self._parts or self._unsent):
            return
        try:
            is_all = self._send_some()
        except PeerDisconnected:
            is_all = False  # the writer meets it again, and its loss is the connection's end
        if not is_all:
            self._writer.unpark()

    async def send_forever(self) -> None:
        """Be the writer: write what comes; raises PeerDisconnected. A cancelled send is taken up again by ``flush``."""
        try:
            while True:
                await self.flush()
                await self._writer.park()
        finally:
            self._is_closing = True
            self._room.unpark_all()

    async def flush(self) -> None:
        """Write all that waits now; raises PeerDisconnected."""
        while not self._send_some():
            try:
                with trio.fail_after(self._stall):
                    await trio.lowlevel.wait_writable(self._sock)
            except trio.TooSlowError as exc:
                raise PeerDisconnected(f"the peer has read nothing for {self._stall:g} s") from exc

    def discard(self) -> None:
        """The peer does not read any more: drop what waits, take no more, block no sender."""
        self._is_discarded = True
        self._drop_parts()
        self._unsent = b""
        self._block_bytes = 0
        self._charge()

    def _send_some(self) -> bool:
        """Write until all is written or the socket takes no more; whether nothing is left."""
        try:
            while self._unsent or self._parts:
                if not self._unsent:
                    self._unsent = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                    self._block_bytes = len(self._unsent)
                    self._drop_parts()
                sent = self._sock.send(self._unsent)
                self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""
            self._block_bytes = 0
        except BlockingIOError:
            return False
        except OSError as exc:
            raise PeerDisconnected(f"the peer closed the connection: {exc.strerror}") from exc
        finally:
            if self._share.charged:
                self._charge()
        return True

    def _drop_parts(self) -> None:
        self._parts.clear()
        self._waiting_bytes = 0
        if self._parked_bytes:
            self._room.unpark_all()
