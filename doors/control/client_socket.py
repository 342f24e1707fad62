"""The client's side of the control socket: its lines, and a blocking connection that sorts what arrives.

Everything that arrives belongs to a request or a subscription.
"""

import collections
import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from errors import NoSupervisor, PoolError, ProtocolViolation, RequestTimeout, UsageError, error_from_wire
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import EMPTY, Message, RequestMessage

_CONNECT_SECONDS = 5
_SUSPENDED_CHECK_SECONDS = 5.0
"""How often a waiting request checks whether the supervisor is suspended; twice in a row ends the wait."""
_CHUNK_BYTES = 256 * 1024
_UCRED = struct.Struct("3i")
T = TypeVar("T")
_messages = msgspec.json.Decoder(Message)


def encode_request(request_id: str, method: str, params: Any) -> bytes:
    """A request as a whole line. Raises UsageError for parameters that are not UTF-8 text."""
    try:
        return msgspec.json.encode(RequestMessage(request_id, method, params)) + b"\n"
    except UnicodeEncodeError as exc:  # bytes of a command line that are no text
        raise UsageError(f"the request is not UTF-8 text: {exc}") from exc


def decode_with(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Decode what a supervisor sent. Raises ProtocolViolation for what no supervisor of this version sends."""
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as exc:
        raise ProtocolViolation(f"what answers on the socket is no supervisor of this version: {exc}") from exc


class MessageReader:
    """Reads the messages of one connection."""

    def __init__(self) -> None:
        self._framer = LineFramer()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes. Raises ProtocolViolation."""
        for line in self._framer.feed(data):
            yield decode_with(_messages, line)


class PushData(msgspec.Struct, frozen=True, gc=False):
    """The data of a push. ``events``: an undecoded JSON array of envelopes; ``reason``: why a subscription ended.

    ``logs``: names of logs that have grown.
    """

    request: str | int | None = None
    subscription: str | int | None = None
    events: msgspec.Raw = EMPTY
    bookmark: int | None = None
    reason: str | None = None
    logs: tuple[str, ...] = ()


class ReceivedPush(NamedTuple):
    """A push: its name, its data."""

    event: str
    data: PushData


ReceivedQueue = collections.deque[Message | ReceivedPush]
"""What has arrived and was not taken, the oldest at the left."""


class Recipient(NamedTuple):
    """The request or subscription that a message is for."""

    kind: str
    id: str | int | None


_push_data = msgspec.json.Decoder(PushData)


class ControlSocket:
    """One connection with a queue for each request and subscription."""

    def __init__(self, path: Path) -> None:
        """Raises NoSupervisor when no supervisor listens."""
        self.path = path
        self._socket = connect(path)
        self._reader = MessageReader()
        self._received: dict[Recipient, ReceivedQueue] = {}
        self._unclaimed: list[ReceivedPush] | None = None
        self._connection_error: PoolError | None = None

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, request_id: str, method: str, params: Any) -> Recipient:
        """Send a request and keep what arrives for it until ``discard``. Raises UsageError: it cannot be encoded."""
        line = encode_request(request_id, method, params)
        address = Recipient("request", request_id)
        self._received[address] = collections.deque()
        self._socket.settimeout(None)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # turned away at the door; the reason lies in what can still be read
            self._socket.sendall(line)
        return address

    def discard(self, address: Recipient) -> None:
        """Drop what arrived and will arrive for it."""
        self._received.pop(address, None)

    @contextlib.contextmanager
    def subscribing(self) -> Iterator[Callable[[Recipient], None]]:
        """While a subscription begins, keep its pushes, whose id is not known yet; call the value to claim them."""
        self._unclaimed = unclaimed = list[ReceivedPush]()

        def claim(address: Recipient) -> None:
            self._received[address] = collections.deque(
                pushed for pushed in unclaimed if pushed.data.subscription == address.id
            )

        try:
            yield claim
        finally:
            self._unclaimed = None

    def receive(self, address: Recipient, deadline: float | None) -> ReceivedQueue:
        """Wait until its queue has something, to be taken from the left; fills the queues of others meanwhile.

        ``deadline`` by ``time.monotonic``. Raises TimeoutError, NoSupervisor, RequestTimeout (what should answer is
        suspended), and the reason the connection is refused.
        """
        mine = self._received.setdefault(address, collections.deque())
        while not mine:
            if self._connection_error is not None:
                raise self._connection_error
            block = self._receive_block(deadline) if address.kind == "subscription" else self._receive_answer(deadline)
            if not block:
                when = " before it answered" if address.kind == "request" else ""
                raise NoSupervisor(f"the supervisor on {self.path} closed the connection{when}")
            for message in self._reader.feed(block):
                self._route(message)
        return mine

    def open_process(self) -> int | None:
        """The same as ``ControlClient.open_process``."""
        return _open_peer_pidfd(self._socket)

    def wait_closed(self, timeout: float | None, *, process_too: bool) -> bool:
        """The same as ``ControlClient.wait_closed``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        process = self.open_process() if process_too else None
        try:
            while self._receive_block(deadline):
                pass
            return process is None or bool(select.select([process], [], [], _remaining(deadline))[0])
        except TimeoutError:
            return False
        finally:
            if process is not None:
                os.close(process)

    def _route(self, message: Message) -> None:
        if message.event is None:
            if message.id is None and message.error is not None:  # the connection as a whole is refused
                error = message.error
                self._connection_error = error_from_wire(error.code, error.message, error.data)
            self._deliver(Recipient("request", message.id), message)
            return
        pushed = ReceivedPush(message.event, decode_with(_push_data, message.data))
        if pushed.data.subscription is None:
            self._deliver(Recipient("request", pushed.data.request), pushed)
        elif (
            not self._deliver(Recipient("subscription", pushed.data.subscription), pushed)
            and self._unclaimed is not None
        ):
            self._unclaimed.append(pushed)

    def _deliver(self, address: Recipient, arrived: Message | ReceivedPush) -> bool:
        """Whether it was wanted."""
        waiting = self._received.get(address)
        if waiting is not None:
            waiting.append(arrived)
        return waiting is not None

    def _receive_answer(self, deadline: float | None) -> bytes:
        """Receive, but not from a suspended supervisor. Raises RequestTimeout."""
        was_suspended = False
        while True:
            look = time.monotonic() + _SUSPENDED_CHECK_SECONDS
            if deadline is not None and deadline <= look:
                return self._receive_block(deadline)
            try:
                return self._receive_block(look)
            except TimeoutError:
                pid, _uid = peer_credentials(self._socket)
                is_suspended = _is_suspended(pid)
                if is_suspended and was_suspended:
                    raise RequestTimeout(
                        f"the supervisor on {self.path} (pid {pid}) is suspended by a signal and does not answer; "
                        f"`kill -CONT {pid}` resumes it, and the request"
                    ) from None
                was_suspended = is_suspended

    def _receive_block(self, deadline: float | None) -> bytes:
        self._socket.settimeout(_remaining(deadline))
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError as exc:  # what a timeout of 0 raises
            raise TimeoutError from exc
        except ConnectionResetError:
            return b""


def connect(path: Path) -> socket.socket:
    """A connected socket that blocks. Raises NoSupervisor, and UsageError where another user listens there.

    Any user who can write to the socket's directory can listen in a supervisor's place, and would receive everything.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # a blocking connect waits for its turn at a busy supervisor, but not for ever at a stopped one
    _set_send_timeout(connection, _CONNECT_SECONDS)
    try:
        connection.connect(os.fspath(path))
    except OSError as exc:
        connection.close()
        raise NoSupervisor(_connect_error_text(path, exc)) from exc
    _set_send_timeout(connection, 0)
    uid = peer_credentials(connection)[1]
    if uid not in (0, os.geteuid()) and os.geteuid() != 0:
        connection.close()
        raise UsageError(f"what listens on {path} belongs to another user ({uid}); nothing is sent to it")
    return connection


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Process id and user of the other side; -1 and our own user where the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return -1, os.geteuid()
    pid, uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def _is_suspended(pid: int) -> bool:
    """Whether a signal (or a debugger) has stopped the process; False where the system does not show it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])


def _set_send_timeout(connection: socket.socket, seconds: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", seconds, 0))


def _connect_error_text(path: Path, exc: OSError) -> str:
    match exc:
        case FileNotFoundError() | ConnectionRefusedError():
            return f"no supervisor listens on {path}; start one with: pool run"
        case BlockingIOError():
            return f"the supervisor on {path} does not accept connections; is it stopped or overloaded?"
        case _:
            return f"cannot reach a supervisor on {path}: {exc.strerror or exc}"


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _open_peer_pidfd(connection: socket.socket) -> int | None:
    """A pidfd of the supervisor's process; None where there is no such thing, or the process has ended."""
    pid, _uid = peer_credentials(connection)
    if pid < 0 or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
