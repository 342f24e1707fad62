"""Starts a command with the shell, in a session of its own, on pipes or a terminal, without a task or thread.

The descriptors are non-blocking. stdin is a pipe only for a command that may get input; otherwise it is empty.
"""

import os
import select
import subprocess
import sys
import termios
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec

from agent.processes.tree import MARK_VARIABLE, ShellProcess

_COLUMNS, _ROWS = 120, 30

# A session's leader gets the first terminal it opens as its controlling one; the shell itself does it, so that nothing
# has to run between fork and exec.
_TERMINAL_SCRIPT = 'exec <>"$0" >&0 2>&0; exec "$@"'


class SpawnFailed(Exception):
    """The command could not be started; the message says why."""


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. ``cwd`` is an existing directory; ``timeout`` in seconds, None for none."""

    line: str
    cwd: str
    environment: dict[str, str]
    timeout: float | None = None
    terminal: bool = False
    takes_input: bool = False


class SpawnedShell(NamedTuple):
    """A running command. ``stdin`` and ``outputs`` are descriptors; on a terminal they are one and the same.

    Two outputs are stdout and stderr; ``epoll`` says which was written to first. ``warning``: what could not be done as
    requested.
    """

    shell: ShellProcess
    stdin: int | None
    outputs: tuple[int, ...]
    epoll: "select.epoll | None"
    is_terminal: bool
    warning: str | None = None


def spawn(command: ShellCommand) -> SpawnedShell:
    """Start it. Raises SpawnFailed."""
    mark = uuid4().hex
    environment = {**command.environment, MARK_VARIABLE: mark}
    try:
        if command.terminal:
            return _spawn_on_terminal_or_pipes(command, environment, mark)
        return _spawn_on_pipes(command, environment, mark)
    except (OSError, ValueError) as exc:
        raise SpawnFailed(f"cannot run the command: {exc}") from exc


def _spawn_on_terminal_or_pipes(command: ShellCommand, environment: dict[str, str], mark: str) -> SpawnedShell:
    try:
        master, slave = os.openpty()
    except OSError as exc:
        child = _spawn_on_pipes(command, environment, mark)
        return child._replace(warning=f"there is no terminal to be had ({exc.strerror}); the command runs on pipes")
    try:
        return _spawn_on_terminal(command, environment, mark, master, slave)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def _spawn_on_terminal(
    command: ShellCommand, environment: dict[str, str], mark: str, master: int, slave: int
) -> SpawnedShell:
    termios.tcsetwinsize(slave, (_ROWS, _COLUMNS))
    os.set_blocking(master, False)
    shell = _shell()
    process = subprocess.Popen(
        [shell, "-c", _TERMINAL_SCRIPT, os.ttyname(slave), shell, "-c", command.line],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=command.cwd,
        env={"TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    return SpawnedShell(_shell_process(process, mark), master, (master,), None, is_terminal=True)


def _spawn_on_pipes(command: ShellCommand, environment: dict[str, str], mark: str) -> SpawnedShell:
    with ExitStack() as ours, ExitStack() as theirs:
        stdout, their_stdout = _pipe(reader=ours, writer=theirs)
        outputs: tuple[int, ...] = (stdout,)
        stdin: int | None = None
        their_stdin, their_stderr = subprocess.DEVNULL, subprocess.STDOUT
        if command.takes_input:
            their_stdin, stdin = _pipe(reader=theirs, writer=ours)
        # Elsewhere the order of writes to two pipes is unknown: there they are one.
        epoll = None
        if sys.platform == "linux":
            stderr, their_stderr = _pipe(reader=ours, writer=theirs)
            outputs = (stdout, stderr)
            epoll = ours.enter_context(select.epoll())
            for descriptor in outputs:  # before the command writes: what is ready by then has no order
                epoll.register(descriptor, select.EPOLLIN)
        process = subprocess.Popen(
            [_shell(), "-c", command.line],
            stdin=their_stdin,
            stdout=their_stdout,
            stderr=their_stderr,
            cwd=command.cwd,
            env=environment,
            start_new_session=True,
        )
        leader = _shell_process(process, mark)
        for descriptor in (*outputs, *(() if stdin is None else (stdin,))):
            os.set_blocking(descriptor, False)
        ours.pop_all()
    return SpawnedShell(leader, stdin, outputs, epoll, is_terminal=False)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Both ends, each to be closed by its owner."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


def _shell_process(process: "subprocess.Popen[bytes]", mark: str) -> ShellProcess:
    try:
        return ShellProcess(process, mark)
    except OSError:
        process.kill()
        process.wait()
        raise


def _shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
