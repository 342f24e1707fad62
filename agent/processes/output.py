r"""The output of a command: read from its pipes, made safe to show, its end kept; all of it bounded.

Reading keeps up with a flood: bytes become text only when it is asked for, or when too many wait. Bytes of which
nothing could be kept are skipped. The text is exactly what it would be otherwise.

Sanitised text: UTF-8 across reads (invalid bytes become U+FFFD), no ANSI, other controls as ``\xNN``; tab, LF and CR
stay. An escape sequence is removed only when it is complete, bounded and within one line; any other ESC is shown as
``\x1b``. So a line feed resets the state, which makes it possible to skip a flood without reading it.
"""

import os
import re
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Self

import msgspec
import trio

from agent.processes.spawn import SpawnedShell

_STRING_CHARS = 4096
"""The longest string (a title, a link) that an escape sequence may hold."""

_ESCAPE = "\x1b"
_CSI = r"\[[0-?]{0,256}[ -/]{0,16}"
_OSC = rf"\][^\x07\x1b\n]{{0,{_STRING_CHARS}}}"
_STRING = rf"[PX^_][^\x1b\n]{{0,{_STRING_CHARS}}}"
_SEQUENCE = rf"\x1b(?:{_CSI}[@-~]|{_OSC}(?:\x07|\x1b\\)|{_STRING}\x1b\\|[ -/]{{1,16}}[0-~]|[0-OQ-WYZ\\`-~])"
_REMOVED = re.compile(rf"{_SEQUENCE}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INCOMPLETE = re.compile(rf"\x1b(?:{_CSI}|(?:{_OSC}|{_STRING})\x1b?|[ -/]{{0,16}})?\Z")
_MAX_SEQUENCE = _STRING_CHARS + 300
"""No sequence is longer than this."""

_PLAIN = bytes([0x09, 0x0A, 0x0D, *range(0x20, 0x7F)])


class Sanitiser:
    """One stream's state between two reads."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._incomplete = ""
        self._is_clean = True

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text of the next bytes; the beginning of a character or a sequence is held back for the next call."""
        if self._is_clean and not data.translate(None, _PLAIN):
            return data.decode("ascii")  # by far the most common
        text = self._incomplete + self._decoder.decode(data, final)
        held = None if final else _INCOMPLETE.search(text, max(0, len(text) - _MAX_SEQUENCE))
        self._incomplete = "" if held is None else held.group()
        self._is_clean = not self._incomplete and not self._decoder.getstate()[0]
        return _REMOVED.sub(_escape_control, text if held is None else text[: held.start()])

    def skip(self, data: bytes) -> None:
        """Advance over ``data`` without its text: everything before its last line feed costs nothing."""
        cut = data.rfind(b"\n") + 1
        if cut:
            self._decoder.reset()
            self._incomplete, self._is_clean = "", True
        self.feed(data[cut:])


def _escape_control(match: re.Match[str]) -> str:
    found = match.group()
    return "" if found[0] == _ESCAPE and len(found) > 1 else f"\\x{ord(found):02x}"


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in characters, but ``waiting`` in bytes."""

    kept: int = 200_000
    pending: int = 30_000
    chunk: int = 8_192
    waiting: int = 1024 * 1024


_CHUNK_COST = 100
"""Bytes that an object costs beside what it holds: a command that writes single bytes is bounded too."""
_CHARACTER_BYTES = 4
"""The most bytes of one UTF-8 character."""


class _StreamState:
    """One stream's state; ``min_chars``: a lower bound of the characters in its waiting bytes."""

    def __init__(self) -> None:
        self.sanitiser = Sanitiser()
        self.min_chars = 0
        self.pending: deque[tuple[int, str]] = deque()
        self.pending_size = 0


class _UndecodedChunk(NamedTuple):
    stream: _StreamState
    data: bytes
    min_chars: int


class CommandOutput:
    """The output of one command, fed in order of arrival: its end, and what is pending for ``read_pending``."""

    def __init__(self, limits: OutputLimits | None = None, streams: int = 2) -> None:
        self._limits = limits or OutputLimits()
        self._streams = [_StreamState() for _ in range(streams)]
        self._waiting: deque[_UndecodedChunk] = deque()
        self._waiting_cost = 0
        self._chunks: deque[str] = deque()
        self._size = 0
        self._dropped = 0
        """Characters that are kept no longer."""
        self._number = 0
        self._truncated = False
        self._pending_lost = False

    @classmethod
    def of_tail(cls, tail: str, *, unseen: int, is_cut: bool) -> Self:
        """The output of an ended command, from the fields of its ``ExecRecord``: only ``tail`` is left of it."""
        output = cls(streams=1)
        shown = len(tail) - unseen
        output._append(output._streams[0], tail[:shown])
        output.read_pending()
        output._append(output._streams[0], tail[shown:])
        output._truncated = is_cut
        output._pending_lost = is_cut and bool(unseen) and not shown
        return output

    @property
    def unseen(self) -> int:
        """Characters that ``read_pending`` would return."""
        self._read_waiting()
        return sum(stream.pending_size for stream in self._streams)

    @property
    def truncated(self) -> bool:
        """Whether the beginning is no longer kept."""
        self._read_waiting()
        return self._truncated

    @property
    def size(self) -> int:
        """Characters that are kept."""
        self._read_waiting()
        return min(self._size, self._limits.kept)

    def feed(self, index: int, data: bytes) -> None:
        """Take the next bytes of stream ``index``."""
        stream = self._streams[index]
        waiting = _UndecodedChunk(stream, data, _min_characters(data))
        self._waiting.append(waiting)
        self._waiting_cost += len(data) + _CHUNK_COST
        stream.min_chars += waiting.min_chars
        while self._waiting_cost > self._limits.waiting or self._is_lost(self._waiting[0]):
            self._decode_oldest()

    def finish(self) -> None:
        """The output has ended: incomplete characters and sequences become text."""
        self._read_waiting()
        for stream in self._streams:
            self._append(stream, stream.sanitiser.feed(b"", final=True))

    def text(self) -> str:
        """All that is kept."""
        self._read_waiting()
        return "".join(self._chunks)[-self._limits.kept :]

    def since(self, position: int) -> tuple[str, int, bool]:
        """The output after that position, the position after it, and whether some of it is no longer kept.

        Positions count characters from the beginning; the output stays pending.
        """
        self._read_waiting()
        end = self._dropped + self._size
        news = end - position
        is_lost = news > self.size or (self._truncated and not position)
        return self.tail(news) if news else "", end, is_lost

    def tail(self, size: int) -> str:
        """The last ``size`` characters."""
        self._read_waiting()
        parts: list[str] = []
        found = 0
        for chunk in reversed(self._chunks):
            parts.append(chunk)
            found += len(chunk)
            if found >= size:
                break
        return "".join(reversed(parts))[-size:]

    def read_pending(self) -> tuple[str, bool]:
        """The output since the last call, in order of arrival; and whether some of it is lost."""
        self._read_waiting()
        entries = sorted((entry for stream in self._streams for entry in stream.pending), key=itemgetter(0))
        for stream in self._streams:
            stream.pending.clear()
            stream.pending_size = 0
        lost, self._pending_lost = self._pending_lost, False
        return "".join(text for _, text in entries), lost

    def _is_lost(self, waiting: _UndecodedChunk) -> bool:
        return waiting.stream.min_chars - waiting.min_chars >= self._limits.kept

    def _decode_oldest(self) -> None:
        waiting = self._waiting.popleft()
        stream, data, sure = waiting
        is_lost = self._is_lost(waiting)
        self._waiting_cost -= len(data) + _CHUNK_COST
        stream.min_chars -= sure
        if is_lost:
            stream.sanitiser.skip(data)
            self._truncated = self._pending_lost = True
        else:
            self._append(stream, stream.sanitiser.feed(data))

    def _read_waiting(self) -> None:
        for stream, run in groupby(self._waiting, key=itemgetter(0)):
            self._append(stream, stream.sanitiser.feed(b"".join(waiting.data for waiting in run)))
            stream.min_chars = 0
        self._waiting.clear()
        self._waiting_cost = 0

    def _append(self, stream: _StreamState, text: str) -> None:
        end, kept = len(text), self._limits.kept
        if end > kept:
            self._truncated = True
            self._dropped += end - kept
        # What the rest of this text pushes out at once need not be put in.
        pending_from = max(0, end - self._limits.pending)
        self._pending_lost = self._pending_lost or pending_from > 0
        for start in range(max(0, end - kept), end, self._limits.chunk):
            self._append_kept(text[start : start + self._limits.chunk])
        for start in range(pending_from, end, self._limits.chunk):
            self._append_pending(stream, text[start : start + self._limits.chunk])

    def _append_kept(self, chunk: str) -> None:
        self._size += len(chunk)
        if self._chunks and len(self._chunks[-1]) + len(chunk) <= self._limits.chunk:
            self._chunks[-1] += chunk
        else:
            self._chunks.append(chunk)
        self._truncated = self._truncated or self._size > self._limits.kept
        while self._size - len(self._chunks[0]) >= self._limits.kept:
            chunk = self._chunks.popleft()
            self._size -= len(chunk)
            self._dropped += len(chunk)

    def _append_pending(self, stream: _StreamState, chunk: str) -> None:
        self._number += 1
        stream.pending_size += len(chunk)
        last = stream.pending[-1] if stream.pending else None
        if last is not None and last[0] == self._number - 1 and len(last[1]) + len(chunk) <= self._limits.chunk:
            stream.pending[-1] = (self._number, last[1] + chunk)
        else:
            stream.pending.append((self._number, chunk))
        while stream.pending_size > self._limits.pending:
            number, oldest = stream.pending.popleft()
            excess = min(stream.pending_size - self._limits.pending, len(oldest))
            stream.pending_size -= excess
            self._pending_lost = True
            if excess < len(oldest):
                stream.pending.appendleft((number, oldest[excess:]))


def _min_characters(data: bytes) -> int:
    """A lower bound of the characters in these bytes, whatever came before them."""
    start = data.find(b"\n") + 1
    if not start or b"\x1b" in data:
        return 0
    return (len(data) - start) // (1 if data.isascii() else _CHARACTER_BYTES)


_READ_BYTES = 64 * 1024
_MAX_READS = 16
"""Reads in a row from one stream before others get their turn."""
_MAX_FINAL_READS = 16
"""A pipe holds 64 KiB; a left-over process may go on writing."""


class OutputReader:
    """Reads the outputs of ``child`` into ``output``, and calls ``on_output`` after each batch."""

    def __init__(self, child: SpawnedShell, output: CommandOutput, on_news: Callable[[], None]) -> None:
        self._outputs = child.outputs
        self._epoll = child.epoll
        self._open = {descriptor: index for index, descriptor in enumerate(child.outputs)}
        self._output = output
        self._on_output = on_news

    async def run(self) -> None:
        """Read until all streams are closed, or cancelled."""
        while self._open:
            await trio.lowlevel.wait_readable(next(iter(self._open)) if self._epoll is None else self._epoll.fileno())
            self._read_ready()

    def finish(self) -> None:
        """Read what is left without waiting for other holders of the streams, and close all."""
        for _ in range(_MAX_FINAL_READS):
            if not self._read_ready():
                break
        for descriptor in self._outputs:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
        if self._epoll is not None:
            self._epoll.close()
        self._output.finish()

    def _read_ready(self) -> bool:
        before = len(self._open)
        ready = list(self._open) if self._epoll is None else [descriptor for descriptor, _ in self._epoll.poll(0)]
        is_news = [self._read(descriptor) for descriptor in ready]
        if any(is_news):
            self._on_output()
        return any(is_news) or len(self._open) < before

    def _read(self, descriptor: int) -> bool:
        """Read a bounded number of times; whether there was anything."""
        for number in range(_MAX_READS):
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return number > 0
            except OSError:  # EIO: a terminal without a process, as the end of a pipe
                data = b""
            if not data:
                self._detach(descriptor)
                return number > 0
            self._output.feed(self._open[descriptor], data)
            if len(data) < _READ_BYTES:
                break  # most likely that was all; if not, it is readable again
        return True

    def _detach(self, descriptor: int) -> None:
        """Not closed yet: a terminal's may still be written to, and its number must not get another meaning."""
        del self._open[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
