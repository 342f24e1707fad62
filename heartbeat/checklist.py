"""HEARTBEAT.md: whether an agent's checklist holds anything. Bounded, read in a thread."""

import codecs
import os
import re
import stat
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
import trio

CHECKLIST_NAME = "HEARTBEAT.md"

_MAX_BYTES = 256 * 1024
_EMPTY_LINE = re.compile(r"#++(?:\s.*)?|[-*+]\s*+(?:\[[ xX]?\])?|[0-9]{1,9}[.)]|`{3,}+[^`]*|~{3,}+.*")
"""A heading, an empty bullet or checkbox, an empty number, a code fence: the frame of a list, nothing in it."""


class ChecklistState(StrEnum):
    """What there is to look after. Only ``EMPTY`` is a reason not to beat."""

    MISSING = "missing"
    EMPTY = "empty"
    FILLED = "filled"
    UNREADABLE = "unreadable"
    """It is there, and its ``problem`` says why it cannot be judged; the agent may fare better."""


class Checklist(msgspec.Struct, frozen=True):
    """What was found in the workspace. ``problem`` is a sentence for a person, or empty."""

    state: ChecklistState
    problem: str = ""


async def read_checklist(
    workspace: Path, *, limiter: trio.CapacityLimiter | None = None, patience: float = 5.0
) -> Checklist:
    """Judge the workspace's HEARTBEAT.md, for at most ``patience`` seconds.

    A thread that hangs in a file system is left behind and keeps its place in ``limiter`` (trio's own by default)
    until it comes back: with a limiter of the caller's, those who look can only hold up each other.
    """
    judge = partial(read_checklist_file, workspace / CHECKLIST_NAME)
    with trio.move_on_after(patience):
        return await trio.to_thread.run_sync(judge, limiter=limiter, abandon_on_cancel=True)
    return Checklist(ChecklistState.UNREADABLE, f"{CHECKLIST_NAME} cannot be read: no answer within {patience:g} s")


def read_checklist_file(path: Path) -> Checklist:
    """Judge one file by its first 256 KiB. Blocks; raises nothing."""
    try:
        head, is_whole = _read_head(path)
    except (FileNotFoundError, NotADirectoryError):
        return Checklist(ChecklistState.MISSING)
    except (OSError, ValueError) as problem:  # no rights, not a file, a loop of links; a path with a NUL in it
        return Checklist(ChecklistState.UNREADABLE, f"{CHECKLIST_NAME} cannot be read: {_error_text(problem)}")
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=is_whole)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return Checklist(ChecklistState.UNREADABLE, f"{CHECKLIST_NAME} is not a text in UTF-8")
    is_empty = is_whole and is_effectively_empty(text)
    return Checklist(ChecklistState.EMPTY if is_empty else ChecklistState.FILLED)


def is_effectively_empty(text: str) -> bool:
    """Whether a list has only blank lines, headings, empty bullets or checkboxes, and code fences."""
    return all(not line or _EMPTY_LINE.fullmatch(line) for line in map(str.strip, text.splitlines()))


def _read_head(path: Path) -> tuple[bytes, bool]:
    """The first bytes of a regular file, and whether that is all of it. A pipe in its place does not make it wait."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            msg = "it is not a file"
            raise OSError(msg)
        with os.fdopen(handle, "rb", closefd=False) as file:
            head = file.read(_MAX_BYTES + 1)
    finally:
        os.close(handle)
    return head[:_MAX_BYTES], len(head) <= _MAX_BYTES


def _error_text(problem: OSError | ValueError) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
