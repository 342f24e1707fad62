"""The conversations that a front end may name by an id: transcripts, found by the id in their header. Blocks."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from wire.framing import DECODE_ERRORS
from wire.regular_file import open_regular

__all__ = ["Transcript", "Wanted", "find_transcripts", "looks_like_id"]

_HEAD_BYTES = 64 * 1024
_HEAD_LINES = 5
"""A program may write a title or the like before the header."""
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
    """Whether a name is the id of a conversation or the beginning of one: at least 8 digits of a UUID."""
    return _ID.fullmatch(text) is not None


class Wanted(msgspec.Struct, frozen=True):
    """The conversation with this id; where it need not be ``exact``, one whose id begins so."""

    id: str
    exact: bool = False

    def names(self, path: str) -> bool:
        """Whether a transcript's name, ``TIME_ID.jsonl``, has such an id."""
        return f"_{self.id}{'.jsonl' if self.exact else ''}" in Path(path).name

    def is_id(self, identity: str) -> bool:
        """Whether that is such an id."""
        return identity == self.id or (identity.startswith(self.id) and not self.exact)


def find_transcripts(wanted: Wanted, directories: Iterable[Path]) -> list[Transcript]:
    """Those in these directories that are wanted, the one changed last first.

    Files whose names do not tell are read too, where no name does.
    """
    files = [file for directory in directories for file in _files_of(directory)]
    found = _with_id(wanted, filter(wanted.names, files)) or _with_id(wanted, files)
    return sorted(found, key=lambda transcript: _changed_at(transcript.path), reverse=True)


def _with_id(wanted: Wanted, files: Iterable[str]) -> list[Transcript]:
    return [found for file in files if (found := _read(file)) is not None and wanted.is_id(found.id)]


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
    """What a transcript's header says; None for a file that is none."""
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
