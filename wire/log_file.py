"""The log files of workers and of the supervisor: the form of their lines, and reading them while they grow.

A line of a worker's log is ``TIME SOURCE TEXT``; ``SOURCE`` is ``stderr`` for what the worker has written, and ``pool``
for what the supervisor notes: when the worker was started, and how it ended. A file that has reached its limit is
renamed to ``NAME.1``. Files are read as they are; no supervisor need run.
"""

import datetime as dt
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from wire.files import open_regular
from wire.framing import DECODE_ERRORS

LOG_DIR = "logs"
"""Where they lie in the data directory."""
SUPERVISOR_LOG = "supervisor"
"""The name of the supervisor's own log among those of workers (``w1``, ``w2`` ...)."""
STARTED, ENDED = "started", "ended"
"""The first words of what the supervisor notes."""
GAP = "lines may be missing here: the log's files were replaced faster than they could be read"
"""What a reader puts where a file is gone that it has not read."""
_BLOCK_BYTES = 64 * 1024
_HEAD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})Z (stderr|pool) ")
_SUFFIX = ".log"

Source = Literal["stderr", "pool", "log"]


class LogLine(NamedTuple):
    """One line. ``at``: seconds since the epoch, None for a line without a time, which belongs to the one before.

    ``source``: ``stderr``, ``pool``, or ``log`` for a line of the supervisor's own log, which is JSON.
    """

    log: str
    at: float | None
    source: Source
    text: str


def utc_text(at: float) -> str:
    """A Unix time in seconds as a log has it."""
    seconds, milliseconds = divmod(int(at * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"


def line_head(at: float, source: Source) -> bytes:
    """What a line of a worker's log begins with."""
    return f"{utc_text(at)} {source} ".encode()


def log_path(directory: Path, name: str) -> Path:
    """The file of that log."""
    return directory / f"{name}{_SUFFIX}"


def rotated_path(path: Path) -> Path:
    """Where the file before ``path`` is kept."""
    return path.with_name(path.name + ".1")


def log_names(directory: Path) -> list[str]:
    """The workers whose logs are kept, the one that has written last at the end; empty where there is no directory."""
    changed: dict[str, float] = {}
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            name, suffix, rest = entry.name.partition(_SUFFIX)
            if suffix and rest in ("", ".1") and name != SUPERVISOR_LOG:
                with suppress(FileNotFoundError):
                    changed[name] = max(changed.get(name, 0.0), entry.stat(follow_symlinks=False).st_mtime)
    return sorted(changed, key=lambda name: (changed[name], name))


def parse_line(log: str, line: bytes) -> LogLine:
    """A line without its end. One without a time is what an earlier version wrote, or a program's traceback."""
    if log == SUPERVISOR_LOG:
        return LogLine(log, _json_time(line), "log", line.decode("utf-8", "replace"))
    head = _HEAD.match(line)
    if head is None:
        return LogLine(log, None, "stderr", line.decode("utf-8", "replace"))
    source: Source = "pool" if head[3] == b"pool" else "stderr"
    return LogLine(log, _seconds(head[1], head[2]), source, line[head.end() :].decode("utf-8", "replace"))


def has_ended(lines: list[LogLine]) -> bool:
    """Whether the worker whose last lines these are has ended: nothing more can come."""
    return bool(lines) and lines[-1].source == "pool" and lines[-1].text.startswith(ENDED)


class LogReader:
    """The last lines of a log, then what is added to it, each line once; follows the file when it is rotated.

    A context manager. A log that does not exist yet is empty.
    """

    def __init__(self, directory: Path, name: str, *, from_begin: bool = False) -> None:
        """``from_begin``: all that the file holds is new."""
        self.name = name
        self._path = log_path(directory, name)
        self._fd = None if from_begin else open_log(self._path)
        self._end = os.lseek(self._fd, 0, os.SEEK_END) if self._fd is not None else 0
        """What lies before is past, to be asked for by ``last``; what lies behind is new."""
        self._partial = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more; idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def last(self, limit: int, since: float | None = None) -> list[LogLine]:
        """The last ``limit`` lines at the time of the construction, of these the ones not before ``since``."""
        lines: Iterable[bytes] = () if self._fd is None else lines_backwards(self._fd, self._end)
        found = [parse_line(self.name, line) for line in islice(lines, limit)]
        before = open_log(rotated_path(self._path)) if len(found) < limit else None
        if before is not None:
            with closing_fd(before):
                if self._fd is None or not is_same_file(before, self._fd):  # else it was rotated a moment ago
                    lines = lines_backwards(before, os.fstat(before).st_size)
                    found += [parse_line(self.name, line) for line in islice(lines, limit - len(found))]
        found.reverse()
        return found if since is None else _not_before(found, since)

    def read(self) -> list[LogLine]:
        """The lines that are complete and new. One that is torn stays until its end has come."""
        found: list[LogLine] = []
        while self._fd is not None or self._reopen():
            found += self._read_rest()
            if not self._is_rotated():
                break
            found += self._go_on()
        return found

    def _go_on(self) -> list[LogLine]:
        """Leave the file, which was rotated, for the one behind it; the mark of a gap where some between are gone."""
        last = [*self._read_rest()]  # what came between the last look at it and its end
        before = open_log(rotated_path(self._path))
        is_next = before is None or self._fd is None or is_same_file(before, self._fd)
        self.close()
        self._partial = b""
        if is_next:
            if before is not None:
                os.close(before)
            return last
        self._fd = before
        return [*last, LogLine(self.name, None, "pool", GAP)]

    def _reopen(self) -> bool:
        self._fd, self._partial = open_log(self._path), b""
        return self._fd is not None

    def _read_rest(self) -> Iterator[LogLine]:
        assert self._fd is not None  # noqa: S101  # opened by the caller
        while data := os.read(self._fd, _BLOCK_BYTES):
            *lines, self._partial = (self._partial + data).split(b"\n")
            yield from (parse_line(self.name, line) for line in lines)

    def _is_rotated(self) -> bool:
        """Whether there is another file under the name now."""
        named = open_log(self._path)
        if named is None or self._fd is None:
            return False
        with closing_fd(named):
            return not is_same_file(named, self._fd)


@contextmanager
def closing_fd(fd: int) -> Iterator[None]:
    """Close a descriptor at the block's end."""
    try:
        yield
    finally:
        os.close(fd)


def open_log(path: Path) -> int | None:
    """A descriptor to read from; None where there is no such file, or one that is no log."""
    try:
        return open_regular(path, os.O_RDONLY, follow=False)
    except OSError:
        return None


def is_same_file(one: int, other: int) -> bool:
    """Whether both descriptors are of one file."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def lines_backwards(fd: int, end: int) -> Iterator[bytes]:
    """The lines of a file before ``end``, the last one first; an unfinished one counts."""
    pieces: list[bytes] = []
    """Of the line whose begin is not found yet, the last piece first."""
    is_at_end = True
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        first, *lines = os.pread(fd, end - begin, begin).split(b"\n")
        end = begin
        if lines:
            last = lines.pop() + b"".join(reversed(pieces))
            if last or not is_at_end:
                yield last
            yield from reversed(lines)
            pieces, is_at_end = [first], False
        else:
            pieces.append(first)
    if pieces:
        yield b"".join(reversed(pieces))


def _not_before(lines: list[LogLine], since: float) -> list[LogLine]:
    first = next((at for at, line in enumerate(lines) if line.at is not None and line.at >= since), len(lines))
    return lines[first:]


def _seconds(text: bytes, milliseconds: bytes) -> float | None:
    try:
        return dt.datetime.fromisoformat(f"{text.decode()}+00:00").timestamp() + int(milliseconds) / 1000
    except (ValueError, OverflowError):
        return None


def _json_time(line: bytes) -> float | None:
    fields = json_fields(line)
    found = _JSON_TIME.match(str(fields.get("ts", "")).encode()) if fields else None
    return _seconds(found[1], found[2]) if found else None


_JSON_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})Z$")


def json_fields(line: bytes | str) -> dict[str, Any] | None:
    """The fields of a line of the supervisor's log; None for what is no JSON object, as a traceback."""
    try:
        decoded = msgspec.json.decode(line)
    except DECODE_ERRORS:
        return None
    return decoded if isinstance(decoded, dict) else None
