"""The blocking client of the control socket, without an event loop; events stay raw JSON until they are read."""

import collections
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from doors.control.client_socket import ControlSocket, ReceivedPush, ReceivedQueue, Recipient
from errors import ProtocolViolation, RequestTimeout, error_from_wire
from wire.messages import EventEnvelope, Message


class _EnvelopeSeq(msgspec.Struct, frozen=True, gc=False):
    seq: int


_envelopes = msgspec.json.Decoder(list[EventEnvelope])
_lines = msgspec.json.Decoder(list[msgspec.Raw])
_envelope_seq = msgspec.json.Decoder(_EnvelopeSeq)


def read_envelopes(events: msgspec.Raw) -> list[EventEnvelope]:
    """The envelopes of a push; their data stays undecoded."""
    return _envelopes.decode(events)


def split_envelopes(events: msgspec.Raw) -> list[msgspec.Raw]:
    """The same as the JSON text of each envelope."""
    return _lines.decode(events)


def last_seq(envelopes: list[msgspec.Raw]) -> int:
    """The bookmark after these envelopes, at least one."""
    return _envelope_seq.decode(envelopes[-1]).seq


_ANSWER_SECONDS = 10.0
"""For methods that answer at once; a supervisor that does not is stopped or overloaded."""
SLOW_ANSWER_SECONDS = 60.0
"""For methods that wait for a worker, the end of a turn, or files."""


class ControlClient:
    """A connection to a supervisor; a context manager. Requests and subscriptions may overlap.

    Raises NoSupervisor from the constructor when no supervisor listens, and from any call when it goes away. A call
    that fails raises the same class of PoolError as in the supervisor's own process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = ControlSocket(path)
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close; the supervisor drops the requests of this connection."""
        self._socket.close()

    def call(self, method: str, params: Any = None, timeout: float | None = _ANSWER_SECONDS) -> Any:
        """Run a method and return its result as plain objects; its events are skipped.

        ``timeout`` in seconds, None = no limit. Raises RequestTimeout, and what the method raises.
        """
        stream = self.stream(method, params, timeout=timeout)
        for _ in stream:
            pass
        return stream.result

    def stream(self, method: str, params: Any = None, *, timeout: float | None = None) -> "RequestStream":
        """Run a method and follow its events."""
        self._last_id += 1
        deadline = None if timeout is None else time.monotonic() + timeout
        address = self._socket.send(str(self._last_id), method, {} if params is None else params)
        return RequestStream(self._socket, address, method, deadline)

    def subscribe(
        self, wish: Mapping[str, Any] | None = None, timeout: float | None = _ANSWER_SECONDS
    ) -> "EventSubscription":
        """Begin a subscription. ``wish``: the parameters of ``subscribe`` (session, channels, kinds, since)."""
        with self._socket.subscribing() as claim:
            begun = _read_subscribe_result(self.call("subscribe", wish, timeout))
            address = Recipient("subscription", begun.subscription)
            claim(address)
        return EventSubscription(self, self._socket, address, begun, (wish or {}).get("since"))

    def wait_closed(self, timeout: float | None = None, *, process_too: bool = True) -> bool:
        """Wait until the supervisor has closed the connection and, where the system can tell, its process has ended.

        False when that takes longer than ``timeout`` seconds. ``process_too``: False for one that starts again.
        """
        return self._socket.wait_closed(timeout, process_too=process_too)

    def open_process(self) -> int | None:
        """A pidfd of the supervisor's process, to be closed; None where there is no such thing."""
        return self._socket.open_process()


class RequestStream:
    """One request: iterate over batches of pushes as they arrive, then read ``result``.

    Iterating raises the error the request ended with, or RequestTimeout when its time is up.
    """

    def __init__(self, wire: ControlSocket, address: Recipient, method: str, deadline: float | None) -> None:
        self._socket = wire
        self._address = address
        self._method = method
        self._deadline = deadline
        self.wakes_at: float | None = None
        """By ``time.monotonic``: when an empty batch comes where nothing else has; once."""
        self.result: Any = None

    def __iter__(self) -> Iterator[list[ReceivedPush]]:
        """Pushes in the batches the socket delivered them in; ends with the request."""
        try:
            while True:
                arrived = self._receive()
                batch = list(_pop_pushes(arrived))
                if batch or not arrived:
                    yield batch
                if arrived:
                    self._read_result(arrived[0])
                    return
        finally:
            self._socket.discard(self._address)

    def remove_deadline(self) -> None:
        """Wait without limit from now on."""
        self._deadline = None

    def _receive(self) -> ReceivedQueue:
        wakes_at, self.wakes_at = self.wakes_at, None
        is_wakeup = wakes_at is not None and (self._deadline is None or wakes_at < self._deadline)
        try:
            return self._socket.receive(self._address, wakes_at if is_wakeup else self._deadline)
        except TimeoutError as exc:
            if is_wakeup:
                return collections.deque()
            raise RequestTimeout(
                f"the supervisor on {self._socket.path} did not answer {self._method} in time; "
                "is it stopped or overloaded?"
            ) from exc

    def _read_result(self, answer: Message | ReceivedPush) -> None:
        assert isinstance(answer, Message)  # noqa: S101  # the pushes before it have been taken
        if answer.error is not None:
            raise error_from_wire(answer.error.code, answer.error.message, answer.error.data)
        self.result = msgspec.json.decode(answer.result)


def _pop_pushes(arrived: ReceivedQueue) -> Iterator[ReceivedPush]:
    while arrived and isinstance(first := arrived[0], ReceivedPush):
        arrived.popleft()
        yield first


class _SubscribeResult(msgspec.Struct, frozen=True):
    subscription: str | int
    head: int = 0
    complete: bool = True


def _read_subscribe_result(answer: Any) -> _SubscribeResult:
    try:
        return msgspec.convert(answer, _SubscribeResult)
    except msgspec.ValidationError as exc:
        raise ProtocolViolation(f"what answers on the socket is no supervisor of this version: {exc}") from exc


class EventSubscription:
    """Events as they happen, until the supervisor ends the subscription or the connection.

    ``head``: the last seq at the beginning. ``complete``: False when events after the requested bookmark are gone.
    ``reason``: why the supervisor ended it, None until then. To continue on another connection, subscribe there with
    ``since=subscription.bookmark``.
    """

    def __init__(
        self, client: ControlClient, wire: ControlSocket, address: Recipient, begun: _SubscribeResult, since: int | None
    ) -> None:
        self._client = client
        self._socket = wire
        self._address = address
        self._bookmark = begun.head if since is None else since
        self._last_batch = msgspec.Raw(b"[]")
        self.head = begun.head
        self.complete = begun.complete
        self.reason: str | None = None

    @property
    def bookmark(self) -> int:
        """The seq of the last event that was handed out; where it began, before there was one."""
        envelopes = split_envelopes(self._last_batch)
        if envelopes:
            self._bookmark = last_seq(envelopes)
            self._last_batch = msgspec.Raw(b"[]")
        return self._bookmark

    def __iter__(self) -> Iterator[msgspec.Raw]:
        """The events of each push: a JSON array of envelopes, undecoded. Raises NoSupervisor when it is gone."""
        while self.reason is None:
            for pushed in _pop_pushes(self._socket.receive(self._address, None)):
                yield from self._receive(pushed)

    def batches(self) -> Iterator[list[EventEnvelope]]:
        """The same decoded; the envelopes' data stays as it is."""
        for events in self:
            yield read_envelopes(events)

    def end(self, timeout: float | None = _ANSWER_SECONDS) -> None:
        """End it. Events that were not handed out are dropped; ``bookmark`` stays."""
        self._client.call("unsubscribe", {"subscription": self._address.id}, timeout)
        self.reason = self.reason or "unsubscribed"
        self._socket.discard(self._address)

    def _receive(self, pushed: ReceivedPush) -> Iterator[msgspec.Raw]:
        data = pushed.data
        if data.reason is not None:
            self.reason = data.reason
            self._socket.discard(self._address)
        elif bytes(data.events) != b"null":
            self._last_batch = data.events
            yield data.events
