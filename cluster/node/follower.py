"""A worker's transcript on its node: what was added since the last look, and what a resume needs."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cluster.frames import CHUNK_BYTES
from cluster.messages import Has, Piece
from wire.files import open_regular

_EDGE_BYTES = 1024
_ASIDE = ".unacknowledged"


class TranscriptFollower:
    """Ships a file that is appended to; one that was replaced, cut or written over is shipped whole.

    A file that was written over without becoming shorter is known by another beginning, or another end of what was
    shipped: one that was changed in its middle alone, and appended to, is taken for one that was appended to.

    ``size``: how much of it is at home already, equal; 0 = it is shipped whole in any case. ``number``: what its pieces
    are known by.
    """

    def __init__(self, path: Path, size: int, number: int) -> None:
        self._path = path
        self._number = number
        self._shipped = size
        self._is_whole = size == 0
        self._seen: tuple[int, int, int] | None = None
        self._edges = b""
        with suppress(OSError), os.fdopen(open_regular(path, os.O_RDONLY, follow=False), "rb") as file:
            self._edges = self._read_edges(file.fileno())
            self._inode = os.fstat(file.fileno()).st_ino
            return
        self._inode = 0

    def pieces(self) -> Iterator[Piece]:
        """What is new; nothing where there is no file. Raises OSError."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if state == self._seen:
            return
        with os.fdopen(open_regular(self._path, os.O_RDONLY, follow=False), "rb") as file:
            yield from self._new_pieces(file.fileno(), found.st_size)
            self._edges = self._read_edges(file.fileno())
        self._inode, self._seen = found.st_ino, state

    def _new_pieces(self, file: int, size: int) -> Iterator[Piece]:
        was_replaced = os.fstat(file).st_ino != self._inode or size < self._shipped
        was_replaced |= size == self._shipped and self._seen is not None  # changed, and not by appending
        is_whole = self._is_whole or was_replaced or self._read_edges(file) != self._edges
        offset = 0 if is_whole else self._shipped
        while offset < size or is_whole:
            data = os.pread(file, min(CHUNK_BYTES, size - offset), offset)
            is_last = offset + len(data) >= size or not data
            yield Piece(offset, data, is_whole, is_last, self._number)
            offset += len(data)
            if is_last:
                break
        self._shipped, self._is_whole = offset, False

    def _read_edges(self, file: int) -> bytes:
        """The beginning and the end of what was shipped."""
        length = min(_EDGE_BYTES, self._shipped)
        return os.pread(file, length, 0) + os.pread(file, length, self._shipped - length)


class ResumedTranscript:
    """The file of a conversation that is resumed on this node, as it is compared with home and brought up to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.put")

    def compare(self, limit: int) -> Has:
        """Its size, and the hash of its first ``limit`` bytes; blocks. Raises OSError."""
        return transcript_facts(self._path, limit)

    def put(self, piece: Piece) -> None:
        """Take a piece from home; blocks. What the file had beyond home is kept beside it. Raises OSError."""
        path = self._draft if piece.is_whole else self._path
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT, follow=False), "r+b") as file:
            if piece.is_whole and piece.offset == 0:
                file.truncate()
            size = file.seek(0, os.SEEK_END)
            if size < piece.offset:
                raise OSError(errno.EINVAL, "a piece is missing", str(path))
            if size > piece.offset:
                file.seek(piece.offset)
                self._keep_aside(file.read())
                file.truncate(piece.offset)
            file.seek(piece.offset)
            file.write(piece.data)
        if piece.is_whole and piece.is_last:
            if self._path.exists():
                self._path.replace(self._path.with_name(self._path.name + _ASIDE))
            self._draft.replace(self._path)

    def _keep_aside(self, data: bytes) -> None:
        aside = self._path.with_name(self._path.name + _ASIDE)
        with os.fdopen(open_regular(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, follow=False), "wb") as file:
            file.write(data)


def transcript_facts(path: Path, limit: int) -> Has:
    """A file's size, None where there is none, and the hash of its first ``limit`` bytes; blocks. Raises OSError."""
    try:
        descriptor = open_regular(path, os.O_RDONLY, follow=False)
    except FileNotFoundError:
        return Has()
    with os.fdopen(descriptor, "rb") as file:
        digest, left = hashlib.sha256(), limit
        while left and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
        return Has(os.fstat(file.fileno()).st_size, digest.digest())
