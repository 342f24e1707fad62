"""Event subscriptions: every subscriber gets every event in order; a full one stops the reading of its worker."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Self

import trio

from errors import PoolError, UsageError
from rpc.wakeup import Wakeup
from wire.messages import Message

_BYTES_IN_A_ROW = 64 * 1024
"""How much output a reader gets without a checkpoint: what one read of a pipe may bring."""


class WorkerSubscription:
    """One task's bounded buffer: ``async for event in subscription``, or in ``subscription.batches()``.

    It ends cleanly once the worker is gone and the buffer is read; ``ended`` then says why. While the buffer is full
    the worker's output is not read, so that answers cannot arrive either: read it or close it, and do not await a
    request from the only task that reads it. ``close`` (or leaving the ``with`` block) drops the buffer.
    """

    def __init__(self, broadcast: "Broadcast", *, max_events: int, max_bytes: int) -> None:
        if max_events < 1:
            raise UsageError(f"max_events is {max_events}; a subscriber needs room for at least one event")
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._broadcast = broadcast
        self._queue: deque[tuple[list[Message], int]] = deque()
        self._current: Iterator[Message] = iter(())
        self._events = 0
        self._bytes = self._bytes_in_a_row = 0
        self._changed = Wakeup()
        self.is_finished = False
        self.end_error: PoolError | None = None

    @property
    def is_full(self) -> bool:
        """Whether the worker has to wait for this subscriber."""
        return self._events >= self._max_events or self._bytes >= self._max_bytes

    def push(self, events: list[Message], size: int) -> None:
        """Take a batch that stands for ``size`` bytes of output; the client's side."""
        if self.is_finished:
            return
        self._queue.append((events, size))
        self._events += len(events)
        self._bytes += size
        self._changed.wake()

    def finish(self, error: PoolError | None = None) -> None:
        """There will be no more events; those in the buffer can still be read."""
        if not self.is_finished:
            self.is_finished, self.end_error = True, error
            self._changed.wake()
            self._broadcast.discard(self)

    def close(self) -> None:
        """Stop listening and forget what is buffered; readers see the end."""
        self._queue.clear()
        self._current = iter(())
        self._events = self._bytes = 0
        self.finish()

    async def receive(self) -> list[Message] | None:
        """The next batch, never empty; None at the end. A checkpoint where it waits, and once in 64 KiB of output."""
        rest = list(self._current)
        if rest:
            return rest
        if self._queue and self._bytes_in_a_row >= _BYTES_IN_A_ROW:
            self._bytes_in_a_row = 0
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self.is_finished:
                return None
            self._bytes_in_a_row = 0
            await self._changed.wait()
        was_full = self.is_full
        events, size = self._queue.popleft()
        self._events -= len(events)
        self._bytes -= size
        self._bytes_in_a_row += size
        if was_full and not self.is_full:
            self._broadcast.wake_reader()
        return events

    def batches(self) -> "EventBatches":
        """Iterate over lists of events, as they arrived together."""
        return EventBatches(self.receive)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return next(self._current)  # no checkpoint per event
        except StopIteration:
            pass
        events = await self.receive()
        if events is None:
            raise StopAsyncIteration
        self._current = iter(events)
        return next(self._current)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EventBatches:
    """An async iterator over what ``take`` gives until it gives None."""

    def __init__(self, take: Callable[[], Awaitable[list[Message] | None]]) -> None:
        self._receive = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Message]:
        events = await self._receive()
        if events is None:
            raise StopAsyncIteration
        return events


class Broadcast:
    """All subscriptions of one worker: every batch goes to each of them as one list of its own.

    Attributes:
        backpressure_count: how often a full subscriber made the worker wait.
    """

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._subscriptions: list[WorkerSubscription] = []
        self._room = Wakeup()
        self._end_error: PoolError | None = None
        self.backpressure_count = 0

    def subscribe(self, max_events: int | None = None) -> WorkerSubscription:
        """A new listener, from the next event on; ended at once when the worker is gone."""
        limit = self._max_events if max_events is None else max_events
        subscription = WorkerSubscription(self, max_events=limit, max_bytes=self._max_bytes)
        if self._end_error is None:
            self._subscriptions.append(subscription)
        else:
            subscription.finish(self._end_error)
        return subscription

    @property
    def is_full(self) -> bool:
        """Whether some subscriber has no room."""
        for subscription in self._subscriptions:  # noqa: SIM110 - looked at before each read, mostly without any
            if subscription.is_full:
                return True
        return False

    def publish(self, events: list[Message], size: int) -> None:
        """Hand a batch to every subscriber; bounds are kept by reading no more while ``is_full``."""
        for index, subscription in enumerate(self._subscriptions):
            subscription.push(events.copy() if index else events, size)

    async def wait_room(self) -> None:
        """Wait until every subscriber has room again or has left; one task at a time."""
        self.backpressure_count += self.is_full
        while self.is_full:
            await self._room.wait()

    def finish(self, error: PoolError) -> None:
        """The worker is gone."""
        self._end_error = error
        for subscription in list(self._subscriptions):
            subscription.finish(error)

    def wake_reader(self) -> None:
        """A subscriber has room again: who waits for it looks at all of them."""
        self._room.wake()

    def discard(self, subscription: WorkerSubscription) -> None:
        """Hand nothing more to it."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._room.wake()
