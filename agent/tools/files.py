"""The tools ``read`` and ``write``: text files inside the working directory."""

import os
import stat
import uuid
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar

import msgspec
import trio

from agent.tools.base import Effects, ToolContext, ToolError, confined
from agent.tools.truncation import MAX_BYTES, MAX_LINES

__all__ = ["ReadTool", "WriteTool"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class ReadInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``offset``: the first line, counted from 1; ``limit``: how many lines."""

    path: str
    offset: _Positive = 1
    limit: _Positive = MAX_LINES


class WriteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``content`` replaces the whole file."""

    path: str
    content: str


class ReadTool:
    """Read a text file, at most 2,000 lines and 50 kB at once."""

    name = "read"
    description = "Read a text file. Long files are cut; go on with offset (first line, from 1) and limit (lines)."
    effects: ClassVar[Effects] = "read"
    timeout: ClassVar[float | None] = 60.0
    input_type = ReadInput

    async def run(self, arguments: ReadInput, context: ToolContext) -> str:
        """See the interface."""
        path = confined(context.cwd, arguments.path)
        return await trio.to_thread.run_sync(_read, path, arguments, abandon_on_cancel=True)


class WriteTool:
    """Write a text file, whole or not at all; directories are made."""

    name = "write"
    description = "Write a text file, replacing what it held. Missing directories are made."
    effects: ClassVar[Effects] = "write"
    timeout: ClassVar[float | None] = 60.0
    input_type = WriteInput

    async def run(self, arguments: WriteInput, context: ToolContext) -> str:
        """See the interface."""
        path = confined(context.cwd, arguments.path)
        return await trio.to_thread.run_sync(_write, path, arguments)


def _read(path: str, arguments: ReadInput) -> str:
    try:
        # O_NONBLOCK: the open of a named pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolError(f"{arguments.path} is no regular file", "validation")
            return _page(file, arguments)
    except OSError as exc:
        raise ToolError(f"cannot read {arguments.path}: {exc.strerror}") from exc


def _page(file: BinaryIO, arguments: ReadInput) -> str:
    """The lines asked for, within the bounds; a line longer than the bound counts as several."""
    lines: list[bytes] = []
    size = 0
    last = arguments.offset - 1 + min(arguments.limit, MAX_LINES)
    for number, line in enumerate(iter(lambda: file.readline(MAX_BYTES), b""), start=1):
        if number > last or size + len(line) > MAX_BYTES:
            shown = b"".join(lines).decode(errors="replace")
            return f"{shown}[more follows; go on with offset={max(number, arguments.offset)}]"
        if number >= arguments.offset:
            lines.append(line)
            size += len(line)
    return b"".join(lines).decode(errors="replace")


def _write(path: str, arguments: WriteInput) -> str:
    target = Path(path)
    data = arguments.content.encode(errors="replace")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
    except OSError as exc:
        raise ToolError(f"cannot write {arguments.path}: {exc.strerror}") from exc
    return f"wrote {len(data)} bytes to {arguments.path}"


def _replace(target: Path, data: bytes) -> None:
    aside = target.with_name(f".write-{uuid.uuid4().hex}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if target.exists():
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
