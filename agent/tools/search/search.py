"""The parent's side of a search: starts the child, sends the request, reads its lines, ends it; notes on omissions."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from agent.tools.base import ToolContext, ToolError, ToolOutput
from agent.tools.names import escape_name
from agent.tools.pages import shorten
from agent.tools.paths import ConfinedPath, file_kind, open_directory, open_parent, resolve_path_in_thread, tool_errors
from agent.tools.search.walk import read_text_at
from wire.entries import OUTPUTS_SUFFIX

SECONDS = 20.0
"""How long a search may take."""
_GRACE = 2.0
"""Seconds more until the child is killed that should have ended itself."""
_PACKAGE_ROOT = Path(__file__).parents[3]
_PYTHON_OPTIONS = ("-I", "-S", "-X", "utf8", "-W", "ignore")
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from agent.tools.search.child import main; main(int(sys.argv[2]))"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for: ``glob`` matches paths; with ``pattern`` lines of files are searched, else paths are listed."""

    glob: str | None = None
    pattern: str | None = None
    flags: int = 0
    context: int = 0
    limit: int
    include_ignored: bool = False


class SearchSummary(msgspec.Struct, frozen=True):
    """How a search ended. ``stopped_at``: the time was up at this path."""

    matches: int = 0
    shown: int = 0
    files: int = 0
    ignored: int = 0
    unreadable: int = 0
    too_deep: int = 0
    binary: int = 0
    too_large: int = 0
    stopped_at: str | None = None


class SearchResult(msgspec.Struct):
    """The lines to show, and the end; None when the child had to be killed."""

    lines: list[str] = []
    end: SearchSummary | None = None


class _ChildMessage(msgspec.Struct, frozen=True):
    lines: list[str] = []
    end: SearchSummary | None = None
    bad: str | None = None


async def search(query: Query, place: ConfinedPath, context: ToolContext, seconds: float = SECONDS) -> SearchResult:
    """Search ``place``. Raises ToolError when it does not exist, or the pattern is invalid."""
    directory, request = await trio.to_thread.run_sync(_prepare, query, place, context, seconds)
    try:
        return await _run(directory, request, seconds)
    finally:
        os.close(directory)


def _prepare(query: Query, place: ConfinedPath, context: ToolContext, seconds: float) -> tuple[int, dict[str, Any]]:
    """The open directory to search, and what to ask of the child."""
    with tool_errors("search", place):
        name = None if query.pattern is None else _file_name(place)
        directory_of = place if name is None else place._replace(names=place.names[:-1])
        above = None if query.include_ignored else _rules_above(directory_of)
        prefix = escape_name(directory_of.relative_to(context.cwd))
        request = {
            "mode": "find" if query.pattern is None else "grep",
            "pattern": query.pattern,
            "flags": query.flags,
            "glob": query.glob,
            "context": query.context,
            "limit": query.limit,
            "seconds": seconds,
            "name": None if name is None else os.fsencode(name).hex(),
            "above": above,
            "outputs_suffix": OUTPUTS_SUFFIX,
            "prefix": "" if prefix == "." else prefix.rstrip("/") + "/",
        }
        return open_directory(directory_of), request


def _file_name(place: ConfinedPath) -> str | None:
    """The name of the file to search; None for a directory."""
    if not place.names:
        return None
    with open_parent(place) as (parent, name):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return name
    if stat.S_ISDIR(status.st_mode):
        return None
    raise ToolError(f"path: {place.requested} is {file_kind(status)}, and cannot be searched", "validation")


def _rules_above(place: ConfinedPath) -> list[tuple[str, str]]:
    """The ignore files of the directories above the place, from the confining one down, and the way down from each.

    What lies above the confining directory is none of the tools' business, ignore files neither.
    """
    found = []
    for depth in range(len(place.names)):
        descriptor = open_directory(place._replace(names=place.names[:depth]))
        try:
            text = read_text_at(descriptor, ".gitignore")
        finally:
            os.close(descriptor)
        if text is not None:
            found.append(("".join(f"{name}/" for name in place.names[depth:]), text))
    return found


async def _run(directory: int, request: dict[str, Any], seconds: float) -> SearchResult:
    outcome = SearchResult()
    process = await trio.lowlevel.open_process(
        [sys.executable, *_PYTHON_OPTIONS, "-c", _BOOT, str(_PACKAGE_ROOT), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[directory],
        env={},
    )
    assert process.stdio is not None  # noqa: S101 - tells the type checker what two PIPEs mean
    try:
        with trio.move_on_after(seconds + _GRACE) as patience:
            await _exchange(process.stdio, request, outcome)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):  # brief: it has been killed
            await process.wait()
            await process.stdio.aclose()
    if outcome.end is None and not patience.cancelled_caught:
        raise ToolError("the search ended unexpectedly", retryable=True)
    return outcome


async def _exchange(
    child: "trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]",
    request: dict[str, Any],
    outcome: SearchResult,
) -> None:
    with suppress(trio.BrokenResourceError):  # it ended early: its output, if any, says why
        await child.send_all(msgspec.json.encode(request))
        await child.send_stream.aclose()
    rest = b""
    taken = 0
    async for data in child.receive_stream:
        taken += len(data)
        if taken > 16 * 1024 * 1024:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _apply_message(msgspec.json.decode(line, type=_ChildMessage), outcome)


def _apply_message(message: _ChildMessage, outcome: SearchResult) -> None:
    if message.bad is not None:
        raise ToolError(f"pattern: {message.bad}", "validation")
    outcome.lines += message.lines
    outcome.end = message.end


async def search_output(query: Query, path: str, context: ToolContext, *, things: str, none: str) -> ToolOutput:
    """Search and format the result; ``none`` is shown when nothing matches, ``things`` names what was searched for."""
    place = await resolve_path_in_thread(context, path)
    outcome = await search(query, place, context)
    text = "\n".join([*(outcome.lines or [none]), *skipped_notes(outcome, things)])
    text = await trio.to_thread.run_sync(lambda: shorten(text, keep="start", outputs=context.outputs))
    return ToolOutput(text, {"path": place.path} | msgspec.to_builtins(outcome.end or {}))


def skipped_notes(outcome: SearchResult, things: str) -> list[str]:
    """Lines for the end of the result; ``things`` are what was looked for."""
    end = outcome.end
    if end is None:
        return [
            f"[the search took too long and was stopped; there may be more {things}. Search less, or a simpler way.]"
        ]
    notes = []
    if end.matches > end.shown:
        more = "at least " if end.stopped_at is not None else ""
        files = f" in {end.files} files" if end.files else ""
        notes.append(
            f"[{end.shown} of {more}{end.matches} {things}{files} are shown; narrow the search, or set limit higher]"
        )
    elif end.stopped_at is not None:
        notes.append(f"[the time was up at {end.stopped_at}; what comes after it was not searched]")
    reasons = (
        (end.binary, "binary files"),
        (end.too_large, "files larger than 32 MiB"),
        (end.unreadable, "files or directories that cannot be read"),
        (end.too_deep, "directories more than 100 levels deep"),
        (0 if end.matches else end.ignored, "names that .gitignore leaves out (see include_ignored)"),
    )
    skipped = [f"{count} {what}" for count, what in reasons if count]
    if skipped:
        notes.append(f"[not searched: {', '.join(skipped)}]")
    return notes
