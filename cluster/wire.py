"""A stream between two machines: descriptors, with TLS or without; what is sent leaves in the caller's own step."""

import hashlib
import hmac
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Self

import trio

from cluster.frames import CHUNK_BYTES, LinkViolation
from errors import PoolError
from rpc.pipes import Pipe

_HANDSHAKE_TIMEOUT = 5.0  # seconds


class WireClosed(PoolError):
    """The stream has ended: its other end was closed, or the connection broke. Its text says how."""

    code = "link_closed"


class LinkWire:
    """Bytes both ways over one or two descriptors, which belong to it until ``close``.

    ``send`` never waits: what the descriptor does not take is queued, and ``run_writer`` writes it. The queue is
    bounded by those who send, who wait for credit, and by ``Link.reply``. ``sent_bytes``: all that was ever sent, of
    which ``queued_bytes`` wait.
    """

    def __init__(self, incoming: Pipe, outgoing: Pipe, tls: "_Tls | None" = None) -> None:
        self._in, self._out = incoming, outgoing
        self._tls = tls
        self._queue: deque[memoryview] = deque()
        self._not_empty = trio.lowlevel.ParkingLot()
        self.queued_bytes = self.sent_bytes = 0
        self._close_reason = ""
        self.peer_fingerprint = ""
        """SHA-256 of the supervisor's certificate, in hex, where this end has dialled."""

    @classmethod
    def of_pipes(cls, incoming: int, outgoing: int) -> Self:
        """Over two descriptors that do not block."""
        return cls(Pipe(incoming), Pipe(outgoing))

    @classmethod
    async def dial(cls, host: str, port: int, fingerprint: str) -> Self:
        """Connect to a supervisor whose certificate has this SHA-256 (hex). Raises OSError, LinkViolation, WireClosed.

        The fingerprint takes the place of names and authorities: it is checked before anything is sent. "" takes any;
        then both ends have to prove that they know the same token.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # by its fingerprint instead
        stream = await trio.open_tcp_stream(host, port)
        wire = cls._over(stream.socket, context, server_side=False)
        try:
            found = wire.peer_fingerprint = hashlib.sha256(await wire.shake_hands()).hexdigest()
        except BaseException:
            wire.close()
            raise
        if fingerprint and not hmac.compare_digest(found, fingerprint.lower()):
            wire.close()
            raise LinkViolation(f"the supervisor at {host}:{port} has another certificate: {found}")
        return wire

    @classmethod
    def accepted(cls, connection: trio.socket.SocketType, context: ssl.SSLContext) -> Self:
        """Over a connection that a node has opened; the caller runs ``shake_hands`` first."""
        return cls._over(connection, context, server_side=True)

    @classmethod
    def _over(cls, connection: trio.socket.SocketType, context: ssl.SSLContext, *, server_side: bool) -> Self:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trio.lowlevel.notify_closing(connection.fileno())
        pipe = Pipe(connection.detach())
        return cls(pipe, pipe, _Tls(context, server_side=server_side))

    async def shake_hands(self) -> bytes:
        """Agree on keys, where there is TLS; the other end's certificate, empty where it has none.

        Raises LinkViolation, WireClosed.
        """
        if self._tls is None:
            return b""
        try:
            with trio.fail_after(_HANDSHAKE_TIMEOUT):
                while not self._tls.shake_hands():
                    self._write(self._tls.outgoing())
                    await self._flush()
                    self._tls.feed(await self._read())
                self._write(self._tls.outgoing())
                await self._flush()
                return self._tls.peer_certificate()
        except ssl.SSLError as exc:
            raise LinkViolation(f"TLS: {exc.reason or exc}") from exc
        except trio.TooSlowError as exc:
            raise LinkViolation(f"TLS: no handshake within {_HANDSHAKE_TIMEOUT:g} s") from exc

    async def receive(self) -> bytes:
        """The next bytes, as many as there are. Raises WireClosed at the end, LinkViolation for what is no TLS."""
        try:
            while True:
                if self._tls is None:
                    return await self._read()
                if data := self._tls.decrypt():
                    return data
                self._tls.feed(await self._read())
        except ssl.SSLError as exc:
            raise LinkViolation(f"TLS: {exc.reason or exc}") from exc

    def send(self, data: bytes) -> None:
        """Write it now, as far as that goes without waiting. After the end nothing happens: ``receive`` reports it.

        Nor is anything sent before the handshake, or over TLS that the other end has broken.
        """
        if self._out.is_closed:
            return
        if self._tls is None:
            self._write(data)
            return
        try:
            encrypted = self._tls.encrypt(data)
        except ssl.SSLError:
            return
        self._write(encrypted)

    async def run_writer(self) -> None:
        """Write what is queued until cancelled, or until the stream cannot be written any more."""
        try:
            while True:
                while not self._queue:
                    await self._not_empty.park()
                await self._flush()
        except WireClosed:
            return  # the reader meets the same end, and says how

    async def wait_written(self) -> None:
        """Write what is queued, where ``run_writer`` does not; returns also where that cannot be."""
        with suppress(WireClosed):
            await self._flush()

    def close(self, reason: str = "closed") -> None:
        """Close the descriptors; tasks that wait on them wake up, ``receive`` with WireClosed and the reason."""
        self._close_reason = self._close_reason or reason
        self._in.close()
        self._out.close()
        self._queue.clear()
        self.queued_bytes = 0

    async def _read(self) -> bytes:
        while True:
            try:
                data = self._in.read_nowait(CHUNK_BYTES)
            except OSError as exc:
                raise WireClosed(exc.strerror or str(exc)) from exc
            if data == b"":
                raise WireClosed(self._close_reason or "closed by the other end")
            if data is not None:
                return data
            await self._in.wait_readable()

    def _write(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        taken = 0
        if not self._queue:
            try:
                taken = self._out.write_nowait(data)
            except OSError:
                return  # the stream has ended
        if taken < len(data):
            self._queue.append(memoryview(data)[taken:])
            self.queued_bytes += len(data) - taken
            self._not_empty.unpark()

    async def _flush(self) -> None:
        while self._queue:
            await self._out.wait_writable()
            if not self._queue:
                return  # ``close`` has dropped it
            try:
                taken = self._out.write_nowait(self._queue[0])
            except OSError as exc:
                raise WireClosed(exc.strerror or str(exc)) from exc
            self.queued_bytes -= taken
            if taken < len(self._queue[0]):
                self._queue[0] = self._queue[0][taken:]
            else:
                self._queue.popleft()


class _Tls:
    """TLS between memory and memory."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=server_side)

    def feed(self, data: bytes) -> None:
        self._in.write(data)

    def outgoing(self) -> bytes:
        return self._out.read()

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is complete."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def peer_certificate(self) -> bytes:
        return self._object.getpeercert(binary_form=True) or b""

    def encrypt(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._out.read()

    def decrypt(self) -> bytes:
        """What can be read now; empty: nothing. Raises WireClosed at the end."""
        try:
            data = self._object.read(CHUNK_BYTES)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError as exc:
            raise WireClosed("closed by the other end") from exc
        if not data:
            raise WireClosed("closed by the other end")
        return data
