"""The tool ``ls``: the names in one directory, hidden and ignored ones too."""

import os
import stat
from collections.abc import Iterator
from heapq import nsmallest
from typing import Annotated

import msgspec
import trio

from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from agent.tools.names import escape_name
from agent.tools.pages import shorten
from agent.tools.paths import ConfinedPath, file_kind, open_directory, open_parent, resolve_path, tool_errors

_DEFAULT_LIMIT = 500


class LsInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which directory, and how many of its names."""

    path: Annotated[str, msgspec.Meta(description="The directory (default: the working directory)")] = "."
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000, description="How many names to show")] = _DEFAULT_LIMIT


class LsTool(Tool):
    """List a directory."""

    name = "ls"
    description = (
        "List a directory, hidden names too, in alphabetical order. Directories end in /, links show where they lead, "
        f"pipes, sockets and devices are named as such. At most {_DEFAULT_LIMIT} names unless limit says more."
    )
    effects = "read"
    input_type = LsInput

    async def run(self, arguments: LsInput, context: ToolContext) -> ToolOutput:
        """List the first names."""
        return await trio.to_thread.run_sync(_list, context, arguments, abandon_on_cancel=True)


def _list(context: ToolContext, arguments: LsInput) -> ToolOutput:
    place = resolve_path(context, arguments.path)
    with tool_errors("list", place):
        _require_directory(place)
        descriptor = open_directory(place)
        try:
            names, total = _first_names(descriptor, arguments.limit)
            lines = [_line(descriptor, name) for name in names]
        finally:
            os.close(descriptor)
        left_out = total - len(lines)
        if left_out:
            lines.append(f"[{left_out} of {total} names left out; set limit higher, or use find with a pattern]")
        text = (
            shorten("\n".join(lines), keep="start", outputs=context.outputs) if lines else "[The directory is empty.]"
        )
    return ToolOutput(text, {"path": place.path, "entries": total, "left_out": left_out})


def _require_directory(place: ConfinedPath) -> None:
    if place.names:
        with open_parent(place) as (parent, name):
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise ToolError(f"path: {place.requested} is {file_kind(status)}, not a directory", "validation")


def _first_names(descriptor: int, limit: int) -> tuple[list[str], int]:
    """The first names of the alphabet, of a directory of any size, and how many names it has."""
    total = 0

    def names() -> Iterator[str]:
        nonlocal total
        with os.scandir(descriptor) as entries:
            for entry in entries:
                trio.from_thread.check_cancelled()
                total += 1
                yield entry.name

    chosen = nsmallest(limit, names(), key=lambda name: (name.casefold(), name))
    return chosen, total


def _line(directory: int, name: str) -> str:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return f"{escape_name(name)} -> {escape_name(os.readlink(name, dir_fd=directory))}"
    except OSError:  # gone since it was listed, or out of reach: its name is all there is to show
        return escape_name(name)
    if stat.S_ISDIR(status.st_mode):
        return f"{escape_name(name)}/"
    return escape_name(name) if stat.S_ISREG(status.st_mode) else f"{escape_name(name)} ({file_kind(status)})"
