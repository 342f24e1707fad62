"""HEARTBEAT.md: whether an agent's checklist holds anything. Bounded."""

import codecs
import re
from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec
import trio

from errors import PoolError

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


ReadFile = Callable[[str, int], Awaitable[bytes]]
"""Reads at most a number of bytes of a file in a workspace. Raises OSError, ValueError, PoolError."""


async def read_checklist(read: ReadFile, *, patience: float = 5.0) -> Checklist:
    """Judge the workspace's HEARTBEAT.md by its first 256 KiB, for at most ``patience`` seconds."""
    with trio.move_on_after(patience):
        try:
            return judge_checklist(await read(CHECKLIST_NAME, _MAX_BYTES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return Checklist(ChecklistState.MISSING)
        except (OSError, ValueError, PoolError) as exc:  # no rights, no file, a loop of links; its node is lost
            return _unreadable(_error_text(exc))
    return _unreadable(f"no answer within {patience:g} s")


def judge_checklist(head: bytes) -> Checklist:
    """Judge a file by its beginning, which is all of it where it has at most 256 KiB."""
    is_whole = len(head) <= _MAX_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head[:_MAX_BYTES], final=is_whole)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return Checklist(ChecklistState.UNREADABLE, f"{CHECKLIST_NAME} is not a text in UTF-8")
    is_empty = is_whole and is_effectively_empty(text)
    return Checklist(ChecklistState.EMPTY if is_empty else ChecklistState.FILLED)


def is_effectively_empty(text: str) -> bool:
    """Whether a list has only blank lines, headings, empty bullets or checkboxes, and code fences."""
    return all(not line or _EMPTY_LINE.fullmatch(line) for line in map(str.strip, text.splitlines()))


def _unreadable(why: str) -> Checklist:
    return Checklist(ChecklistState.UNREADABLE, f"{CHECKLIST_NAME} cannot be read: {why}")


def _error_text(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
