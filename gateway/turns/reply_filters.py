"""NO_REPLY, MEDIA lines. Pure.

``NO_REPLY``: how an agent says that it has nothing to say, and how a stream is kept from showing it.

The first pieces of a turn's text, held back while they may still turn out to say that there is nothing to say.

Files that an answer hands over: its ``MEDIA:`` lines, and which of them may leave the workspace.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

NO_REPLY = "NO_REPLY"
_MAX_WHITESPACE = 256


def is_silent(text: str) -> bool:
    """Whether the text is the token and nothing else but white space."""
    return text.strip() == NO_REPLY


class NoReplyBuffer:
    """The beginning of a streamed text, for as long as the text may still turn out to be ``NO_REPLY``.

    What it holds is bounded: of white space that could be part of a silent answer, 256 characters a side are kept.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_open = False

    def push(self, piece: str) -> str:
        """Take the next piece; returns what may be shown now, perhaps nothing."""
        if self._is_open:
            return piece
        text = self._held + piece
        if _may_be_silent(text):
            self._held = _bound_whitespace(text)
            return ""
        self._held, self._is_open = "", True
        return text

    def end(self) -> str:
        """The text has ended: what was held back and is no token after all. The next piece begins a new text."""
        text, self._held, self._is_open = self._held, "", False
        return "" if is_silent(text) or not text.strip() else text


def _may_be_silent(text: str) -> bool:
    begun = text.lstrip()
    return NO_REPLY.startswith(begun) or begun.rstrip() == NO_REPLY


def _bound_whitespace(text: str) -> str:
    token = text.strip()
    start = text.find(token) if token else len(text)
    return text[:start][-_MAX_WHITESPACE:] + token + text[start + len(token) :][:_MAX_WHITESPACE]


_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class NoReplyFilter:
    """Once a piece has shown that the text is an answer, everything passes untouched."""

    def __init__(self) -> None:
        self._buffer = NoReplyBuffer()
        self._is_open = False

    def push(self, pieces: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The pieces that may be shown now; each is a JSON string."""
        if self._is_open:
            return pieces
        for index, piece in enumerate(pieces):
            shown = self._buffer.push(_decode(piece))
            if shown:
                self._is_open = True
                return [msgspec.Raw(_encode(shown)), *pieces[index + 1 :]]
        return []

    def end(self) -> list[msgspec.Raw]:
        """The text has ended, at a tool call or with the turn: what was held back and is an answer after all."""
        self._is_open = False
        shown = self._buffer.end()
        return [msgspec.Raw(_encode(shown))] if shown else []


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
"""What may be handed over, by the file's suffix in lower case: nothing that runs when it is opened."""

_PREFIX = "MEDIA:"
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_MAX_FILES = 20
_MAX_FILE_BYTES = 20 * 1024 * 1024


class Media(msgspec.Struct, frozen=True):
    """One file of an answer: its path within the workspace, absolute and without links, its type and its size."""

    path: str
    mime_type: str
    size: int


def extract_media(text: str, check: Callable[[str], Media | None]) -> tuple[str, list[Media]]:
    """Take the ``MEDIA:<path>`` lines out of a text, as far as ``check`` agrees; the others stay text.

    Lines inside a code fence are text: somebody explains the convention. A file named twice is handed over once; at
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


def check_media(name: str, workspace: Path, *, largest: int = _MAX_FILE_BYTES) -> Media | None:
    """The file that ``name`` means, if it may be handed over; None otherwise. Reads the file system: use a thread.

    It must be a relative path to a regular file of an allowed type and at most ``largest`` bytes, inside the workspace
    when every symbolic link on the way is resolved.
    """
    mime_type = MEDIA_TYPES.get(Path(name).suffix.lower())
    if mime_type is None or "\0" in name or Path(name).is_absolute():
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
