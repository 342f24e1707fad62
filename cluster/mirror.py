"""The supervisor's copy of a transcript that is written on a node: what is in it is on the disk."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from cluster.frames import LinkViolation
from cluster.messages import Piece, sendable_path
from wire.files import sync_directory

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def relative_parts(sessions: Path, path: str) -> tuple[str, ...]:
    """The names that lead from ``sessions`` to a transcript. Raises ValueError where none do, or it is too long."""
    found = Path(sendable_path(path))
    parts = found.relative_to(sessions).parts if found.is_relative_to(sessions) else ()
    if not parts or ".." in parts or parts[-1].startswith("."):
        raise ValueError(f"the transcript {path!r} does not lie below {sessions}")
    return parts


class TranscriptMirror:
    """One file below ``sessions``, written as its node says; no link is followed. All methods block.

    Raises OSError, ValueError where the path lies elsewhere.
    """

    def __init__(self, sessions: Path, path: str) -> None:
        self._parts = relative_parts(sessions, path)
        self._path = Path(path)
        self._directory = self._open_directory(sessions)
        self._draft: int | None = None
        self._size = self._draft_size = 0
        self._written = 0  # pieces of a batch that could not be synced yet
        self._has_new_entry = False
        try:
            self._file: int | None = self._open(self._parts[-1], 0)
            self._size = os.fstat(self._file).st_size
        except FileNotFoundError:
            self._file = None
        except OSError:
            os.close(self._directory)
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def write(self, pieces: list[Piece]) -> None:
        """Write them in order; on return they are on the disk. After an OSError it is called again with the same.

        Raises OSError; LinkViolation for a piece that leaves a hole or comes twice.
        """
        for piece in pieces[self._written :]:
            if piece.is_whole:
                self._write_whole(piece)
            else:
                self._append(piece)
            self._written += 1
        for file in (self._file, self._draft):
            if file is not None:
                os.fdatasync(file)
        if self._has_new_entry:
            sync_directory(self._path.parent)
        self._written, self._has_new_entry = 0, False

    def close(self) -> None:
        """Close it; what is not complete is removed."""
        if self._draft is not None:
            with suppress(OSError):  # the next one begins it again
                os.unlink(self._draft_name, dir_fd=self._directory)
        for fd in (self._file, self._draft, self._directory):
            if fd is not None:
                os.close(fd)
        self._file = self._draft = None

    @property
    def _draft_name(self) -> str:
        return f".{self._parts[-1]}.mirror"

    def _append(self, piece: Piece) -> None:
        if self._file is None:
            self._file = self._open(self._parts[-1], os.O_CREAT)
            self._has_new_entry = True
        self._check_offset(piece, self._size)
        self._write_at(self._file, piece)
        self._size += len(piece.data)

    def _write_whole(self, piece: Piece) -> None:
        if self._draft is None:
            self._draft = self._open(self._draft_name, os.O_CREAT)
        if piece.offset == 0:
            os.ftruncate(self._draft, 0)
            self._draft_size = 0
        self._check_offset(piece, self._draft_size)
        self._write_at(self._draft, piece)
        if piece.is_last:
            os.fdatasync(self._draft)
            os.rename(self._draft_name, self._parts[-1], src_dir_fd=self._directory, dst_dir_fd=self._directory)
            self._has_new_entry = True
            if self._file is not None:
                os.close(self._file)
            self._file, self._draft = self._draft, None
            self._size = piece.offset + len(piece.data)
            self._draft_size = 0
        else:
            self._draft_size += len(piece.data)

    def _check_offset(self, piece: Piece, size: int) -> None:
        if piece.offset != size:
            what = "is missing" if piece.offset > size else "comes twice"
            raise LinkViolation(f"a part of {self._path.name} {what}")

    def _write_at(self, file: int, piece: Piece) -> None:
        data, offset = memoryview(piece.data), piece.offset
        while data:
            taken = os.pwrite(file, data, offset)
            data, offset = data[taken:], offset + taken

    def _open(self, name: str, flags: int) -> int:
        flags |= os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=self._directory)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is no regular file", str(self._path))
        return file

    def _open_directory(self, sessions: Path) -> int:
        directory = os.open(sessions, _DIRECTORY)
        for name in self._parts[:-1]:
            above = directory
            try:
                directory = os.open(name, _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
        return directory
