"""Pages of a log file for readers that are not on this machine: the last lines, earlier ones, what was added since."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from wire.log_file import (
    Source,
    closing_fd,
    is_same_file,
    lines_backwards,
    log_path,
    open_log,
    parse_line,
    rotated_path,
)


class PagedLine(msgspec.Struct, frozen=True):
    """One line. ``at``: seconds since the epoch, null for a line that belongs to the one before.

    ``source``: ``stderr``, ``pool`` for a note of the supervisor, ``log`` for a line of the supervisor's log.
    """

    at: float | None
    source: Source
    text: str


class LogFilePage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one log, oldest first. ``before`` and ``after`` are positions to ask with next.

    ``before``: where the lines begin that lie before these; null where none is kept, or where the page begins at the
    position that was asked for as ``after``. ``after``: where these lines end; null where the log has no file.
    """

    lines: list[PagedLine]
    before: str | None
    after: str | None


_File = tuple[int, int, int]
"""Inode, descriptor and end."""


def read_page(
    directory: Path, name: str, *, limit: int, max_bytes: int, before: str | None = None, after: str | None = None
) -> LogFilePage:
    """The last lines, of those before or after a position of an earlier page; at most ``limit``, of ``max_bytes``.

    Only lines that are complete. One line comes always, cut where it is longer than ``max_bytes``. A position in a
    file that is not kept any more ends nothing: ``before`` it lies nothing, ``after`` it lies all that is kept.
    """
    with ExitStack() as stack:
        files = list(_open_files(directory, name, stack))
        end = None if before is None else _parse_position(before)
        ends = {inode: size for inode, _, size in files}
        if end is not None:
            kept = [each for each, _, _ in files]
            files = files[kept.index(end[0]) :] if end[0] in kept else []
            ends[end[0]] = min(end[1], ends.get(end[0], 0))
        return _collect([(inode, fd, ends[inode]) for inode, fd, _ in files], name, limit, max_bytes, after)


def _collect(
    files: list[tuple[int, int, int]], name: str, limit: int, max_bytes: int, after: str | None
) -> LogFilePage:
    """``files``: the newest first."""
    found: list[PagedLine] = []
    size = 0
    newest = f"{files[0][0]}-{_last_line_end(*files[0][1:])}" if files else None
    for inode, fd, end in files:
        at = _last_line_end(fd, end)
        for line in lines_backwards(fd, at):
            position = f"{inode}-{at}"
            if position == after:
                return LogFilePage(lines=found[::-1], before=None, after=newest)
            if len(found) == limit or (found and size + len(line) > max_bytes):
                return LogFilePage(lines=found[::-1], before=position, after=newest)
            parsed = parse_line(name, line[:max_bytes])
            found.append(PagedLine(parsed.at, parsed.source, parsed.text))
            size += len(line)
            at -= len(line) + 1
        if after == f"{inode}-0":
            break
    return LogFilePage(lines=found[::-1], before=None, after=newest)


def _open_files(directory: Path, name: str, stack: ExitStack) -> Iterator[_File]:
    """The files of the log, the newest first."""
    path = log_path(directory, name)
    opened: list[int] = []
    for each in (path, rotated_path(path)):  # in this order: a file that is rotated meanwhile is found twice, not never
        fd = open_log(each)
        if fd is None:
            continue
        stack.enter_context(closing_fd(fd))
        if not any(is_same_file(fd, other) for other in opened):
            opened.append(fd)
            facts = os.fstat(fd)
            yield facts.st_ino, fd, facts.st_size


def _last_line_end(fd: int, end: int) -> int:
    """The end of the last complete line before ``end``."""
    if end == 0 or os.pread(fd, 1, end - 1) == b"\n":
        return end
    return end - len(next(lines_backwards(fd, end)))


def _parse_position(text: str) -> tuple[int, int]:
    inode, _, at = text.partition("-")
    return int(inode), int(at)
