"""One front end that speaks with a session's worker: requests and output in order, its unread output bounded."""

import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol, runtime_checkable

import msgspec
import trio

from errors import PoolClosed, PoolError, SubscriberBehind, UsageError
from gateway.caller import Caller
from gateway.front_ends.protocol import FrontEndProtocol, RequestKind
from gateway.runs.run import Run
from rpc.passthrough import RawObject, may_have_lone_surrogates, read_object

MAX_UNREAD_BYTES = 64 * 1024 * 1024
MAX_TOTAL_UNREAD_BYTES = 256 * 1024 * 1024
"""Bytes. A turn of pi repeats its whole text with each piece: 2,000 pieces of 10 bytes are 42 MB."""


def _bound_unread_output(reader: "Attachment", readers: Collection["Attachment"]) -> None:
    """End the front ends that are over a limit, now that more output waits for ``reader``, one of ``readers``."""
    if reader.waiting_bytes > MAX_UNREAD_BYTES:
        _disconnect_slow_reader(reader)
    elif reader.waiting_bytes > MAX_UNREAD_BYTES // 64:  # small change cannot break the limit of all together
        while sum(each.waiting_bytes for each in readers) > MAX_TOTAL_UNREAD_BYTES:
            _disconnect_slow_reader(max(readers, key=lambda each: each.waiting_bytes))


def _disconnect_slow_reader(reader: "Attachment") -> None:
    waiting = reader.waiting_bytes
    reader.end(SubscriberBehind(f"{waiting:,} bytes of the agent's output wait and are not read; read faster"))


MAX_STDERR_CHARS = 64 * 1024
"""Most characters that wait for a front end; further lines are left out, and counted."""
_MAX_LINE_CHARS = 8 * 1024


class StderrBuffer:
    """The lines that wait. Of a longer line the first 8,192 characters are kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._lines or self._dropped)

    def add(self, words: str) -> None:
        """Take whole lines."""
        for line in words.splitlines():
            kept = line[:_MAX_LINE_CHARS]
            if self._size + len(kept) >= MAX_STDERR_CHARS:
                self._dropped += 1
                continue
            self._lines.append(kept)
            self._size += len(kept) + 1

    def drain(self) -> str:
        """All of them, and how many were left out."""
        lines = self._lines
        if self._dropped:
            lines.append(f"[{self._dropped} lines of the agent's stderr were left out]")
        self._lines, self._size, self._dropped = [], 0, 0
        return "".join(f"{line}\n" for line in lines)


@runtime_checkable
class NonBlockingCaller(Protocol):
    """A ``Caller`` of a door that can push without waiting."""

    def push_now(self, event: str, data: bytes) -> bool:
        """Push like ``Caller.push_encoded``; False if that would wait: nothing was pushed."""
        ...


class ForwardedRequest:
    """``dispatched`` is set once the request is sent to the worker, or never will be."""

    def __init__(self, front_end: "Attachment", command: RawObject) -> None:
        protocol = front_end.protocol
        self.front_end = front_end
        self.command = command
        self.kind: RequestKind = protocol.kind_of(command)
        self.name = protocol.name_of(command) or ""
        self.dispatched = trio.Event()
        self.run: Run | None = None
        self.request_id: str | None = None
        """The id that the worker's answer carries."""
        self.is_answered = False

    @property
    def needs_answer(self) -> bool:
        """Whether a front end that has closed its input still waits for the answer; not for one of a run."""
        return not (self.kind is RequestKind.PROMPT and self.dispatched.is_set())

    def mark_sent(self, request: str) -> None:
        """The request was sent to the worker under this id."""
        self.request_id = request
        self.dispatched.set()

    def fail(self, error: PoolError) -> None:
        """Answer with the error, unless the worker has answered."""
        if not self.is_answered:
            self.answer(self.front_end.protocol.error_reply(self.command, error))
        self.finish()

    def answer(self, line: bytes) -> None:
        """Send the answer to the front end."""
        self.is_answered = True
        self.front_end.send_lines((line,))

    def finish(self) -> None:
        """Settle the request: nothing more follows."""
        self.dispatched.set()
        self.front_end.on_settled(self)


_PUSH_BYTES = 256 * 1024
_ACK_EVERY_LINES = 8
"""Lines taken from the front end after which it gets an acknowledgement, even without output."""
_FINISH_TIMEOUT = 10.0
"""Seconds that the last requests of a front end may take once it says nothing more."""
_encode = msgspec.json.Encoder().encode


class Attachment:
    """``all_of_them``: all that are attached, in any session.

    ``owns_worker``: no other worker can take up its conversation.

    ``handle_urgent`` gets each request as it arrives, ``dispatch`` in its turn.
    """

    def __init__(
        self,
        session: str,
        protocol: FrontEndProtocol,
        caller: Caller,
        all_of_them: Collection["Attachment"],
        *,
        owns_worker: bool,
        handle_urgent: Callable[["Attachment", RawObject], None],
        dispatch: Callable[[ForwardedRequest], Awaitable[None]],
    ) -> None:
        self.id = uuid.uuid4().hex
        self.session = session
        self.protocol = protocol
        self.owns_worker = owns_worker
        self._handle_urgent = handle_urgent
        self._dispatch = dispatch
        self.principal = caller.principal
        self.waiting_bytes = 0
        self._caller = caller
        self._all_of_them = all_of_them
        self._nonblocking_caller = caller if isinstance(caller, NonBlockingCaller) else None
        self._is_idle = False
        self._send_queue: deque[bytes] = deque()
        self._stderr = StderrBuffer()
        self._wakeup = trio.Event()
        self._progress = trio.Event()
        self._order_lock = trio.StrictFIFOLock()
        self._pending: set[ForwardedRequest] = set()
        self._received = self._acknowledged = 0
        self._ended: PoolError | None = None
        self._is_detaching = False

    # --- requests in --------------------------------------------------------------------------------------------------

    async def receive_line(self, line: msgspec.Raw | None, text: str, refusal: str | None) -> None:
        """A line of the front end: a JSON object, or a ``text`` that is none; returns once it was handed on.

        ``refusal``: why it cannot be, where its reader knows already.
        """
        command = _decode_lenient(text) if line is None else read_object(line)
        if command is not None:
            self._handle_urgent(self, command)
        try:
            self._order_lock.acquire_nowait()
        except trio.WouldBlock:
            await self._order_lock.acquire()
        try:
            if command is None:
                answer = self.protocol.parse_error(text)
                self.send_lines(() if answer is None else (answer,))
            else:
                await self._take_request(command, refusal)
        finally:
            self._order_lock.release()
            self._received += 1
            if self._received - self._acknowledged >= _ACK_EVERY_LINES:
                self._wake()

    async def _take_request(self, command: RawObject, refusal: str | None) -> None:
        pending = ForwardedRequest(self, command)
        self._pending.add(pending)
        if refusal is not None:
            pending.fail(UsageError(refusal))
        else:
            await self._dispatch(pending)

    def on_settled(self, pending: ForwardedRequest) -> None:
        """A request has its answer, or needs none."""
        self._pending.discard(pending)
        self._progress.set()

    # --- lines out ----------------------------------------------------------------------------------------------------

    def send_lines(self, lines: Iterable[bytes]) -> None:
        """Hand lines to the front end, in order; one that does not read is given up."""
        if self._ended is not None:
            return
        for line in lines:
            self._send_queue.append(line)
            self.waiting_bytes += len(line)
        if not self._push_now():
            self._wake()
            _bound_unread_output(self, self._all_of_them)

    def send_stderr(self, words: str) -> None:
        """Hand on what the worker has written to its stderr."""
        self._stderr.add(words)
        self._wake()

    def _push_now(self) -> bool:
        """Push directly while the pushing task is idle; False if that would wait."""
        if self._nonblocking_caller is None or not self._is_idle or self.waiting_bytes > _PUSH_BYTES:
            return False
        lines, size = list(self._send_queue), self.waiting_bytes
        if self._nonblocking_caller.push_now("attach", self._frame()):
            self._progress.set()
            return True
        self._send_queue.extend(lines)
        self.waiting_bytes = size
        return False

    def end(self, error: PoolError) -> None:
        """End the attachment; the front end gets the reason, and no more lines."""
        if self._ended is None:
            self._ended = error
            self._send_queue.clear()
            self.waiting_bytes = 0
            self._wake()

    def detach(self) -> None:
        """End the attachment after its last lines: the front end asked the program to shut down."""
        self._is_detaching = True
        self._wake()

    async def finish(self) -> None:
        """The front end has closed its input: return once its requests are answered, or after 10 s."""
        with trio.move_on_after(_FINISH_TIMEOUT):
            while self._send_queue or any(pending.needs_answer for pending in self._pending):
                await self._wait_progress()

    @property
    def has_open_request(self) -> bool:
        """Whether it has an open request."""
        return bool(self._pending)

    async def drain(self) -> None:
        """End it after its open requests are answered, since the supervisor stops."""
        while self._send_queue or self._pending:
            await self._wait_progress()
        self.end(PoolClosed("the supervisor is stopping"))

    async def _wait_progress(self) -> None:
        if self._progress.is_set():
            self._progress = trio.Event()
        await self._progress.wait()

    async def run(self) -> None:
        """Push lines and stderr to the front end until the attachment has ended, then ``attach_ended``."""
        while self._ended is None and not (self._is_detaching and not self._send_queue and not self._stderr):
            if self._stderr:
                await self._push_stderr()
            elif self._send_queue or self._received - self._acknowledged >= _ACK_EVERY_LINES:
                await self._caller.push_encoded("attach", self._frame())
                self._progress.set()
            else:
                self._wakeup = trio.Event()
                self._is_idle = True
                await self._wakeup.wait()
                self._is_idle = False
        if self._stderr:
            await self._push_stderr()
        error = self._ended
        facts = {"code": "left", "message": ""} if error is None else {"code": error.code, "message": error.message}
        await self._caller.push("attach_ended", {"attachment": self.id, **facts})

    async def _push_stderr(self) -> None:
        await self._caller.push("attach_words", {"attachment": self.id, "words": self._stderr.drain()})

    def _frame(self) -> bytes:
        lines, size = [], 0
        while self._send_queue and size < _PUSH_BYTES:
            lines.append(self._send_queue.popleft())
            size += len(lines[-1])
        self.waiting_bytes -= size
        self._acknowledged = self._received
        return b'{"attachment":"%b","taken":%d,"lines":[%b]}' % (
            self.id.encode(),
            self._received,
            b",".join(map(_encode_line, lines)),
        )

    def _wake(self) -> None:
        self._wakeup.set()
        self._progress.set()


def _decode_lenient(text: str) -> RawObject | None:
    """The request that a text is after all: one with half a character in it goes through no strict decoder."""
    if not may_have_lone_surrogates(text.encode()):
        return None
    try:
        return read_object(text.encode())
    except UsageError:
        return None


def _encode_line(line: bytes) -> bytes:
    """A line as a part of a frame: as it is, or as a text where a strict decoder would not take it."""
    return _encode(line.decode()) if may_have_lone_surrogates(line) else line
