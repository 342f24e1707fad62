"""One front end that speaks with a session's worker: requests and output in order, its unread output bounded."""

import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import trio

from errors import PoolClosed, PoolError, SubscriberBehind, UsageError
from gateway.attachments.pending import Pending, QuickCaller
from gateway.attachments.session import AttachedSession
from gateway.caller import Caller
from rpc.passthrough import RawObject, may_have_halves, read_object

MOST_OF_ONE = 64 * 1024 * 1024
MOST_OF_ALL = 256 * 1024 * 1024
"""Bytes. A turn of pi repeats its whole text with each piece: 2,000 pieces of 10 bytes are 42 MB."""


class Reader(Protocol):
    """Somebody for whom lines wait."""

    @property
    def waiting_bytes(self) -> int:
        """How much waits."""
        ...

    def end(self, error: PoolError) -> None:
        """It waits in vain."""
        ...


class Budget:
    """``readers``: all of them, at the moment of the call."""

    def __init__(self, readers: Callable[[], Iterable[Reader]]) -> None:
        self._readers = readers

    def check(self, reader: Reader) -> None:
        """More waits for this reader now: give up whoever lets too much of it gather."""
        if reader.waiting_bytes > MOST_OF_ONE:
            _give_up(reader)
        elif reader.waiting_bytes > MOST_OF_ONE // 64:  # small change cannot break the budget
            while sum(each.waiting_bytes for each in self._readers()) > MOST_OF_ALL:
                _give_up(max(self._readers(), key=lambda each: each.waiting_bytes))


def _give_up(reader: Reader) -> None:
    waiting = reader.waiting_bytes
    reader.end(SubscriberBehind(f"{waiting:,} bytes of the agent's output wait and are not read; read faster"))


MOST_WORDS = 64 * 1024
"""Most characters that wait for a front end; further lines are left out, and counted."""
_LONGEST = 8 * 1024


class Words:
    """The lines that wait. Of a longer line the first 8,192 characters are kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._left_out)

    def add(self, words: str) -> None:
        """Take whole lines."""
        for line in words.splitlines():
            kept = line[:_LONGEST]
            if self._size + len(kept) >= MOST_WORDS:
                self._left_out += 1
                continue
            self._lines.append(kept)
            self._size += len(kept) + 1

    def take(self) -> str:
        """All of them, and how many were left out."""
        lines = self._lines
        if self._left_out:
            lines.append(f"[{self._left_out} lines of the agent's stderr were left out]")
        self._lines, self._size, self._left_out = [], 0, 0
        return "".join(f"{line}\n" for line in lines)


_PUSH_BYTES = 256 * 1024
_TELL_TAKEN = 8
"""After so many lines that were handed on the front end hears of it, though it is told nothing else."""
_LAST_ANSWERS = 10.0
"""Seconds that the last requests of a front end may take once it says nothing more."""
_encode = msgspec.json.Encoder().encode


class Attachment:
    """``port``: of the session it is attached to. ``pinned``: no other worker can take up its conversation."""

    def __init__(self, port: AttachedSession, caller: Caller, budget: Budget, *, pinned: bool) -> None:
        self.id = uuid.uuid4().hex
        self.port = port
        self.pinned = pinned
        self.principal = caller.principal
        self.waiting_bytes = 0
        self._caller = caller
        self._budget = budget
        self._quick = caller if isinstance(caller, QuickCaller) else None
        self._is_idle = False
        self._told: deque[bytes] = deque()
        self._words = Words()
        self._news = trio.Event()
        self._quiet = trio.Event()
        self._order = trio.StrictFIFOLock()
        self._pending: set[Pending] = set()
        self._taken = self._told_taken = 0
        self._ended: PoolError | None = None
        self._is_leaving = False

    # --- requests in --------------------------------------------------------------------------------------------------

    async def take(self, line: msgspec.Raw | None, text: str, refusal: str | None) -> None:
        """A line of the front end: a JSON object, or a ``text`` that is none; returns once it was handed on.

        ``refusal``: why it cannot be, where whoever read it knows already.
        """
        command = _command_in(text) if line is None else read_object(line)
        if command is not None:
            self.port.overtake(self, command)
        try:
            self._order.acquire_nowait()
        except trio.WouldBlock:
            await self._order.acquire()
        try:
            if command is None:
                self._answer_garbage(text)
            else:
                await self._take(command, refusal)
        finally:
            self._order.release()
            self._taken += 1
            if self._taken - self._told_taken >= _TELL_TAKEN:
                self._notice()

    async def _take(self, command: RawObject, refusal: str | None) -> None:
        pending = Pending(self, command)
        self._pending.add(pending)
        if refusal is not None:
            pending.refuse(UsageError(refusal))
        else:
            await self.port.serve(pending)

    def _answer_garbage(self, text: str) -> None:
        answer = self.port.manners.garbage(text)
        if answer is not None:
            self.tell((answer,))

    def settled(self, pending: Pending) -> None:
        """A request has its answer, or needs none."""
        self._pending.discard(pending)
        self._quiet.set()

    # --- lines out ----------------------------------------------------------------------------------------------------

    def tell(self, lines: Iterable[bytes]) -> None:
        """Hand lines to the front end, in order; one that does not read is given up."""
        if self._ended is not None:
            return
        for line in lines:
            self._told.append(line)
            self.waiting_bytes += len(line)
        if not self._push_now():
            self._notice()
            self._budget.check(self)

    def tell_words(self, words: str) -> None:
        """Hand on what the worker has written to its stderr."""
        self._words.add(words)
        self._notice()

    def _push_now(self) -> bool:
        """What is told while nobody pushes need not wait for a task."""
        if self._quick is None or not self._is_idle or self.waiting_bytes > _PUSH_BYTES:
            return False
        told, size = list(self._told), self.waiting_bytes
        if self._quick.push_now("attach", self._frame()):
            self._quiet.set()
            return True
        self._told.extend(told)
        self.waiting_bytes = size
        return False

    def end(self, error: PoolError) -> None:
        """The front end is to be told that it is over, and why."""
        if self._ended is None:
            self._ended = error
            self._told.clear()
            self.waiting_bytes = 0
            self._notice()

    def leave(self) -> None:
        """The program that it takes the place of was told to end."""
        self._is_leaving = True
        self._notice()

    async def finish(self) -> None:
        """The front end says nothing more: return when it has been told what it asked for, or not in time."""
        with trio.move_on_after(_LAST_ANSWERS):
            while self._told or any(pending.is_owed for pending in self._pending):
                await self._next_quiet()

    @property
    def is_asking(self) -> bool:
        """Whether it has an open request."""
        return bool(self._pending)

    async def wind_down(self) -> None:
        """End it after its open requests are answered, since the supervisor stops."""
        while self._told or self._pending:
            await self._next_quiet()
        self.end(PoolClosed("the supervisor is stopping"))

    async def _next_quiet(self) -> None:
        if self._quiet.is_set():
            self._quiet = trio.Event()
        await self._quiet.wait()

    async def run(self) -> None:
        """Push what it is told until it has been told the end."""
        while self._ended is None and not (self._is_leaving and not self._told and not self._words):
            if self._words:
                await self._push_words()
            elif self._told or self._taken - self._told_taken >= _TELL_TAKEN:
                await self._caller.push_encoded("attach", self._frame())
                self._quiet.set()
            else:
                self._news = trio.Event()
                self._is_idle = True
                await self._news.wait()
                self._is_idle = False
        if self._words:
            await self._push_words()
        error = self._ended
        facts = {"code": "left", "message": ""} if error is None else {"code": error.code, "message": error.message}
        await self._caller.push("attach_ended", {"attachment": self.id, **facts})

    async def _push_words(self) -> None:
        await self._caller.push("attach_words", {"attachment": self.id, "words": self._words.take()})

    def _frame(self) -> bytes:
        lines, size = [], 0
        while self._told and size < _PUSH_BYTES:
            lines.append(self._told.popleft())
            size += len(lines[-1])
        self.waiting_bytes -= size
        self._told_taken = self._taken
        return b'{"attachment":"%b","taken":%d,"lines":[%b]}' % (
            self.id.encode(),
            self._taken,
            b",".join(map(_framed, lines)),
        )

    def _notice(self) -> None:
        self._news.set()
        self._quiet.set()


def _command_in(text: str) -> RawObject | None:
    """The request that a text is after all: one with half a character in it goes through no strict decoder."""
    if not may_have_halves(text.encode()):
        return None
    try:
        return read_object(text.encode())
    except UsageError:
        return None


def _framed(line: bytes) -> bytes:
    """A line as a part of a frame: as it is, or as a text where a strict decoder would not take it."""
    return _encode(line.decode()) if may_have_halves(line) else line
