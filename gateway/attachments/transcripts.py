"""Finds transcripts by the id in their header. Blocks."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from wire.framing import DECODE_ERRORS
from wire.regular_file import open_regular

__all__ = ["IdPattern", "Transcript", "find_transcripts", "looks_like_id"]

_HEAD_BYTES = 64 * 1024
_HEAD_LINES = 5
"""Programs may write other lines, such as a title, before the header."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{0,4}){0,3}(-[0-9a-f]{0,12})?")


class Transcript(msgspec.Struct, frozen=True):
    """One conversation on disk. ``cwd``: the directory in which it was begun."""

    path: str
    id: str
    cwd: str = ""


class _Header(msgspec.Struct):
    type: str = ""
    id: str = ""
    cwd: str = ""


_headers = msgspec.json.Decoder(_Header)


def looks_like_id(text: str) -> bool:
    """Whether a name is a conversation's id or a prefix of one: at least 8 digits of a UUID."""
    return _ID.fullmatch(text) is not None


class IdPattern(msgspec.Struct, frozen=True):
    """The id of the conversation to find; a prefix unless ``exact``."""

    id: str
    exact: bool = False

    def is_in_name(self, path: str) -> bool:
        """Whether a file name, ``TIME_ID.jsonl``, has a matching id."""
        return f"_{self.id}{'.jsonl' if self.exact else ''}" in Path(path).name

    def matches(self, identity: str) -> bool:
        """Whether an id matches."""
        return identity == self.id or (identity.startswith(self.id) and not self.exact)


def find_transcripts(wanted: IdPattern, directories: Iterable[Path]) -> list[Transcript]:
    """The matching transcripts in these directories, the one changed last first.

    Where no file name matches, the headers of all files are read.
    """
    files = [file for directory in directories for file in _files_of(directory)]
    found = _with_id(wanted, filter(wanted.is_in_name, files)) or _with_id(wanted, files)
    return sorted(found, key=lambda transcript: _changed_at(transcript.path), reverse=True)


def _with_id(wanted: IdPattern, files: Iterable[str]) -> list[Transcript]:
    return [found for file in files if (found := _read(file)) is not None and wanted.matches(found.id)]


def _files_of(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            yield from [entry.path for entry in entries if entry.name.endswith(".jsonl")]
    except OSError:  # a directory that is not there holds nothing
        return


def _changed_at(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _read(path: str) -> Transcript | None:
    """The header of a transcript; None for any other file."""
    try:
        with os.fdopen(open_regular(Path(path), os.O_RDONLY), "rb") as file:
            lines = file.read(_HEAD_BYTES).splitlines()[:_HEAD_LINES]
    except (OSError, ValueError):
        return None
    for line in lines:
        try:
            header = _headers.decode(line)
        except DECODE_ERRORS:
            continue
        if header.type == "session" and header.id:
            return Transcript(path, header.id, header.cwd)
    return None
