"""Journals of ACP conversations: transcripts in the native format that the supervisor writes for agents of others.

An agent's own files are its affair and its claims are not to be trusted; what was said is known from here.
"""

import mmap
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from errors import ProtocolViolation
from rpc.acp.options import JournalFacts
from rpc.dialect import JournalWrite
from wire.entries import MessageEntry, ProcessMark, SessionHeader, TranscriptMessage, UnknownEntry
from wire.framing import DECODE_ERRORS
from wire.transcript import TranscriptWriter, open_for_appending, read_entries, read_header
from wire.transcript_repair import TranscriptDamaged, TranscriptError

MAX_TAIL_BYTES = 64 * 1024
"""Of the end of a conversation that an agent is given where it has forgotten the conversation."""
_OPENED, _CLOSED = ProcessMark("opened"), ProcessMark("closed")
_MAX_SETTLED = 20
"""Conversations of one process that the end of the process closes; of more, those of the latest turns."""
T = TypeVar("T")


class JournalWriter:
    """Appends to the journals of one worker's conversations; an entry is there whole, or not at all.

    It holds no lock: only one supervisor uses a data directory, and it gives a session to one worker at a time.
    """

    def __init__(self) -> None:
        self._open: TranscriptWriter | None = None
        self._last_seq: tuple[str, int] = ("", 0)
        """Of the conversation that was begun or resumed last."""
        self._settled: dict[str, int] = {}
        """Files whose last line is the end of a turn that was answered here, and their sizes then."""

    def append(self, writes: Sequence[JournalWrite]) -> ProtocolViolation | None:
        """Write them in order, to the system's cache: what a power cut takes is what agents themselves lose.

        Returns why its worker is to end: a conversation that is not recorded could not be checked when it is resumed.
        """
        try:
            for write in writes:
                if write.header is not None:
                    self._begin(write.path, write.header)
                if write.message is not None:
                    self._append_message(write.path, write.message)
                if write.process is not None:
                    self._mark(write.path, write.process)
                if write.withdraws:
                    self._withdraw(write.path)
        except TranscriptError as exc:
            return ProtocolViolation(f"its conversation cannot be recorded: {exc.message}")
        return None

    def resumed(self, path: str, last_seq: int) -> None:
        """Go on behind the entry of that number."""
        self._last_seq = (path, last_seq)

    def process_ended(self, *, in_order: bool) -> None:
        """The worker's process is gone, ``in_order``: at the end of its input, of its own accord. No entry follows.

        What it had open is closed by that, but for what another process has taken up since, and where it was aborted
        in a turn, whose prompt it may have kept or not.
        """
        for path, size in self._settled.items() if in_order else ():
            with suppress(TranscriptError):  # without the mark the next process loads what it might have resumed
                writer = self._writer(path)
                if writer.size == size:
                    writer.append(_CLOSED)
        self.close()

    def close(self) -> None:
        """Close the file; the next entry opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _withdraw(self, path: str) -> None:
        """Where the file cannot be changed the message stays, as if it had been sent."""
        self._settled.pop(path, None)
        with (
            suppress(OSError, ValueError, *DECODE_ERRORS),
            Path(path).open("r+b") as file,
            mmap.mmap(file.fileno(), 0) as content,
        ):
            begin = content.rfind(b"\n", 0, len(content) - 1) + 1
            message = msgspec.json.decode(content[begin:], type=_LastEntry).message
            if message is not None and message.role == "user":
                file.truncate(begin)

    def _append_message(self, path: str, message: TranscriptMessage) -> None:
        entry, writer = MessageEntry(self._next_seq(path), time.time(), message), self._writer(path)
        self._settled.pop(path, None)
        writer.append(entry)
        if message.role == "assistant" and message.stop_reason != "aborted":
            self._settled[path] = writer.size
            if len(self._settled) > _MAX_SETTLED:
                del self._settled[next(iter(self._settled))]

    def _mark(self, path: str, mark: ProcessMark) -> None:
        """``opened`` must be there before another process may believe ``closed``; ``closed`` only spares a load."""
        self._settled.pop(path, None)
        try:
            self._writer(path).append(mark)
        except TranscriptError:  # perhaps it was deleted with its session
            if mark == _OPENED:
                raise

    def _begin(self, path: str, header: SessionHeader) -> None:
        """A new file; in one that is there, the header says under which id its agent has it from here on."""
        header = msgspec.structs.replace(header, created=datetime.now(UTC).isoformat(timespec="seconds"))
        if Path(path).exists():
            self._writer(path).append(header)
            return
        self.close()
        TranscriptWriter.create(path, header).close()
        self._last_seq = (path, 0)

    def _writer(self, path: str) -> TranscriptWriter:
        """Raises TranscriptError: also where the file is gone, or another one has its name."""
        if self._open is None or str(self._open.path) != path or not self._open.is_in_place:
            self.close()
            self._open = opened = open_for_appending(path)
            try:
                _check_owner(path, opened.header)
            except TranscriptError:
                self.close()
                raise
        return self._open

    def _next_seq(self, path: str) -> int:
        known, seq = self._last_seq
        if known != path:
            seq = max((entry.seq for entry in read_entries(path)), default=0)
        self._last_seq = (path, seq + 1)
        return seq + 1


def _check_owner(path: str, header: SessionHeader) -> None:
    """Raises TranscriptDamaged where the conversation that a journal's header names is not that of the file's name."""
    if header.agent_session is not None and Path(path).name.removesuffix(".jsonl") != header.id:
        words = f"{path} is the journal of another conversation, {header.id}; give each file its own name again"
        raise TranscriptDamaged(words)


class JournalReading(NamedTuple):
    """What a journal holds: the facts for a resume, and the number of its last entry."""

    facts: JournalFacts
    last_seq: int


def read_journal(path: str) -> JournalReading:
    """What a resume is given of a conversation, and what it is checked against; reads the whole file.

    Raises TranscriptMissing or TranscriptDamaged, also for a transcript that is no journal.
    """
    header = read_header(path)
    _check_owner(path, header)
    turns, last_user, last_seq, tail, is_closed = 0, "", 0, _Tail(), False
    for entry in read_entries(path):
        last_seq = max(last_seq, entry.seq)
        is_closed = False
        if isinstance(entry, UnknownEntry) and entry.type == "session":
            header = _decode(entry.line, SessionHeader, path)
            _check_owner(path, header)
        elif isinstance(entry, UnknownEntry) and entry.type == "process":
            is_closed = _decode(entry.line, ProcessMark, path) == _CLOSED
        if isinstance(entry, MessageEntry):
            turns += entry.message.role == "assistant"
            if entry.message.role == "user":
                last_user = entry.message.text
            tail.add(entry.message)
    if header.agent_session is None:
        raise TranscriptDamaged(f"{path} is no journal of an ACP agent: its header names no session of one")
    facts = JournalFacts(
        agent_session=header.agent_session,
        cwd=header.cwd,
        turns=turns,
        last_user_text=last_user,
        tail=tail.text(),
        closed_cleanly=is_closed,
    )
    return JournalReading(facts, last_seq)


class _LastEntry(msgspec.Struct):
    """What is read of it; other entries have no message."""

    message: TranscriptMessage | None = None


def _decode(line: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except DECODE_ERRORS as exc:
        raise TranscriptDamaged(f"{path} has a broken line: {exc}") from exc


class _Tail:
    """The latest messages as text, at most ``MAX_TAIL_BYTES``."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._bytes = 0

    def add(self, message: TranscriptMessage) -> None:
        part = f"{message.role}:\n{message.text}\n\n"
        self._parts.append(part)
        self._bytes += len(part.encode())
        while len(self._parts) > 1 and self._bytes - len(self._parts[0].encode()) >= MAX_TAIL_BYTES:
            self._bytes -= len(self._parts.popleft().encode())

    def text(self) -> str:
        return "".join(self._parts).encode()[-MAX_TAIL_BYTES:].decode(errors="ignore").strip()
