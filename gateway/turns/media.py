"""Files that an answer hands over: its ``MEDIA:`` lines, and which files may leave the workspace."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

MEDIA_TYPES: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".wav": "audio/wav",
    ".m4a": "audio/mp4",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".json": "application/json",
    ".zip": "application/zip",
}
"""MIME types of what may be handed over, by the suffix in lower case: nothing that runs when it is opened."""

_PREFIX = "MEDIA:"
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_MAX_FILES = 20
MAX_FILE_BYTES = 20 * 1024 * 1024
"""The largest file that an answer hands over."""


class Media(msgspec.Struct, frozen=True):
    """One file of an answer: its absolute path without links, its type and its size.

    The path lies within the workspace; where that is a node's, it is that of a copy here.
    """

    path: str
    mime_type: str
    size: int


def extract_media(text: str, check: Callable[[str], Media | None]) -> tuple[str, list[Media]]:
    """Take the ``MEDIA:<path>`` lines out of a text, as far as ``check`` agrees; the others stay text.

    Lines inside a code fence stay text. A file named twice is handed over once; at
    most 20 are. With no line taken out the text is returned as it is, otherwise trimmed.
    """
    kept: list[str] = []
    found: dict[str, Media] = {}
    fence: str | None = None
    for line in text.split("\n"):
        fence = _fence_after(line, fence)
        name = _name_in(line) if fence is None and len(found) < _MAX_FILES else ""
        media = check(name) if name else None
        if media is None:
            kept.append(line)
        else:
            found.setdefault(media.path, media)
    return ("\n".join(kept).strip(), list(found.values())) if found else (text, [])


def media_names(text: str) -> list[str]:
    """What the ``MEDIA:`` lines of a text name, each once, in order; at most as many as may be handed over."""
    found: dict[str, None] = {}
    fence: str | None = None
    for line in text.split("\n") if _PREFIX in text else ():
        fence = _fence_after(line, fence)
        if fence is None and (name := _name_in(line)) and len(found) < _MAX_FILES:
            found[name] = None
    return list(found)


def media_type(name: str) -> str | None:
    """The type of a file that may be handed over by its name, a relative path; None for any other."""
    is_possible = "\0" not in name and not Path(name).is_absolute()
    return MEDIA_TYPES.get(Path(name).suffix.lower()) if is_possible else None


def _name_in(line: str) -> str:
    """What a line of its own names; empty for any other line."""
    line = line.strip()
    return line.removeprefix(_PREFIX).strip() if line.startswith(_PREFIX) else ""


def _fence_after(line: str, fence: str | None) -> str | None:
    """The fence that is open after this line: a fence closes with at least as many of the same mark."""
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if fence is None:
        return mark[1]
    return None if mark[1].startswith(fence) and not line[mark.end() :].strip() else fence


def check_media(name: str, workspace: Path, *, largest: int = MAX_FILE_BYTES) -> Media | None:
    """The file that ``name`` means, if it may be handed over; None otherwise. Reads the file system: use a thread.

    It must be a relative path to a regular file of an allowed type and at most ``largest`` bytes, inside the workspace
    when every symbolic link on the way is resolved.
    """
    mime_type = media_type(name)
    if mime_type is None:
        return None
    try:
        root = workspace.resolve(strict=True)
        path = (root / name).resolve(strict=True)
        size = path.stat().st_size
    except (OSError, RuntimeError):  # missing, too long a name, a loop of links, no rights: all mean no file
        return None
    is_fit = path.is_relative_to(root) and path.is_file() and size <= largest
    has_type = MEDIA_TYPES.get(path.suffix.lower()) == mime_type
    return Media(str(path), mime_type, size) if is_fit and has_type else None
