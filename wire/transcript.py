"""Transcript files: append-only JSON Lines with one writer at a time, their reader, and the repair of a torn end.

``repair_transcript`` is for any JSONL transcript with a ``{"type":"session", ...}`` line at its beginning, whichever
agent wrote it; writer and reader are for the native format of ``wire.entries``. Everything here blocks; call it in a
thread where the event loop must not wait for a disk. No file is ever overwritten, and nothing is cut without being
kept.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from wire.entries import FORMAT_VERSION, KnownEntry, ProcessMark, SessionHeader, TranscriptEntry, UnknownEntry
from wire.files import sync_directory
from wire.framing import DECODE_ERRORS
from wire.transcript_repair import (
    MAX_ENTRY_BYTES,
    RepairReport,
    TranscriptDamaged,
    TranscriptError,
    lock,
    open_for_reading,
    open_locked,
    open_unlocked,
    read_lines,
    repair_open_file,
)


class _LooseEntry(msgspec.Struct, frozen=True):
    type: Any = None
    seq: Any = None


_KNOWN_TYPES = frozenset({"message", "compaction", "call", "exec", "cache-ttl"})
_loose_decoder = msgspec.json.Decoder(_LooseEntry)
_header_decoder = msgspec.json.Decoder(SessionHeader)
_entry_decoder: msgspec.json.Decoder[KnownEntry] = msgspec.json.Decoder(KnownEntry)


def read_header(path: str | os.PathLike[str]) -> SessionHeader:
    """The header of a native transcript; reads one line. Raises TranscriptMissing or TranscriptDamaged."""
    with open_for_reading(Path(path)) as file:
        return _decode_header(file.readline(MAX_ENTRY_BYTES), Path(path))


def read_entries(path: str | os.PathLike[str]) -> Iterator[TranscriptEntry]:
    """The entries after the header, one at a time, never more than one line in memory.

    A torn last line ends the reading as if it were not there (it was never acknowledged).
    Raises TranscriptMissing, or TranscriptDamaged at the entry that is broken.
    """
    with open_for_reading(Path(path)) as file:
        _decode_header(file.readline(MAX_ENTRY_BYTES), Path(path))
        for line in read_lines(file, Path(path)):
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
        self._must_sync_directory = False
        self._failure: TranscriptError | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: SessionHeader) -> Self:
        """Begin a transcript: directories 0700, the file 0600, its header written before it has its name.

        Nothing is forced to the disk before the first ``sync``: a conversation in which nothing was said yet is not
        worth two waits for a disk, which would be most of what it costs to begin one.

        Raises TranscriptError when the file exists already or cannot be made.
        """
        path = Path(path)
        unnamed = path.with_name(f"{path.name}.new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            descriptor = os.open(unnamed, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise TranscriptError(f"cannot make the transcript {path}: {exc.strerror}") from exc
        writer = cls(descriptor, path, header, None)
        writer._must_sync_directory = True
        try:
            lock(descriptor, path)
            writer._write(writer._encoder.encode(header) + b"\n")
            unnamed.rename(path)
        except BaseException as exc:
            unnamed.unlink(missing_ok=True)
            writer.close()
            if isinstance(exc, OSError):
                raise TranscriptError(f"cannot make the transcript {path}: {exc.strerror}") from exc
            raise
        return writer

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Go on with a transcript, repaired first (see ``report``). Raises as ``repair_transcript`` does."""
        path = Path(path)
        descriptor = open_locked(path)
        try:
            report = repair_open_file(descriptor, path, dialect="native")
            return cls(descriptor, path, read_header(path), report)
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, entry: KnownEntry | SessionHeader | ProcessMark) -> None:
        """Write one entry, whole or not at all; it is safe from a power cut only after ``sync``."""
        self._write(self._encoder.encode(entry) + b"\n")

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is written is still the one of that name."""
        try:
            named, written = self.path.stat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (written.st_dev, written.st_ino)

    @property
    def size(self) -> int:
        """Bytes of the file now."""
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """Force what was appended to the disk, and the first time the new file's name.

        Once this has failed, writing and syncing fail for good: the kernel may have dropped what it could not write,
        and would call the next sync a success. Open the transcript again to see what is left.
        """
        self._raise_if_failed()
        try:
            os.fsync(self._descriptor)
            if self._must_sync_directory:
                sync_directory(self.path.parent)
                self._must_sync_directory = False
        except OSError as exc:
            self._failure = TranscriptError(f"cannot write the transcript {self.path}: {exc.strerror}")
            raise self._failure from exc

    def close(self) -> None:
        """Give the lock back. Harmless when closed already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise TranscriptError(f"{self._failure}; what was written last may be lost")

    def _write(self, line: bytes) -> None:
        self._raise_if_failed()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as exc:
            with contextlib.suppress(OSError):  # if even this fails, the next repair cuts the half entry
                written = len(line) - len(rest)
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise TranscriptError(f"cannot write the transcript {self.path}: {exc.strerror}") from exc


def open_for_appending(path: str) -> TranscriptWriter:
    """A writer of an existing transcript without lock and repair, for one who knows that no other writes.

    Raises TranscriptMissing, TranscriptDamaged or TranscriptError.
    """
    descriptor = open_unlocked(Path(path))
    try:
        return TranscriptWriter(descriptor, Path(path), read_header(path), None)
    except BaseException:
        os.close(descriptor)
        raise


def _decode_header(line: bytes, path: Path) -> SessionHeader:
    try:
        header = _header_decoder.decode(line)
    except DECODE_ERRORS as exc:
        raise TranscriptDamaged(f"{path} does not begin with the header of a native transcript: {exc}") from exc
    if header.version > FORMAT_VERSION:
        raise TranscriptDamaged(f"{path} has format version {header.version}, newer than {FORMAT_VERSION}")
    return header


def _decode_entry(line: bytes, path: Path) -> TranscriptEntry:
    try:
        return _entry_decoder.decode(line)
    except DECODE_ERRORS as exc:
        other = _decode_other(line)
        if other is None or other.type in _KNOWN_TYPES:
            raise TranscriptDamaged(f"{path} has a broken entry: {exc}") from exc
        return other


def _decode_other(line: bytes) -> UnknownEntry | None:
    try:
        entry = _loose_decoder.decode(line)
    except DECODE_ERRORS:
        return None
    kind = entry.type if isinstance(entry.type, str) else ""
    return UnknownEntry(kind, entry.seq if type(entry.seq) is int else 0, line.rstrip(b"\r\n"))
