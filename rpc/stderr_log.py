"""A worker's stderr: its tail in memory for errors, whole lines to a rotated file.

A full disk drops lines and counts them; it never stops a worker.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from wire.files import open_regular
from wire.log_file import line_head, rotated_path
from wire.redaction import SecretMask

TAIL_BYTES = 64 * 1024
_MAX_LINE_BYTES = 64 * 1024
_LINE_END = re.compile(rb"[\r\n]")
_MAX_NOTE_CHARACTERS = 500
_ONE_LINE = re.compile(r"\s*[\r\n]\s*")
_CONTROLS = re.compile(rb"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")

Writer = Callable[[int, bytes], int]


class StderrTail:
    """The last ``limit`` bytes of a stream, from where a line begins; of a longer line the end.

    What ``mask`` knows is hidden. Nothing is cut inside a secret: the end of one is not known for one.
    """

    def __init__(self, limit: int = TAIL_BYTES, *, mask: SecretMask | None = None) -> None:
        self._limit = limit
        self._mask = mask or SecretMask()
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self._data += data
        if len(self._data) > 2 * self._limit + self._mask.longest:
            before = len(self._data) - self._limit - 1  # one more shows whether a line begins there
            del self._data[: self._mask.safe_cut(self._data, before - self._mask.longest)]

    def text(self) -> str:
        """The tail as text; bytes that are no UTF-8 are replaced."""
        shown, cut = self._data, len(self._data) - self._limit
        if cut > 0:
            end = _LINE_END.search(shown, cut - 1)
            begins = end.end() if end and shown[end.end() :].strip() else cut
            shown = shown[self._mask.safe_cut(shown, begins) :]
        return self._mask.data(bytes(shown)).decode("utf-8", "replace")


class LineLog:
    """Appends whole lines to a file of at most ``limit`` bytes; the file before it is kept as ``NAME.1``.

    ``path`` None: there is no file, and the lines go to the listener alone.

    What ``mask`` knows is hidden, and control codes are written by number, since a log is read on terminals.
    A line longer than 64 KiB is written in pieces, none of which ends inside a secret.
    ``dropped`` counts lines that could not be written; each block of lines tries afresh, so that the log goes on once
    there is room again. ``listener`` gets the same lines, whether they can be written or not, with their control codes.
    ``clock``: puts the time and the source before each line, as ``wire.log_file`` has it; None = lines as they come.
    ``on_written`` is called when the file has grown.
    """

    def __init__(
        self,
        path: Path | None,
        limit: int,
        write: Writer = os.write,
        *,
        mask: SecretMask | None = None,
        clock: Callable[[], float] | None = None,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._limit = limit
        self._write = write
        self._mask = mask or SecretMask()
        self._clock = clock
        self._on_written = on_written
        self._fd: int | None = None
        self._size = 0
        self._partial = b""
        self._is_torn = False
        self.dropped = 0
        self.listener: Callable[[bytes], None] | None = None

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream; writes the lines that are complete."""
        self._partial += data
        end = self._partial.rfind(b"\n") + 1
        if end == 0 and len(self._partial) >= _MAX_LINE_BYTES + self._mask.longest:
            end = self._mask.safe_cut(self._partial, len(self._partial) - self._mask.longest)
            self._append(self._partial[:end] + b"\n")
            self._partial = self._partial[end:]
        elif end:
            self._append(self._partial[:end])
            self._partial = self._partial[end:]

    def note(self, text: str) -> None:
        """Write a line of the supervisor's own; needs a clock. It comes after all that was fed."""
        self._end_line()
        self._write_lines(_ONE_LINE.sub(" ", text[:_MAX_NOTE_CHARACTERS]).encode(errors="replace") + b"\n", "pool")

    def close(self) -> None:
        """Write what is left of an unfinished last line, and close the file."""
        self._end_line()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _end_line(self) -> None:
        if self._partial:
            self._append(self._partial + b"\n")
            self._partial = b""

    def _append(self, lines: bytes) -> None:
        lines = self._mask.data(lines)
        if self.listener is not None:
            self.listener(lines)
        self._write_lines(lines, "stderr")

    def _write_lines(self, lines: bytes, source: Literal["stderr", "pool"]) -> None:
        if self._path is None:
            return
        written = 0
        lines = _CONTROLS.sub(_escape, lines)
        if self._clock is not None:
            head = line_head(self._clock(), source)
            lines = head + lines[:-1].replace(b"\n", b"\n" + head) + b"\n"
        if self._is_torn:  # the disk became full in the middle of a line
            lines = b"\n" + lines
        try:
            fd = self._rotate_if_full(self._path, len(lines))
            while written < len(lines):
                taken = self._write(fd, lines[written:])
                written += taken
                self._size += taken
        except OSError:
            self.dropped += lines.count(b"\n", max(written, self._is_torn))
        if written:
            self._is_torn = lines[written - 1] != ord("\n")
            self._on_written()

    def _rotate_if_full(self, path: Path, count: int) -> int:
        """The file to write to; one that would grow over the limit makes room first."""
        if self._fd is None:
            self._fd = self._open(path)
            self._size = os.fstat(self._fd).st_size
        if self._size and self._size + count > self._limit:
            os.close(self._fd)
            self._fd = None
            path.replace(rotated_path(path))
            self._fd = self._open(path)
            self._size = 0
        return self._fd

    def _open(self, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, follow=False)


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % found[0][-1]


def note_in_log(path: Path, text: str) -> None:
    """Add one line of the supervisor's own to the log of a worker that has no process."""
    log = LineLog(path, sys.maxsize, clock=time.time)
    log.note(text)
    log.close()
