"""``pool acp``: the pool as an ACP agent that an editor starts.

One loop between stdin, stdout and the control socket; ``doors.acp.machine`` decides. It connects to a supervisor only
once the editor asks for something that needs one, and again after that one was lost.
"""

import errno
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from commands.completion import complete_agents, complete_roles, complete_sessions
from commands.options import connection_options, find_socket
from commands.poll_loop import READABLE, PollSet, exit_on_signal, write_available
from doors.acp.jsonrpc import EditorFramer
from doors.acp.machine import AcpMachine
from doors.acp.state import LaunchOptions
from doors.control.client_socket import MessageReader, connect
from errors import PoolError, ProtocolViolation, error_from_wire
from wire.version import VERSION


@click.command()
@click.option(
    "--agent", metavar="NAME", shell_complete=complete_agents, help="Agent definition of new sessions (default: main)."
)
@click.option("--role", metavar="NAME", shell_complete=complete_roles, help="Role of new sessions (default: default).")
@click.option(
    "--session",
    metavar="KEY",
    shell_complete=complete_sessions,
    help="The first new session gets this key, or is this session.",
)
@connection_options
def acp(socket: str | None, config: str | None, data_dir: str | None, **options: str | None) -> None:
    """Act as an ACP agent on stdin and stdout, for an editor that starts it.

    The editor's sessions are sessions of the pool: each works in the editor's directory and goes on when the editor
    leaves. A supervisor (pool run) is needed for all but the first request.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, exit_on_signal)
    launch = LaunchOptions(f"acp-{os.urandom(6).hex()}", VERSION, **options)
    program = AcpProgram(AcpMachine(launch), lambda: find_socket_apart(socket, config, data_dir))
    click.get_current_context().exit(program.run())


_CHUNK_BYTES = 64 * 1024
_MAX_UNREAD_BYTES = 64 * 1024 * 1024
"""Bytes that wait for the editor; above, it is cut off."""
_MAX_UNSENT_BYTES = 1024 * 1024
"""Bytes that wait for the supervisor; above, stdin is not read."""
_LAST_WORDS_SECONDS = 1.0
"""How long requests that the editor made before it left may take."""


class AcpProgram:
    """One run of it. ``find`` says where the supervisor listens, and is asked when there is something to send."""

    def __init__(self, machine: AcpMachine, find: Callable[[], Path], *, stdin: int = 0, stdout: int = 1) -> None:
        self._machine = machine
        self._find = find
        self._stdin = stdin
        self._stdout = stdout
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        self._from_editor = EditorFramer()
        self._from_pool = MessageReader()
        self._to_editor = deque[bytes]()
        self._to_pool = deque[bytes]()
        self._unread = self._unsent = 0
        self._poll = PollSet()
        self._sock: socket.socket | None = None
        self._refusal: PoolError | None = None
        self._is_hardened = False

    def run(self) -> int:
        """Until stdin ends; the exit code. 1: the editor does not read what is sent to it, or has closed stdout."""
        os.set_blocking(self._stdout, False)
        try:
            while self._wait_and_handle():
                self._pump()
            self._finish()
        except BrokenPipeError:
            return 1
        except _EditorStalled:
            click.echo(f"pool: the editor was cut off: it has not read {_MAX_UNREAD_BYTES:,} bytes", err=True)
            return 1
        finally:
            os.set_blocking(self._stdout, True)
            if self._sock is not None:
                self._sock.close()
        return 0

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _wait_and_handle(self) -> bool:
        """False when stdin has ended."""
        self._poll.set_events(self._stdin, select.POLLIN if self._unsent < _MAX_UNSENT_BYTES else None)
        for fd, flags in self._wait():
            if fd == self._stdin and not self._read_editor():
                return False
            if fd != self._stdin:
                self._handle_output(fd, flags)
        return True

    def _wait(self, patience_ms: int | None = None) -> list[tuple[int, int]]:
        self._poll.set_events(self._stdout, select.POLLOUT if self._to_editor else 0)
        if self._sock is not None:
            self._poll.set_events(self._sock.fileno(), select.POLLIN | (select.POLLOUT if self._to_pool else 0))
        return self._poll.wait(patience_ms)

    def _handle_output(self, fd: int, flags: int) -> None:
        if fd == self._stdout:
            if flags & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise BrokenPipeError(errno.EPIPE, "stdout is closed")
            self._write_editor()
        elif flags & READABLE:
            self._read_pool()

    def _pump(self) -> None:
        """Hand on what the machine has to say, both ways."""
        if self._machine.needs_pool and self._sock is None:
            self._connect()
        for line in self._machine.take_pool_lines():
            self._to_pool.append(line)
            self._unsent += len(line)
        self._write_pool()
        for line in self._machine.take_editor_lines():
            self._to_editor.append(line)
            self._unread += len(line)
        self._write_editor()
        if self._unread > _MAX_UNREAD_BYTES:
            raise _EditorStalled

    # --- the editor ---------------------------------------------------------------------------------------------------

    def _read_editor(self) -> bool:
        size = os.readv(self._stdin, [self._buffer])
        if not size:
            line = self._from_editor.rest()
            if line:
                self._machine.on_line(line)
            return False
        for each in self._from_editor.feed(bytes(self._buffer[:size])):
            self._machine.on_line(each)
        return True

    def _write_editor(self) -> None:
        self._unread -= write_available(self._to_editor, lambda data: os.write(self._stdout, data))

    def _finish(self) -> None:
        """The editor has left. What it asked for before is still accepted, and answered where it listens."""
        self._poll.set_events(self._stdin, None)
        self._pump()
        end = time.monotonic() + _LAST_WORDS_SECONDS
        is_shut = False
        while (self._sock is not None or self._to_editor) and (left := end - time.monotonic()) > 0:
            if self._sock is not None and not self._to_pool and not is_shut:
                is_shut = True
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_WR)
            for fd, flags in self._wait(int(left * 1000) + 1):
                self._handle_output(fd, flags)
            if self._sock is not None:
                self._write_pool()
            self._to_editor.extend(self._machine.take_editor_lines())
            self._write_editor()

    # --- the supervisor -----------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if not self._is_hardened:
            from app.hardening import harden

            harden()
            self._is_hardened = True
        try:
            self._sock = connect(self._find())
        except PoolError as exc:
            self._machine.on_lost(exc.message)
            return
        self._sock.settimeout(0.0)
        self._from_pool, self._refusal = MessageReader(), None
        self._machine.on_connected()

    def _write_pool(self) -> None:
        if self._sock is None:
            return
        try:
            self._unsent -= write_available(self._to_pool, self._sock.send)
        except (BrokenPipeError, ConnectionResetError):
            self._to_pool.clear()  # why it hung up can still be read
            self._unsent = 0

    def _read_pool(self) -> None:
        assert self._sock is not None  # noqa: S101 - it is polled
        try:
            size = self._sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        except ConnectionResetError:
            size = 0
        if not size:
            self._lose("the supervisor has closed the connection; start one with: pool run")
            return
        try:
            for message in self._from_pool.feed(bytes(self._buffer[:size])):
                if message.id is None and message.event is None and message.error is not None:
                    error = message.error
                    self._refusal = error_from_wire(error.code, error.message, error.data)
                self._machine.on_message(message)
        except ProtocolViolation as exc:
            self._lose(exc.message)

    def _lose(self, why: str) -> None:
        assert self._sock is not None  # noqa: S101 - it is what is lost
        self._poll.set_events(self._sock.fileno(), None)
        self._sock.close()
        self._sock = None
        self._to_pool.clear()
        self._unsent = 0
        self._machine.on_lost(why if self._refusal is None else self._refusal.message)


class _EditorStalled(Exception):
    """Too much waits for the editor."""


class _Found(msgspec.Struct):
    path: str = ""
    code: str = ""
    message: str = ""


def find_socket_apart(socket_path: str | None, config: str | None, data_dir: str | None) -> Path:
    """The same as ``find_socket`` in a process of its own, with whose end its memory is free again.

    What reads the settings takes more of it than all the rest, and an editor may start many agents.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, msgspec.json.encode(_look(socket_path, config, data_dir)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    found = msgspec.json.decode(answer, type=_Found) if answer else _Found(code="pool_error", message="no settings")
    if found.code:
        raise error_from_wire(found.code, found.message)
    return Path(os.fsdecode(found.path.encode("utf-8", "surrogateescape")))


def _look(socket_path: str | None, config: str | None, data_dir: str | None) -> _Found:
    try:
        return _Found(str(find_socket(socket_path, config, data_dir)))
    except PoolError as exc:
        return _Found(code=exc.code, message=exc.message)
    except Exception as exc:  # noqa: BLE001  # the parent process has to learn of it
        return _Found(code="pool_error", message=f"the settings cannot be read: {exc}")
