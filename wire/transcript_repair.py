"""Opening, locking and repairing transcript files of any agent: JSON Lines that begin with a ``session`` line.

A torn last line is what a crash leaves behind; it is cut off and kept aside. Anything else that is wrong is an error,
and the file stays as it was. Everything here blocks.
"""

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec

from errors import PoolError
from wire.files import IrregularFile, open_regular, sync_directory
from wire.framing import DECODE_ERRORS

MAX_ENTRY_BYTES = 128 * 1024 * 1024
"""A longer line is taken for damage; twice what the wire lets through."""

_COPY_BYTES = 1024 * 1024
_HEADER_SEARCH_LINES = 16
"""First lines in which a misplaced header is looked for, so that the error can say where it is."""


class TranscriptError(PoolError):
    """A transcript cannot be read or written."""

    code: ClassVar[str] = "transcript_error"


class TranscriptMissing(TranscriptError):
    """There is no such transcript."""

    code: ClassVar[str] = "transcript_missing"


class TranscriptDamaged(TranscriptError):
    """The file is empty, is no transcript, or is broken elsewhere than at its end; it was left as it is."""

    code: ClassVar[str] = "transcript_damaged"


class TranscriptForeign(TranscriptError):
    """The transcript was written in another dialect than the one that is to go on with it; it was left as it is."""

    code: ClassVar[str] = "transcript_foreign"


class TranscriptLocked(TranscriptError):
    """Another process writes this transcript."""

    code: ClassVar[str] = "transcript_locked"


class RepairReport(msgspec.Struct, frozen=True):
    """What ``repair_transcript`` found and did.

    ``cut_bytes`` were moved from the end of the file into ``torn_file``; ``completed`` says that the last line was
    whole and lacked only its LF, which was added. With 0, None and False the file was intact and is untouched.
    """

    path: str
    session_id: str
    entries: int
    cut_bytes: int = 0
    torn_file: str | None = None
    completed: bool = False

    @property
    def intact(self) -> bool:
        """Whether nothing had to be done."""
        return not self.cut_bytes and not self.completed


class _AnyHeader(msgspec.Struct, frozen=True):
    """The members that show whose header it is: pi's has a ``timestamp``, the native one says ``created``.

    A journal of an ACP agent is a native one that names the agent's own session.
    """

    type: str = ""
    id: str | None = None
    created: Any = None
    timestamp: Any = None
    agent_session: Any = None

    @property
    def dialect(self) -> str:
        """Whose programs have written it, whatever their version."""
        if self.agent_session is not None:
            return "acp"
        return "pi" if isinstance(self.timestamp, str) and self.created is None else "native"


class _AnyObject(msgspec.Struct, frozen=True):
    """An entry of whatever shape: only that it is a JSON object counts."""


_header_decoder = msgspec.json.Decoder(_AnyHeader)
_object_decoder = msgspec.json.Decoder(_AnyObject)


def repair_transcript(path: str | os.PathLike[str], *, dialect: str | None = None) -> RepairReport:
    """Make sure that ``path`` is a whole transcript, cutting a torn last line into ``<name>.torn-N`` beside it.

    ``dialect``: of the worker that is to go on with it; None where nothing will be written.

    Raises TranscriptMissing, TranscriptDamaged (empty, no header, broken in the middle), TranscriptForeign (of another
    dialect), TranscriptLocked (in use) or TranscriptError (no rights, disk full); in all these cases
    the file is as it was.
    """
    descriptor = open_locked(Path(path))
    try:
        return repair_open_file(descriptor, Path(path), dialect=dialect)
    finally:
        os.close(descriptor)


# --- opening ----------------------------------------------------------------------------------------------------------


def _open(path: Path, flags: int) -> int:
    try:
        return open_regular(path, flags)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise TranscriptMissing(f"there is no transcript {path}") from exc
    except IsADirectoryError as exc:
        raise TranscriptDamaged(f"{path} is a directory, no transcript") from exc
    except IrregularFile as exc:
        raise TranscriptDamaged(f"{path} is no regular file") from exc
    except (OSError, ValueError) as exc:
        raise TranscriptError(f"cannot open the transcript {path}: {exc}") from exc


def open_for_reading(path: Path) -> BinaryIO:
    """Open a regular file as bytes; raises TranscriptMissing, TranscriptDamaged or TranscriptError."""
    return os.fdopen(_open(path, os.O_RDONLY), "rb", buffering=256 * 1024)


def open_unlocked(path: Path) -> int:
    """A descriptor for appending; raises TranscriptMissing, TranscriptDamaged or TranscriptError."""
    return _open(path, os.O_RDWR | os.O_APPEND)


def open_locked(path: Path) -> int:
    """A descriptor for appending that holds the writer's lock; raises the same, or TranscriptLocked."""
    descriptor = open_unlocked(path)
    try:
        lock(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock(descriptor: int, path: Path) -> None:
    """Take the writer's lock, which ends with the descriptor. Raises TranscriptLocked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise TranscriptLocked(f"another process is writing the transcript {path}") from exc


# --- repair -----------------------------------------------------------------------------------------------------------


def read_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The lines that are left, one in memory at a time. Raises TranscriptDamaged for one over the limit."""
    while line := file.readline(MAX_ENTRY_BYTES):
        if len(line) == MAX_ENTRY_BYTES:
            raise TranscriptDamaged(f"{path} has a line of more than {MAX_ENTRY_BYTES} bytes")
        yield line


def _is_object(line: bytes) -> bool:
    try:
        line.decode()  # msgspec passes over bad UTF-8 in values that it skips
        _object_decoder.decode(line)
    except DECODE_ERRORS:
        return False
    return True


class _ScanResult(msgspec.Struct, frozen=True):
    """``whole``: bytes up to the torn end; ``size``: bytes in all; ``ended``: the last good line has its LF."""

    entries: int
    whole: int
    size: int
    ended: bool


def repair_open_file(descriptor: int, path: Path, *, dialect: str | None = None) -> RepairReport:
    """``repair_transcript`` for a file that is open and locked already."""
    with os.fdopen(os.dup(descriptor), "rb", buffering=256 * 1024) as file:
        file.seek(0)
        header = _header(file, path)
        _check_dialect(header, dialect, path)
        file.seek(0)
        found = _scan(file, path)
    report = RepairReport(str(path), header.id or "", found.entries)
    try:
        if found.whole < found.size:
            torn = _save_torn_bytes(descriptor, path, found.whole, found.size)
            os.ftruncate(descriptor, found.whole)
            os.fsync(descriptor)
            return msgspec.structs.replace(report, cut_bytes=found.size - found.whole, torn_file=str(torn))
        if not found.ended:
            os.write(descriptor, b"\n")
            os.fsync(descriptor)
            return msgspec.structs.replace(report, completed=True)
    except OSError as exc:
        raise TranscriptError(f"cannot repair the transcript {path}: {exc.strerror}") from exc
    return report


def _header(file: BinaryIO, path: Path) -> _AnyHeader:
    """The session line, which is the first one. Raises TranscriptDamaged where it is not.

    pi empties a file whose first line is anything else, or a header without an id.
    """
    line = next(read_lines(file, path), None)
    if line is None:
        raise TranscriptDamaged(f"{path} is empty", reason="empty")
    header = _decode_header(line, path)
    if header.type != "session":
        raise TranscriptDamaged(
            f'{path} does not begin with a session header: its type is "{header.type[:40]}"'
            + _misplaced_header_hint(file, path)
        )
    if header.id is None:
        raise TranscriptDamaged(f"{path} has a session header without an id")
    return header


def _misplaced_header_hint(file: BinaryIO, path: Path) -> str:
    """Where the header is instead, and what to do, as the end of a sentence."""
    for number, line in enumerate(itertools.islice(read_lines(file, path), _HEADER_SEARCH_LINES - 1), start=2):
        with contextlib.suppress(*DECODE_ERRORS):
            if _header_decoder.decode(line).type == "session":
                return f"; the header is line {number}: make it the first line, or begin the session again"
    return ""


def _decode_header(line: bytes, path: Path) -> _AnyHeader:
    try:
        line.decode()  # msgspec passes over bad UTF-8 in values that it skips
        return _header_decoder.decode(line)
    except DECODE_ERRORS as exc:
        raise TranscriptDamaged(f"{path} does not begin with a session header: {exc}") from exc


def _check_dialect(header: _AnyHeader, dialect: str | None, path: Path) -> None:
    if dialect is not None and header.dialect != dialect:
        raise TranscriptForeign(
            f"{path} is a transcript of the {header.dialect} dialect, and the agent speaks {dialect}; "
            "begin the session again, or give it to an agent of that dialect"
        )


def _scan(file: BinaryIO, path: Path) -> _ScanResult:
    first = file.readline(MAX_ENTRY_BYTES)
    offset = whole = len(first)
    ended, entries, bad_line = first.endswith(b"\n"), 0, 0
    for number, line in enumerate(read_lines(file, path), start=2):
        offset += len(line)
        if line.isspace():
            continue
        if bad_line:
            raise TranscriptDamaged(f"{path} is damaged in line {bad_line}, and more lines follow it")
        if _is_object(line):
            whole, ended, entries = offset, line.endswith(b"\n"), entries + 1
        else:
            bad_line = number
    if not bad_line:
        whole = offset  # blank lines after the last entry are no tear
    return _ScanResult(entries, whole, offset, ended)


def _save_torn_bytes(descriptor: int, path: Path, start: int, end: int) -> Path:
    torn, target = _new_torn_file(path)
    try:
        with os.fdopen(target, "wb") as file:
            for position in range(start, end, _COPY_BYTES):
                file.write(os.pread(descriptor, min(_COPY_BYTES, end - position), position))
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)
    except OSError:
        torn.unlink(missing_ok=True)
        raise
    return torn


def _new_torn_file(path: Path) -> tuple[Path, int]:
    for number in itertools.count(1):
        torn = path.with_name(f"{path.name}.torn-{number}")
        with contextlib.suppress(FileExistsError):
            return torn, os.open(torn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    raise AssertionError  # itertools.count has no end
