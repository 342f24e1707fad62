"""The tool ``exec``: run a shell command in the foreground, in its own session; nothing of it outlives the call."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import trio

from agent.tools.base import ToolContext, ToolError, confined
from agent.tools.processes import stop_tree, wait_exited
from agent.tools.truncation import TailBuffer

__all__ = ["ExecTool"]

_DEFAULT_TIMEOUT = 1800.0
_UPDATE_INTERVAL = 0.05
_REFUSED_VARIABLES = frozenset({"PATH", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "ENV"})
_READ_BYTES = 64 * 1024


class ExecInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``workdir`` inside the working directory; ``timeout`` in seconds, 0 for none."""

    command: str
    workdir: str = "."
    env: dict[str, str] = {}
    timeout: Annotated[float, msgspec.Meta(ge=0)] = _DEFAULT_TIMEOUT


class ExecTool:
    """Run a command with the shell; its output (stdout and stderr in one) is the result."""

    name = "exec"
    description = "Run a shell command in the foreground; returns stdout and stderr, the end of it if it is long."
    timeout: ClassVar[float | None] = None
    input_type = ExecInput

    async def run(self, arguments: ExecInput, context: ToolContext) -> str:
        """See the interface."""
        buffer = TailBuffer()
        with trio.move_on_after(arguments.timeout or float("inf")) as clock:
            async with _running(arguments, context) as process:
                await _follow(process, buffer, context)
        if clock.cancelled_caught:
            raise ToolError(_text(buffer, f"(Command timed out after {arguments.timeout:g} s)"), "runtime")
        return _outcome(process.returncode, buffer)


@asynccontextmanager
async def _running(arguments: ExecInput, context: ToolContext) -> AsyncIterator["subprocess.Popen[bytes]"]:
    process = _spawn(arguments, context)
    try:
        yield process
    finally:
        await stop_tree(process)
        assert process.stdout is not None  # noqa: S101 - tells the type checker what PIPE means
        process.stdout.close()


def _spawn(arguments: ExecInput, context: ToolContext) -> "subprocess.Popen[bytes]":
    workdir = confined(context.cwd, arguments.workdir)
    if not Path(workdir).is_dir():
        raise ToolError(f"workdir {arguments.workdir} is no directory", "validation")
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    try:
        process = subprocess.Popen(
            [shell, "-c", arguments.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=workdir,
            env={**context.environment, **_checked_environment(arguments.env)},
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        raise ToolError(f"cannot run the command: {exc}") from exc
    assert process.stdout is not None  # noqa: S101 - tells the type checker what PIPE means
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _checked_environment(extra: dict[str, str]) -> dict[str, str]:
    for name in extra:
        if name in _REFUSED_VARIABLES or name.startswith(("LD_", "DYLD_")):
            raise ToolError(f"the variable {name} may not be set", "validation")
    return extra


async def _follow(process: "subprocess.Popen[bytes]", buffer: TailBuffer, context: ToolContext) -> None:
    """Read output until the shell has exited, then what is left in the pipe without waiting for who else holds it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read_output, process, buffer, context)
        await wait_exited(process)
        nursery.cancel_scope.cancel()
    _drain(process, buffer)
    buffer.feed(b"", final=True)
    context.report(buffer.tail())


async def _read_output(process: "subprocess.Popen[bytes]", buffer: TailBuffer, context: ToolContext) -> None:
    assert process.stdout is not None  # noqa: S101 - tells the type checker what PIPE means
    descriptor = process.stdout.fileno()
    next_update, shown = trio.current_time(), True
    while True:
        with trio.move_on_at(float("inf") if shown else next_update):
            await trio.lowlevel.wait_readable(descriptor)
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                return
            buffer.feed(data)
            shown = False
        if not shown and trio.current_time() >= next_update:
            context.report(buffer.tail())
            next_update, shown = trio.current_time() + _UPDATE_INTERVAL, True


def _drain(process: "subprocess.Popen[bytes]", buffer: TailBuffer) -> None:
    assert process.stdout is not None  # noqa: S101 - tells the type checker what PIPE means
    for _ in range(64):  # a pipe holds 64 KiB; a left-over child that goes on writing must not keep us here
        try:
            data = os.read(process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            return
        buffer.feed(data)


def _outcome(returncode: int, buffer: TailBuffer) -> str:
    if returncode == 0:
        return buffer.text() or "(no output)"
    how = f"was killed by signal {-returncode}" if returncode < 0 else f"exited with code {returncode}"
    text = _text(buffer, f"(Command {how})")
    if returncode < 0 or returncode in {126, 127}:
        raise ToolError(text)
    return text


def _text(buffer: TailBuffer, note: str) -> str:
    return f"{buffer.text()}\n{note}".lstrip("\n")
