"""Transcript files: append-only JSON Lines with one writer at a time, their reader, and the repair of a torn end.

``repair_transcript`` is for any JSONL transcript that begins with a ``{"type":"session", ...}`` line, whichever agent
wrote it; writer and reader are for the native format of ``wire.entries``. Everything here blocks; call it in a thread
where the event loop must not wait for a disk. No file is ever overwritten, and nothing is cut without being kept.
"""

import contextlib
import fcntl
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import msgspec

from errors import PoolError
from wire.entries import FORMAT_VERSION, CompactionEntry, Entry, MessageEntry, OtherEntry, SessionHeader

__all__ = [
    "MAX_ENTRY_BYTES",
    "RepairReport",
    "TranscriptDamaged",
    "TranscriptError",
    "TranscriptLocked",
    "TranscriptMissing",
    "TranscriptWriter",
    "read_entries",
    "read_header",
    "repair_transcript",
]

MAX_ENTRY_BYTES = 128 * 1024 * 1024
"""A longer line is taken for damage; twice what the wire lets through."""

_COPY_BYTES = 1024 * 1024


class TranscriptError(PoolError):
    """A transcript cannot be read or written."""

    code: ClassVar[str] = "transcript_error"


class TranscriptMissing(TranscriptError):
    """There is no such transcript."""

    code: ClassVar[str] = "transcript_missing"


class TranscriptDamaged(TranscriptError):
    """The file is empty, is no transcript, or is broken elsewhere than at its end; it was left as it is."""

    code: ClassVar[str] = "transcript_damaged"


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
    type: str = ""
    id: str = ""


class _LooseEntry(msgspec.Struct, frozen=True):
    type: Any = None
    seq: Any = None


class _AnyObject(msgspec.Struct, frozen=True):
    """An entry of whatever shape: only that it is a JSON object counts."""


_KNOWN_TYPES = frozenset({"message", "compaction"})
_first_line_decoder = msgspec.json.Decoder(_AnyHeader)
_loose_decoder = msgspec.json.Decoder(_LooseEntry)
_object_decoder = msgspec.json.Decoder(_AnyObject)
_header_decoder = msgspec.json.Decoder(SessionHeader)
_entry_decoder: msgspec.json.Decoder[MessageEntry | CompactionEntry] = msgspec.json.Decoder(
    MessageEntry | CompactionEntry
)


def repair_transcript(path: str | os.PathLike[str]) -> RepairReport:
    """Make sure that ``path`` is a whole transcript, cutting a torn last line into ``<name>.torn-N`` beside it.

    Raises TranscriptMissing, TranscriptDamaged (empty, no header, broken in the middle), TranscriptLocked (somebody
    writes it now) or TranscriptError (no rights, disk full); in all these cases the file is as it was.
    """
    descriptor = _open_locked(Path(path))
    try:
        return _repair(descriptor, Path(path))
    finally:
        os.close(descriptor)


def read_header(path: str | os.PathLike[str]) -> SessionHeader:
    """The header of a native transcript; reads one line. Raises TranscriptMissing or TranscriptDamaged."""
    with _open_for_reading(Path(path)) as file:
        return _decode_header(file.readline(MAX_ENTRY_BYTES), Path(path))


def read_entries(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """The entries after the header, one at a time, never more than one line in memory.

    A torn last line ends the reading as if it were not there (it was never acknowledged).
    Raises TranscriptMissing, or TranscriptDamaged at the entry that is broken.
    """
    with _open_for_reading(Path(path)) as file:
        _decode_header(file.readline(MAX_ENTRY_BYTES), Path(path))
        for line in _lines(file, Path(path)):
            if not line.endswith(b"\n"):
                return
            if not line.isspace():
                yield _decode_entry(line, Path(path))


class TranscriptWriter:
    """The one writer of a native transcript; holds an exclusive lock on the file until ``close``."""

    def __init__(self, descriptor: int, path: Path, header: SessionHeader, report: RepairReport | None) -> None:
        self._descriptor = descriptor
        self._encoder = msgspec.json.Encoder()
        self.path = path
        self.header = header
        self.report = report

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: SessionHeader) -> Self:
        """Begin a transcript: directories 0700, the file 0600, the header on disk when this returns.

        Raises TranscriptError when the file exists already or cannot be made.
        """
        path = Path(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
        except OSError as exc:
            raise TranscriptError(f"cannot make the transcript {path}: {exc.strerror}") from exc
        writer = cls(descriptor, path, header, None)
        try:
            _lock(descriptor, path)
            writer._write(writer._encoder.encode(header) + b"\n")
            writer.sync()
            _sync_directory(path.parent)
        except BaseException:
            writer.close()
            raise
        return writer

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Go on with a transcript, repaired first (see ``report``). Raises as ``repair_transcript`` does."""
        path = Path(path)
        descriptor = _open_locked(path)
        try:
            report = _repair(descriptor, path)
            return cls(descriptor, path, read_header(path), report)
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, entry: MessageEntry | CompactionEntry) -> None:
        """Write one entry, whole or not at all; it is safe from a power cut only after ``sync``."""
        self._write(self._encoder.encode(entry) + b"\n")

    def sync(self) -> None:
        """Force what was appended to the disk."""
        try:
            os.fsync(self._descriptor)
        except OSError as exc:
            raise TranscriptError(f"cannot write the transcript {self.path}: {exc.strerror}") from exc

    def close(self) -> None:
        """Give the lock back. Harmless when closed already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: bytes) -> None:
        whole = os.fstat(self._descriptor).st_size
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as exc:
            with contextlib.suppress(OSError):  # if even this fails, the next repair cuts the half entry
                os.ftruncate(self._descriptor, whole)
            raise TranscriptError(f"cannot write the transcript {self.path}: {exc.strerror}") from exc


# --- opening --------------------------------------------------------------------------------------------------------


def _open(path: Path, flags: int) -> int:
    try:
        # Without O_NONBLOCK the open of a named pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise TranscriptMissing(f"there is no transcript {path}") from exc
    except IsADirectoryError as exc:
        raise TranscriptDamaged(f"{path} is a directory, no transcript") from exc
    except (OSError, ValueError) as exc:
        raise TranscriptError(f"cannot open the transcript {path}: {exc}") from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TranscriptDamaged(f"{path} is no regular file")
    return descriptor


def _open_for_reading(path: Path) -> BinaryIO:
    return os.fdopen(_open(path, os.O_RDONLY), "rb", buffering=256 * 1024)


def _open_locked(path: Path) -> int:
    descriptor = _open(path, os.O_RDWR | os.O_APPEND)
    try:
        _lock(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise TranscriptLocked(f"another process is writing the transcript {path}") from exc


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- lines ----------------------------------------------------------------------------------------------------------


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    while line := file.readline(MAX_ENTRY_BYTES):
        if len(line) == MAX_ENTRY_BYTES:
            raise TranscriptDamaged(f"{path} has a line of more than {MAX_ENTRY_BYTES} bytes")
        yield line


def _is_object(line: bytes) -> bool:
    try:
        line.decode()  # msgspec passes over bad UTF-8 in values that nobody asked for
        _object_decoder.decode(line)
    except (UnicodeDecodeError, msgspec.MsgspecError):
        return False
    return True


def _decode_header(line: bytes, path: Path) -> SessionHeader:
    try:
        header = _header_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise TranscriptDamaged(f"{path} does not begin with the header of a native transcript: {exc}") from exc
    if header.version > FORMAT_VERSION:
        raise TranscriptDamaged(f"{path} has format version {header.version}, newer than {FORMAT_VERSION}")
    return header


def _decode_entry(line: bytes, path: Path) -> Entry:
    try:
        return _entry_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        other = _decode_other(line)
        if other is None or other.type in _KNOWN_TYPES:
            raise TranscriptDamaged(f"{path} has a broken entry: {exc}") from exc
        return other


def _decode_other(line: bytes) -> OtherEntry | None:
    try:
        entry = _loose_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    kind = entry.type if isinstance(entry.type, str) else ""
    return OtherEntry(kind, entry.seq if type(entry.seq) is int else 0, line.rstrip(b"\r\n"))


# --- repair ---------------------------------------------------------------------------------------------------------


class _Findings(msgspec.Struct, frozen=True):
    """``whole``: bytes up to the torn end; ``size``: bytes in all; ``ended``: the last good line has its LF."""

    session_id: str
    entries: int
    whole: int
    size: int
    ended: bool


def _repair(descriptor: int, path: Path) -> RepairReport:
    with os.fdopen(os.dup(descriptor), "rb", buffering=256 * 1024) as file:
        file.seek(0)
        found = _scan(file, path)
    report = RepairReport(str(path), found.session_id, found.entries)
    try:
        if found.whole < found.size:
            torn = _keep_aside(descriptor, path, found.whole, found.size)
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


def _scan(file: BinaryIO, path: Path) -> _Findings:
    first = file.readline(MAX_ENTRY_BYTES)
    session_id = _session_id(first, path)
    offset = whole = len(first)
    ended, entries, bad_line = first.endswith(b"\n"), 0, 0
    for number, line in enumerate(_lines(file, path), start=2):
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
    return _Findings(session_id, entries, whole, offset, ended)


def _session_id(line: bytes, path: Path) -> str:
    if not line:
        raise TranscriptDamaged(f"{path} is empty", reason="empty")
    try:
        line.decode()
        header = _first_line_decoder.decode(line)
    except (UnicodeDecodeError, msgspec.MsgspecError) as exc:
        raise TranscriptDamaged(f"{path} does not begin with a session header: {exc}") from exc
    if header.type != "session":
        raise TranscriptDamaged(f'{path} does not begin with a session header: its type is "{header.type[:40]}"')
    return header.id


def _keep_aside(descriptor: int, path: Path, start: int, end: int) -> Path:
    torn, target = _new_torn_file(path)
    try:
        with os.fdopen(target, "wb") as file:
            for position in range(start, end, _COPY_BYTES):
                file.write(os.pread(descriptor, min(_COPY_BYTES, end - position), position))
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(path.parent)
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
