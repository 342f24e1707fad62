"""The blocking end of the control socket: connects, sends requests, hands what arrives to whom it is for."""

import collections
import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from errors import NoSupervisor, PoolError, ProtocolViolation, RequestTimeout, UsageError, error_from_wire
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import EMPTY, Message, Request

_CONNECT_SECONDS = 5
_LOOK_SECONDS = 5.0
"""Who waits for an answer looks so often whether the supervisor is suspended; twice in a row is the end of it."""
_CHUNK_BYTES = 256 * 1024
_UCRED = struct.Struct("3i")


class PushData(msgspec.Struct, frozen=True, gc=False):
    """The data of a push: whose it is, ``events`` as an undecoded JSON array of envelopes, how a subscription ended."""

    request: str | int | None = None
    subscription: str | int | None = None
    events: msgspec.Raw = EMPTY
    bookmark: int | None = None
    reason: str | None = None


class Pushed(NamedTuple):
    """A push: its name, its data."""

    event: str
    data: PushData


Arrived = collections.deque[Message | Pushed]
"""What has come and nobody has taken yet, the oldest at the left."""


class Address(NamedTuple):
    """Whom a line is for: the request of that id, or the subscription."""

    kind: str
    id: str | int | None


_messages = msgspec.json.Decoder(Message)
_push_data = msgspec.json.Decoder(PushData)


class ControlWire:
    """One connection, and what has arrived on it for each of its requests and subscriptions."""

    def __init__(self, path: Path) -> None:
        """Raises NoSupervisor when nobody listens."""
        self.path = path
        self._socket = connect(path)
        self._framer = LineFramer()
        self._arrived: dict[Address, Arrived] = {}
        self._unclaimed: list[Pushed] | None = None
        self._refusal: PoolError | None = None

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, request: Request) -> Address:
        """Send a request; what is for it is kept from now on until ``forget``. Raises UsageError: it cannot be said."""
        line = _encode(request)
        address = Address("request", request.id)
        self._arrived[address] = collections.deque()
        self._socket.settimeout(None)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # turned away at the door; the reason lies in what can still be read
            self._socket.sendall(line)
        return address

    def forget(self, address: Address) -> None:
        """Nobody wants what else comes for it."""
        self._arrived.pop(address, None)

    @contextlib.contextmanager
    def subscribing(self) -> Iterator[Callable[[Address], None]]:
        """While a subscription begins, keep what comes for one that nobody knows yet; call the value to claim it."""
        self._unclaimed = unclaimed = list[Pushed]()

        def claim(address: Address) -> None:
            self._arrived[address] = collections.deque(
                pushed for pushed in unclaimed if pushed.data.subscription == address.id
            )

        try:
            yield claim
        finally:
            self._unclaimed = None

    def receive(self, address: Address, deadline: float | None) -> Arrived:
        """Wait until there is something for this one, to be taken from the left; what is for others is kept for them.

        ``deadline`` by ``time.monotonic``. Raises TimeoutError, NoSupervisor, RequestTimeout (what should answer is
        suspended), and the reason the connection is refused.
        """
        mine = self._arrived.setdefault(address, collections.deque())
        while not mine:
            if self._refusal is not None:
                raise self._refusal
            block = self._receive_block(deadline) if address.kind == "subscription" else self._receive_answer(deadline)
            if not block:
                when = " before it answered" if address.kind == "request" else ""
                raise NoSupervisor(f"the supervisor on {self.path} closed the connection{when}")
            for line in self._framer.feed(block):
                self._sort(_decode(line))
        return mine

    def wait_closed(self, timeout: float | None) -> bool:
        """Wait until the supervisor has closed the connection and, where the system can tell, its process has ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        process = _open_peer_process(self._socket)
        try:
            while self._receive_block(deadline):
                pass
            return process is None or bool(select.select([process], [], [], _left(deadline))[0])
        except TimeoutError:
            return False
        finally:
            if process is not None:
                os.close(process)

    def _sort(self, arrived: Message | Pushed) -> None:
        if isinstance(arrived, Message):
            address = Address("request", arrived.id)
            if arrived.id is None and arrived.error is not None:  # the connection as a whole is refused
                error = arrived.error
                self._refusal = error_from_wire(error.code, error.message, error.data)
        elif arrived.data.subscription is not None:
            address = Address("subscription", arrived.data.subscription)
        else:
            address = Address("request", arrived.data.request)
        if (waiting := self._arrived.get(address)) is not None:
            waiting.append(arrived)
        elif self._unclaimed is not None and isinstance(arrived, Pushed):
            self._unclaimed.append(arrived)

    def _receive_answer(self, deadline: float | None) -> bytes:
        """The same, but for no longer than the supervisor could answer: one that is suspended is given up."""
        was_suspended = False
        while True:
            look = time.monotonic() + _LOOK_SECONDS
            if deadline is not None and deadline <= look:
                return self._receive_block(deadline)
            try:
                return self._receive_block(look)
            except TimeoutError:
                is_suspended = self._is_suspended()
                if is_suspended and was_suspended:
                    raise self._suspended() from None
                was_suspended = is_suspended

    def _is_suspended(self) -> bool:
        """Whether a signal (or a debugger) has stopped the supervisor's process; False where nobody can tell."""
        pid, _uid = peer_of(self._socket)
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])

    def _suspended(self) -> RequestTimeout:
        pid, _uid = peer_of(self._socket)
        return RequestTimeout(
            f"the supervisor on {self.path} (pid {pid}) is suspended by a signal and answers nobody; "
            f"`kill -CONT {pid}` lets it go on, and with it what was asked for"
        )

    def _receive_block(self, deadline: float | None) -> bytes:
        self._socket.settimeout(_left(deadline))
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError as exc:  # what a timeout of 0 raises
            raise TimeoutError from exc
        except ConnectionResetError:
            return b""


def _encode(request: Request) -> bytes:
    try:
        return msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError as exc:  # bytes of a command line that are no text
        raise UsageError(f"what is asked for is not UTF-8 text: {exc}") from exc


def _decode(line: bytes) -> Message | Pushed:
    try:
        message = _messages.decode(line)
        return message if message.event is None else Pushed(message.event, _push_data.decode(message.data))
    except DECODE_ERRORS as exc:
        raise ProtocolViolation(f"what answers on the socket is no supervisor of this version: {exc}") from exc


def connect(path: Path) -> socket.socket:
    """A connected socket that blocks. Raises NoSupervisor, and UsageError where another user listens there.

    Whoever may write to the directory of a socket can listen in a supervisor's place, and would be told everything.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # a blocking connect waits for its turn at a busy supervisor, but not for ever at a stopped one
    _limit_sends(connection, _CONNECT_SECONDS)
    try:
        connection.connect(os.fspath(path))
    except OSError as exc:
        connection.close()
        raise NoSupervisor(_why_not(path, exc)) from exc
    _limit_sends(connection, 0)
    uid = peer_of(connection)[1]
    if uid not in (0, os.geteuid()) and os.geteuid() != 0:
        connection.close()
        raise UsageError(f"what listens on {path} belongs to another user ({uid}); it is not asked anything")
    return connection


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of whoever listens; where the system cannot tell, a process that is not and ourselves."""
    if not hasattr(socket, "SO_PEERCRED"):
        return -1, os.geteuid()
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def _limit_sends(connection: socket.socket, seconds: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", seconds, 0))


def _why_not(path: Path, exc: OSError) -> str:
    match exc:
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no supervisor listens on {path}; start one with: pool run"
        case BlockingIOError():
            return f"the supervisor on {path} does not accept connections; is it stopped or overloaded?"
        case _:
            return f"cannot reach a supervisor on {path}: {exc.strerror or exc}"


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _open_peer_process(connection: socket.socket) -> int | None:
    """A pidfd of the supervisor's process; None where there is no such thing, or the process has ended."""
    pid, _uid = peer_of(connection)
    if pid < 0 or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
