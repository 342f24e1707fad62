"""The command line's side of the control socket: blocking, without an event loop, quick to import."""

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from errors import PoolError, ProtocolViolation, RequestTimeout, error_from_wire
from wire.framing import DECODE_ERRORS, LineFramer
from wire.messages import Message, Request

__all__ = ["ControlClient", "NoSupervisor", "Pushed", "Stream"]

_CONNECT_SECONDS = 5
_CHUNK_BYTES = 256 * 1024
_UCRED = struct.Struct("3i")
_messages = msgspec.json.Decoder(Message)


class NoSupervisor(PoolError):
    """Nobody answers at the control socket."""

    code: ClassVar[str] = "no_supervisor"


class Pushed(NamedTuple):
    """An event of a request: its name, and its data as plain objects."""

    event: str
    data: dict[str, Any]


class ControlClient:
    """A connection to a supervisor; a context manager.

    Raises NoSupervisor from the constructor when nobody listens, and from any call when the supervisor goes away.
    A call that fails there raises the same class of PoolError as it would in the supervisor's own process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = _connect(path)
        self._framer = LineFramer()
        self._arrived: list[Message] = []
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; the supervisor drops what this connection still waited for."""
        self._socket.close()

    def call(self, method: str, params: Any = None, timeout: float | None = 30.0) -> Any:
        """Run a method and return its result as plain objects; events are passed over.

        ``timeout`` in seconds, None = as long as it takes. Raises RequestTimeout, and what the method raises.
        """
        stream = self.stream(method, params, timeout=timeout)
        for _ in stream:
            pass
        return stream.result

    def stream(self, method: str, params: Any = None, *, timeout: float | None = None) -> "Stream":
        """Run a method and follow its events; see ``Stream``."""
        self._last_id += 1
        request_id = str(self._last_id)
        self._send(Request(request_id, method, {} if params is None else params))
        return Stream(self, request_id, method, None if timeout is None else time.monotonic() + timeout)

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until the supervisor has closed the connection and, where the system can tell, its process has ended.

        False when that takes longer than ``timeout`` seconds.
        """
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

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _send(self, request: Request) -> None:
        self._socket.settimeout(None)
        try:
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # turned away at the door; the reason lies in what can still be read

    def _receive(self, deadline: float | None) -> list[Message]:
        """Wait for messages; raises TimeoutError, NoSupervisor."""
        while not self._arrived:
            block = self._receive_block(deadline)
            if not block:
                raise NoSupervisor(f"the supervisor on {self.path} closed the connection before it answered")
            for line in self._framer.feed(block):
                self._arrived.append(_decode(line))
        arrived, self._arrived = self._arrived, []
        return arrived

    def _receive_block(self, deadline: float | None) -> bytes:
        self._socket.settimeout(_left(deadline))
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError as exc:  # what a timeout of 0 raises
            raise TimeoutError from exc
        except ConnectionResetError:
            return b""


class Stream:
    """One request that is being followed: iterate over batches of events as they arrive, then read ``result``.

    Iterating raises the error the request ended with, or RequestTimeout when its time is up.
    """

    def __init__(self, client: ControlClient, request_id: str, method: str, deadline: float | None) -> None:
        self._client = client
        self._id = request_id
        self._method = method
        self._deadline = deadline
        self.result: Any = None

    def __iter__(self) -> Iterator[list[Pushed]]:
        """Events in the batches the socket delivered them in; ends with the request."""
        while True:
            messages = self._receive()
            batch = [pushed for message in messages if (pushed := self._event(message)) is not None]
            if batch:
                yield batch
            if self._has_answer(messages):
                return

    def _receive(self) -> list[Message]:
        try:
            return self._client._receive(self._deadline)  # noqa: SLF001  # a stream is a part of its client
        except TimeoutError as exc:
            raise RequestTimeout(
                f"the supervisor on {self._client.path} did not answer {self._method} in time; "
                "is it stopped or overloaded?"
            ) from exc

    def _event(self, message: Message) -> Pushed | None:
        if message.event is None:
            return None
        data = msgspec.json.decode(message.data)
        if not isinstance(data, dict) or data.pop("request", None) != self._id:
            return None
        return Pushed(message.event, data)

    def _has_answer(self, messages: list[Message]) -> bool:
        for message in messages:
            if message.event is None and message.id in (self._id, None):  # null: the connection as a whole is refused
                if message.error is not None:
                    raise error_from_wire(message.error.code, message.error.message, message.error.data)
                self.result = msgspec.json.decode(message.result)
                return True
        return False


def _decode(line: bytes) -> Message:
    try:
        return _messages.decode(line)
    except DECODE_ERRORS as exc:
        raise ProtocolViolation(f"what answers on the socket is no supervisor of this version: {exc}") from exc


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # a blocking connect waits for its turn at a busy supervisor, but not for ever at a stopped one
    _limit_sends(connection, _CONNECT_SECONDS)
    try:
        connection.connect(os.fspath(path))
    except OSError as exc:
        connection.close()
        raise NoSupervisor(_why_not(path, exc)) from exc
    _limit_sends(connection, 0)
    return connection


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
    if not (hasattr(os, "pidfd_open") and hasattr(socket, "SO_PEERCRED")):
        return None
    pid, _uid, _gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
