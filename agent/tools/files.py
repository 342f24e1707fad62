"""Reads a file whole with its version, and replaces its content atomically: written aside, then renamed."""

import os
import stat
import uuid
from contextlib import suppress
from typing import NamedTuple

from agent.tools.base import ToolError
from agent.tools.file_state import HASHED_BYTES, FileVersion, digest_of, version_of
from agent.tools.paths import ConfinedPath, file_kind, open_parent, open_regular


class FileContent(NamedTuple):
    """A file's bytes, how it was, and its stamp."""

    data: bytes
    status: os.stat_result
    version: FileVersion


def read_content(place: ConfinedPath) -> FileContent:
    """All of it. Raises OSError, and ToolError for what is no file or is too large (8 MiB) to be held."""
    descriptor, status = open_regular(place)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(HASHED_BYTES + 1)
    if len(data) > HASHED_BYTES:
        raise ToolError(
            f"path: {place.requested} has more than {HASHED_BYTES} bytes, too many for this tool",
            "validation",
            recommendations=["Use exec with a program that works on streams, such as sed."],
        )
    return FileContent(data, status, version_of(status, digest_of(data)))


def current_version(place: ConfinedPath) -> FileVersion | None:
    """How the file is; None when there is none. Raises OSError, and ToolError for what is no file."""
    try:
        descriptor, status = open_regular(place)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return version_of(status, digest_of(file.read(HASHED_BYTES)) if status.st_size <= HASHED_BYTES else None)


def encode_text(text: str, field: str) -> bytes:
    """What the model wants written; raises ToolError where that is no text, and names the field it came in."""
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        raise ToolError(
            f"{field}: the character at index {exc.start} is half of a surrogate pair, which is no character",
            "validation",
        ) from exc


class WriteResult(NamedTuple):
    """The stamp of the new content, and whether the file is new."""

    version: FileVersion
    is_new: bool


def replace_content(place: ConfinedPath, data: bytes, *, expected: os.stat_result | None = None) -> WriteResult:
    """Put ``data`` in the file's place; missing directories are made.

    With ``expected``, only when the file is still as that status says. Raises OSError and ToolError; then nothing has
    changed, but for directories made.
    """
    with open_parent(place, make=expected is None) as (parent, name):
        before = _status(parent, name)
        if before is not None:
            _check_writable(place, parent, name, before)
        aside = f".write-{uuid.uuid4().hex}"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            os.fsync(descriptor)
            if expected is not None:
                _check_unchanged(place, expected, _status(parent, name))
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
            return WriteResult(version_of(os.fstat(descriptor), digest_of(data)), before is None)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=parent)
            raise
        finally:
            os.close(descriptor)


def _status(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_writable(place: ConfinedPath, parent: int, name: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"path: {place.requested} is {file_kind(status)}, not a file", "validation")
    if not os.access(name, os.W_OK, dir_fd=parent, effective_ids=True):  # a rename would not ask
        raise ToolError(f"cannot write {place.requested}: it is read-only")


def _check_unchanged(place: ConfinedPath, expected: os.stat_result, now: os.stat_result | None) -> None:
    if now is None or _identity(expected) != _identity(now):
        raise changed_error(place)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def changed_error(place: ConfinedPath) -> ToolError:
    """The file was changed by another program since the agent saw it."""
    return ToolError(
        f"{place.requested} was changed by someone else since you last read it; nothing was written",
        "logical",
        retryable=True,
        recommendations=["Read the file again, then repeat the change on what it holds now."],
    )
