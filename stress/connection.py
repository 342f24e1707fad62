"""Client of the control socket that survives lost connections: unanswered calls are sent again."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from doors.control.client_socket import MessageReader, encode_request
from errors import PoolClosed, PoolError
from wire.messages import EMPTY, ErrorBody, EventEnvelope, Message

_CHUNK_BYTES = 1 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_SLOW_CHUNKS_A_SECOND = 4


class PushMessage(msgspec.Struct, frozen=True):
    """Pushed by the server: events of a subscription, or the reason of its end."""

    subscription: str | int | None = None
    events: list[EventEnvelope] = []
    reason: str | None = None


_decode_push = msgspec.json.Decoder(PushMessage).decode


class _PendingCall(NamedTuple):
    line: bytes
    on_answer: Callable[[Any], None]
    on_error: Callable[[ErrorBody], None]


Greeting = Callable[[], tuple[str, dict[str, Any]]]


class ReconnectingClient:
    """One client on successive connections.

    Methods must be idempotent: a call whose answer was lost is sent again.
    """

    def __init__(
        self,
        ready: Callable[[], Awaitable[Path]],
        *,
        greeting: Greeting | None = None,
        on_greeted: Callable[[Any], None] = lambda _answer: None,
        on_push: Callable[[PushMessage], None] = lambda _push: None,
        bytes_per_second: float = math.inf,
    ) -> None:
        """``ready`` waits for a supervisor. ``bytes_per_second``: reading speed.

        ``greeting``: the first call on each connection; ``on_greeted`` gets its answer. If a subscription ends before
        its connection does, the client reconnects.
        """
        self._ready = ready
        self._greeting = greeting
        self._on_greeted = on_greeted
        self._greeting_id: str | None = None
        self._on_push = on_push
        self._bytes_per_second = bytes_per_second
        self._calls: dict[str, _PendingCall] = {}
        self._outbox: list[bytes] = []
        self._has_outgoing = trio.Event()
        self._last_id = 0
        self._scope = trio.CancelScope()
        self._should_back_off = False
        self.connect_count = 0
        """Number of connections so far."""

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        params: dict[str, Any],
        on_answer: Callable[[Any], None],
        on_error: Callable[[ErrorBody], None],
    ) -> None:
        """Call a method; exactly one of the functions is called with its result or error."""
        line = self._line(method, params)
        self._calls[str(self._last_id)] = _PendingCall(line, on_answer, on_error)
        self._enqueue(line)

    async def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Call a method and wait for its result. Raises PoolError with the supervisor's sentence and ``code``."""
        came = trio.Event()
        results: list[Any] = []
        errors: list[ErrorBody] = []

        def on_answer(result: Any) -> None:
            results.append(result)
            came.set()

        def on_error(error: ErrorBody) -> None:
            errors.append(error)
            came.set()

        self.call(method, params or {}, on_answer, on_error)
        await came.wait()
        if errors:
            raise PoolError(f"{method}: {errors[0].message or errors[0].code}", code=errors[0].code)
        return results[0]

    def disconnect(self) -> None:
        """End this connection; the client reconnects at once."""
        self._scope.cancel()

    def _line(self, method: str, params: dict[str, Any]) -> bytes:
        self._last_id += 1
        return encode_request(str(self._last_id), method, params)

    def _enqueue(self, line: bytes) -> None:
        self._outbox.append(line)
        self._has_outgoing.set()

    # --- connections --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, and again, until cancelled. Raises PoolError where the greeting fails."""
        pause = _FIRST_PAUSE
        while True:
            path = await self._ready()
            try:
                stream = await trio.open_unix_socket(str(path))
            except OSError:  # it is just ending, or accepts no more connections
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            await self._converse(stream)
            pause = min(2 * pause, _LONGEST_PAUSE) if self._should_back_off else _FIRST_PAUSE
            await trio.sleep(pause if self._should_back_off else 0)

    async def _converse(self, stream: trio.SocketStream) -> None:
        """Serve one connection until it ends; notes whether the next one should wait."""
        self._outbox = [call.line for call in self._calls.values()]
        if self._greeting is not None:
            self._outbox.insert(0, self._line(*self._greeting()))
            self._greeting_id = str(self._last_id)
        self._has_outgoing.set()
        self.connect_count += 1
        self._scope = trio.CancelScope()
        self._should_back_off = False
        with self._scope:
            async with stream, trio.open_nursery() as nursery, aclosing(self._messages(stream)) as messages:
                nursery.start_soon(self._write, stream)
                async for message in messages:
                    self._on_message(message)
                nursery.cancel_scope.cancel()

    async def _write(self, stream: trio.SocketStream) -> None:
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing = trio.Event()
                lines, self._outbox = self._outbox, []
                await stream.send_all(b"".join(lines))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the reader sees the end, and unanswered calls are sent again

    async def _messages(self, stream: trio.SocketStream) -> AsyncGenerator[Message, None]:
        reader = MessageReader()
        while chunk := await self._receive(stream):
            for message in reader.feed(chunk):
                yield message

    async def _receive(self, stream: trio.SocketStream) -> bytes:
        """The next bytes; none = the end. A slow client pauses and reads little."""
        is_slow = math.isfinite(self._bytes_per_second)
        size = max(1, int(self._bytes_per_second / _SLOW_CHUNKS_A_SECOND)) if is_slow else _CHUNK_BYTES
        if is_slow:
            await trio.sleep(1 / _SLOW_CHUNKS_A_SECOND)
        try:
            return bytes(await stream.receive_some(size))
        except trio.BrokenResourceError:
            return b""  # a supervisor that was killed does not close its connections in order

    def _on_message(self, message: Message) -> None:
        if message.event is not None:
            self._on_push_message(_decode_push(message.data))
            return
        if message.id is None:
            self._should_back_off = True  # the connection as a whole was refused
            return
        if message.id == self._greeting_id:
            self._on_greeting_answer(message)
            return
        call = self._calls.pop(str(message.id), None)
        if call is None:
            return  # the call was made on an earlier connection
        if message.error is not None:
            call.on_error(message.error)
        else:
            call.on_answer(msgspec.json.decode(message.result) if message.result != EMPTY else None)

    def _on_push_message(self, push: PushMessage) -> None:
        self._on_push(push)
        if push.reason == "behind":
            self.disconnect()
        elif push.reason not in (None, "closing"):
            self._reconnect_later()  # it would probably fail again at once

    def _reconnect_later(self) -> None:
        self._should_back_off = True
        self.disconnect()

    def _on_greeting_answer(self, message: Message) -> None:
        if message.error is not None and message.error.code == PoolClosed.code:
            self._reconnect_later()  # the supervisor is just ending
            return
        if message.error is not None:
            raise PoolError(f"the first request of a connection failed: {message.error.message or message.error.code}")
        self._on_greeted(msgspec.json.decode(message.result))
