"""The supervisor's copy of a transcript that is written on a node: what is in it is on the disk."""

import errno
import os
import stat
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
        self._size = 0
        try:
            self._file: int | None = self._open(self._parts[-1], 0)
            self._size = os.fstat(self._file).st_size
        except FileNotFoundError:
            self._file = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def write(self, pieces: list[Piece]) -> None:
        """Write them in order; on return they are on the disk. May be called again with the same after an OSError.

        Raises OSError; LinkViolation for a piece that leaves a hole or comes twice.
        """
        is_new = False
        for piece in pieces:
            is_new |= self._write(piece)
        for file in (self._file, self._draft):
            if file is not None:
                os.fdatasync(file)
        if is_new:
            sync_directory(self._path.parent)

    def close(self) -> None:
        """Close it."""
        for fd in (self._file, self._draft, self._directory):
            if fd is not None:
                os.close(fd)
        self._file = self._draft = None

    def _write(self, piece: Piece) -> bool:
        """Whether the directory has changed."""
        if piece.is_whole:
            return self._write_whole(piece)
        is_new = self._file is None
        if self._file is None:
            self._file = self._open(self._parts[-1], os.O_CREAT)
        if piece.offset > self._size:
            raise LinkViolation(f"a part of {self._path.name} is missing")
        self._write_at(self._file, piece)
        self._size = piece.offset + len(piece.data)
        return is_new

    def _write_whole(self, piece: Piece) -> bool:
        draft = f".{self._parts[-1]}.mirror"
        if self._draft is None:
            self._draft = self._open(draft, os.O_CREAT | os.O_TRUNC)
        if piece.offset > os.fstat(self._draft).st_size:
            raise LinkViolation(f"a part of {self._path.name} is missing")
        self._write_at(self._draft, piece)
        if not piece.is_last:
            return False
        os.fdatasync(self._draft)
        os.rename(draft, self._parts[-1], src_dir_fd=self._directory, dst_dir_fd=self._directory)
        if self._file is not None:
            os.close(self._file)
        self._file, self._draft = self._draft, None
        self._size = piece.offset + len(piece.data)
        return True

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
