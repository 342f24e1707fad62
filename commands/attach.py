"""``pool attach``: in place of an agent's own program, while a pooled worker serves its protocol.

One loop between stdin, stdout and the control socket; none of them may block another. Requests go out as fast as the
supervisor takes them, lines come in as fast as the reader of stdout takes them. The supervisor cuts off a reader that
is too slow, which ends this program with a non-zero exit code.
"""

import errno
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from commands.attach_lines import AttachEnded, AttachMessage, StderrWriter, encode_send, read_message
from commands.completion import complete_agents, complete_roles, complete_sessions
from commands.options import connection_options, find_socket, working_directory
from commands.poll_loop import READABLE, PollSet, exit_on_signal, write_available
from doors.control.client_socket import MessageReader, connect, decode_with, encode_request
from errors import NoSupervisor, UsageError, error_from_wire
from wire.framing import LineFramer


@click.command(context_settings={"ignore_unknown_options": True})  # unknown options are the agent's
@click.option("--mode", type=click.Choice(["rpc"]), required=True, help="The agent's mode; only rpc is supported.")
@click.option(
    "--session",
    metavar="KEY",
    shell_complete=complete_sessions,
    help="A session's key, id or transcript (default: a new session).",
)
@click.option("--agent", metavar="NAME", shell_complete=complete_agents, help="Agent definition (default: main).")
@click.option("--role", metavar="NAME", shell_complete=complete_roles, help="Role (default: default).")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[AGENT FLAGS]...")
@connection_options
def attach(
    arguments: tuple[str, ...],
    mode: str,
    socket: str | None,
    config: str | None,
    data_dir: str | None,
    **options: str | None,
) -> None:
    """Act as an agent program: its protocol on stdin and stdout, served by a worker of the pool.

    All other flags (--model, --tools, --skill, --session-dir, --no-session, ...) are the agent's; they select the
    worker.
    """
    from app.hardening import harden

    harden()
    del mode  # there is one
    env = {name: value for name, value in os.environ.items() if name.startswith("PI_")}
    given = {name: value for name, value in options.items() if value is not None}
    params = {**given, "arguments": arguments, "cwd": str(working_directory()), "env": env}
    click.get_current_context().exit(run_attach(find_socket(socket, config, data_dir), params))


_CHUNK_BYTES = 256 * 1024
_MAX_UNACKNOWLEDGED = 32
"""Lines that the supervisor has not handed on yet; above, stdin is not read."""
_MOST_UNREAD = 1024 * 1024
"""Bytes that wait for the reader of stdout; above, the socket is not read."""
_ERROR_WAIT_MS = 1000
"""How long a front end whose stdin has ended is kept, to tell it of an error in its arguments."""


class AttachResult(msgspec.Struct, frozen=True):
    """What the supervisor answers to the first request."""

    attachment: str
    greeting: list[msgspec.Raw] = []
    words: str = ""
    """What the program has written to its stderr."""


_results = msgspec.json.Decoder(AttachResult)


def run_attach(path: Path, params: Mapping[str, object]) -> int:
    """Be the agent's own program, on this process's stdin and stdout, until one of them ends; the exit code.

    ``params``: of the method ``attach.open``. Raises PoolError: it could not be attached, or was ended for a reason.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, exit_on_signal)
    # Where stderr is closed, the socket may get its number.
    stderr = 2 if sys.stderr else os.open(os.devnull, os.O_WRONLY)
    with connect(path) as sock:
        return AttachProgram(sock, path, stderr=stderr).run(params)


class AttachProgram:
    """One run of it. ``sock`` is connected and blocks until the first answer has come."""

    def __init__(self, sock: socket.socket, path: Path, *, stdin: int = 0, stdout: int = 1, stderr: int = 2) -> None:
        self._sock = sock
        self._path = path
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = StderrWriter(stderr)
        self._buffer = memoryview(bytearray(_CHUNK_BYTES))
        """Shared by both readers: allocating one for each small line would dominate its cost."""
        self._from_socket = MessageReader()
        self._from_stdin = LineFramer()
        self._to_socket = deque[bytes]()
        self._to_stdout = deque[bytes]()
        self._unread = 0
        self._last_number = 0
        self._sent = self._acknowledged = 0
        self._poll = PollSet()
        self._attachment = ""
        self._early_input = b""
        self._has_input = True
        self._ended: AttachEnded | None = None

    def run(self, params: Mapping[str, object]) -> int:
        """Attach, then run until stdin has ended and all output is written. Raises PoolError."""
        self._open(params)
        for fd in (self._sock.fileno(), self._stdout):
            os.set_blocking(fd, False)
        try:
            self._loop()
        except BrokenPipeError:
            return 1  # stdout has no reader any more
        finally:
            os.set_blocking(self._stdout, True)
        if self._ended is not None and self._ended.code != "left":
            raise error_from_wire(self._ended.code, self._ended.message)
        return 0

    # --- the beginning ------------------------------------------------------------------------------------------------

    def _open(self, params: Mapping[str, object]) -> None:
        """Wait for the worker. SystemExit where stdin ends before any input."""
        self._sock.sendall(encode_request(str(self._next_number()), "attach.open", params))
        for fd in (self._sock.fileno(), self._stdin):
            self._poll.set_events(fd, select.POLLIN)
        patience = None
        while not self._attachment:
            ready = self._poll.wait(patience)
            if not ready:
                sys.exit(0)
            for fd, _flags in ready:
                if fd != self._stdin:
                    self._read_block()
                elif not self._read_early_input():
                    patience = _ERROR_WAIT_MS

    def _read_early_input(self) -> bool:
        """Keep at most one block of stdin until the worker is there; False when stdin has ended."""
        self._early_input = self._read_stdin()
        self._poll.set_events(self._stdin, None)
        return bool(self._early_input)

    def _begin(self, arrived: AttachMessage) -> None:
        if arrived.error is not None:
            raise error_from_wire(arrived.error.code, arrived.error.message, arrived.error.data)
        attached = decode_with(_results, arrived.result)
        self._attachment = attached.attachment
        if attached.words:
            self._stderr.add(attached.words)
        self._queue_output(b"".join(bytes(line) + b"\n" for line in attached.greeting))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Until the supervisor has ended it and all that came before is written."""
        self._write_stdout()
        if self._early_input:
            self._forward_input(self._early_input)
        while self._ended is None or self._to_stdout:
            for fd, flags in self._wait():
                self._handle(fd, flags)
            self._stderr.write()

    def _wait(self) -> list[tuple[int, int]]:
        sock = self._sock.fileno()
        reads = select.POLLIN if self._unread < _MOST_UNREAD else 0
        self._poll.set_events(sock, None if self._ended else reads | (select.POLLOUT if self._to_socket else 0))
        may_say_more = self._has_input and self._sent - self._acknowledged < _MAX_UNACKNOWLEDGED
        self._poll.set_events(self._stdin, select.POLLIN if may_say_more else None)
        self._poll.set_events(self._stdout, select.POLLOUT if self._to_stdout else 0)
        if self._stderr.fd != self._stdout:
            self._poll.set_events(self._stderr.fd, select.POLLOUT if self._stderr.has_pending else None)
        return self._poll.wait()

    def _handle(self, fd: int, flags: int) -> None:
        if fd == self._stdin:
            self._forward_input(self._read_stdin())
        elif fd == self._stdout:
            if flags & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                raise BrokenPipeError(errno.EPIPE, "stdout is closed")
            self._write_stdout()
        elif fd != self._stderr.fd:
            if flags & select.POLLOUT:
                self._write_socket()
            if flags & READABLE:
                with suppress(BlockingIOError):
                    self._read_block()
                    self._write_stdout()

    # --- from the front end -------------------------------------------------------------------------------------------

    def _read_stdin(self) -> bytes:
        return bytes(self._buffer[: os.readv(self._stdin, [self._buffer])])

    def _forward_input(self, data: bytes) -> None:
        lines = self._from_stdin.feed(data) if data else [self._from_stdin.rest()]
        for line in lines:
            if data or line:
                self._sent += 1
                self._to_socket.append(encode_send(self._next_number(), self._attachment, line))
        if not data:
            self._has_input = False
            params = {"attachment": self._attachment}
            self._to_socket.append(encode_request(str(self._next_number()), "attach.end", params))
        self._write_socket()

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _write_socket(self) -> None:
        try:
            write_available(self._to_socket, self._sock.send)
        except (BrokenPipeError, ConnectionResetError):
            self._to_socket.clear()  # why it hung up can still be read

    # --- from the supervisor ------------------------------------------------------------------------------------------

    def _read_block(self) -> None:
        try:
            size = self._sock.recv_into(self._buffer)
        except ConnectionResetError:
            size = 0
        if not size and self._to_stdout:
            raise UsageError("the supervisor has ended the attachment: the agent's output is not read")
        if not size:
            raise NoSupervisor(f"the supervisor on {self._path} closed the connection")
        for message in self._from_socket.feed(bytes(self._buffer[:size])):
            self._on_message(read_message(message))

    def _on_message(self, arrived: AttachMessage) -> None:
        if arrived.stderr_text is not None:
            self._stderr.add(arrived.stderr_text)
        elif arrived.acknowledged is not None:
            self._acknowledged = arrived.acknowledged
            self._queue_output(arrived.lines)
        elif arrived.ended is not None:
            self._ended = arrived.ended
        elif not self._attachment:
            self._begin(arrived)
        elif arrived.error is not None:
            raise error_from_wire(arrived.error.code, arrived.error.message, arrived.error.data)

    def _queue_output(self, lines: bytes) -> None:
        if lines:
            self._to_stdout.append(lines)
            self._unread += len(lines)

    def _write_stdout(self) -> None:
        self._unread -= write_available(self._to_stdout, lambda data: os.write(self._stdout, data))
