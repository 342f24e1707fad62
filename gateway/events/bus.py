"""The event bus: gives every event its seq, shows it once it is committed, and moves old text to the store."""

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
import trio

from errors import UsageError
from gateway.events.cursor import CommitBarrier, EventCursor, EventFilter, EventStore, ReadableStream
from gateway.events.ring import Item, Ring, TextPieceBlock, first_of
from gateway.events.snapshots import blocks_between, compact, with_other_form
from gateway.settings import EventSettings
from store.records import EventRow, encode_compact
from wire.events import EVENT_TYPES, EventChannel, channel_of
from wire.messages import EMPTY, EventEnvelope

EventHandler: TypeAlias = Callable[[EventEnvelope], None]

_MOST_ROUNDS = 8
_QUIET_ROUNDS = 4
"""Rounds of the event loop, some 20 us each where nothing else happens."""
_ALONE = 4
"""Durable events in a row of one session, one more than a turn has: no other session is at work."""
_logger = logging.getLogger("pool.gateway.events")


class Listeners:
    """Handlers by type of event, called in the order of events; one that raises is logged. No progress events."""

    def __init__(self) -> None:
        self.handlers: dict[str, list[EventHandler]] = {}
        """By type of event; a type without handlers is not in it."""
        self._waiting: deque[EventEnvelope] = deque()
        self._is_notifying = False
        self.failures = 0

    def __len__(self) -> int:
        return sum(map(len, self.handlers.values()))

    def on(self, type_: str, handler: EventHandler) -> Callable[[], None]:
        """Call ``handler`` for each event of the type; returns a function that undoes it and may be called again."""
        if channel_of(type_) is EventChannel.PROGRESS:
            raise UsageError(f"{type_} is a progress event: those are read with a cursor, not with a handler")
        # a registration is an object of its own: the same function may be registered twice and undone once
        registered: list[EventHandler] = [handler]

        def call(event: EventEnvelope) -> None:
            for each in registered:
                each(event)

        self.handlers.setdefault(type_, []).append(call)

        def undo() -> None:
            if registered:
                registered.clear()
                self._remove(type_, call)

        return undo

    def _remove(self, type_: str, call: EventHandler) -> None:
        handlers = self.handlers[type_]
        handlers.remove(call)
        if not handlers:
            del self.handlers[type_]

    def notify(self, event: EventEnvelope) -> None:
        """Call the handlers of a visible event; events that they publish follow after it."""
        self._waiting.append(event)
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._waiting:
                self._call_handlers(self._waiting.popleft())
        finally:
            self._is_notifying = False

    def _call_handlers(self, event: EventEnvelope) -> None:
        for handler in tuple(self.handlers.get(event.type, ())):
            try:
                handler(event)
            except Exception:
                self.failures += 1
                _logger.exception("a handler of %s events raised at seq %d", event.type, event.seq)


TextKind = Literal["text_chunk", "think_chunk"]


class BusStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of this moment; counts are since the start."""

    head: int
    """The last seq that readers may see."""
    last_seq: int
    """The last seq that was given out."""
    ring_floor: int
    """What lies above it is in memory."""
    ring_bytes: int
    ring_sessions: int
    unseen: int
    """Events and blocks of text that wait for a commit."""
    sleeping: int
    """Cursors that wait for news."""
    handlers: int
    handler_failures: int
    events: int
    """Published, text pieces not counted."""
    text_pieces: int
    snapshots: int
    """Rows into which text pieces went that left the ring."""


class EventBus:
    """One for all sessions. Everything but ``run``, ``settled`` and cursors is immediate."""

    def __init__(
        self,
        store: EventStore,
        settings: EventSettings,
        *,
        first_seq: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``first_seq`` is above every seq that was ever given out; ``clock`` gives Unix time in seconds."""
        self.store = store
        self.ring = Ring(settings.ring, first_seq - 1)
        self._clock = clock
        self._barrier = CommitBarrier(first_seq)
        self._stream = ReadableStream(store, self.ring, self._barrier)
        self._listeners = Listeners()
        self._unseen: deque[Item] = deque()
        self._visibility_waiters: list[tuple[int, int, Callable[[], None]]] = []
        self._waiter_ids = count()
        self._commit_requested = trio.lowlevel.ParkingLot()
        self._is_closed = False
        self._recorded_seq = 0
        self._last_session = ""
        self._in_a_row = 0
        """Durable events, the latest ones, that are all of the last session."""
        self._events = self._text_pieces = self._snapshots = 0

    # --- the commit gate ----------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make durable events durable, and then seen, until cancelled; then closes the bus.

        Events that come during one commit share the next. Has started once it knows what retention has left.
        """
        try:
            self._stream.oldest = self.store.oldest_seq
            task_status.started()
            while True:
                while not self._barrier.uncommitted:
                    await self._commit_requested.park()
                await self._gather()
                if not self._barrier.uncommitted:  # committed meanwhile by ``_commit_alone``
                    continue
                upto = self._barrier.last
                is_durable = await self.store.flush()
                self._commit(upto if is_durable else self._barrier.last)
        finally:
            self.close()

    async def _gather(self) -> None:
        """Let the steps that follow each other at once share a commit: wait until a round of the loop brings none.

        A step that no one waits for is given a few rounds more: the one behind it is often waited for.
        """
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            last = self._barrier.last
            await trio.lowlevel.checkpoint()
            quiet = quiet + 1 if self._barrier.last == last else 0
            if not self._barrier.uncommitted or quiet >= (1 if self._visibility_waiters else _QUIET_ROUNDS):
                return

    def close(self) -> None:
        """Hand everything in memory to the store, now and whenever something is still published afterwards.

        Nothing waits for a commit any more: closing the store is one.
        """
        self._is_closed = True
        self._commit(self._barrier.last)
        self._evict(self.ring.evict(everything=True))

    async def wait_visible(self, seq: int, *, is_last: bool = False) -> None:
        """Wait until readers may see ``seq``: it is durable, or the disk refuses. Returns at once where it is so.

        ``is_last``: no other step of its session follows that should share its commit.
        """
        if is_last:
            self._commit_alone()
        if seq > self._barrier.head:
            seen = trio.Event()
            self.call_when_visible(seq, seen.set)
            await seen.wait()

    def call_when_visible(self, seq: int, call: Callable[[], None], *, is_last: bool = False) -> None:
        """The same without a task that waits; ``call`` must not raise, and is called at once where it is so already."""
        if is_last:
            self._commit_alone()
        if seq <= self._barrier.head:
            call()
        else:
            heapq.heappush(self._visibility_waiters, (seq, next(self._waiter_ids), call))

    def _commit_alone(self) -> None:
        """While one session is at work no other one will share its commit: make it at once, without a round."""
        upto = self._barrier.last
        if self._barrier.uncommitted and self._in_a_row >= _ALONE and self.store.commit():
            self._commit(upto)

    def _commit(self, upto: int) -> None:
        """Everything up to ``upto`` is durable, or never will be: notify readers and handlers of it."""
        self._stream.oldest = max(self._stream.oldest, self.store.oldest_seq)
        self._barrier.commit(upto)
        while self._unseen and self._unseen[0].seq <= self._barrier.head:
            self._show(self._unseen.popleft())
        while self._visibility_waiters and self._visibility_waiters[0][0] <= self._barrier.head:
            heapq.heappop(self._visibility_waiters)[2]()

    def _show(self, item: Item) -> None:
        self._stream.notifier.notify(item.session, first_of(item))
        if item.type in self._listeners.handlers and isinstance(item, EventEnvelope):
            self._listeners.notify(item)

    # --- publishing ---------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The last seq that readers may see."""
        return self._barrier.head

    def publish(self, session: str, type_: str, data: Any = None, *, run_id: str | None = None) -> int:
        """Give an event its seq and write it. ``data`` is anything that encodes to JSON; None = none.

        ``EventType`` gives its channel and whether it is durable. Readers see it at once, or after the commit of the
        last durable event up to it.
        """
        encoded, name = encode_compact(data), str(type_)
        known = EVENT_TYPES.get(name)
        channel = EventChannel.MONITOR if known is None else known.channel
        is_held = known is not None and known.is_durable and not (self._is_closed or self.store.is_degraded)
        seq, ts = self._barrier.allocate(hold=is_held), self._clock()
        if is_held:
            self._in_a_row = self._in_a_row + 1 if session == self._last_session else 1
            self._last_session = session
        name_of_channel = channel._value_  # ``value`` costs two calls
        row = EventRow(seq=seq, ts=ts, session=session, channel=name_of_channel, type=name, data=encoded, run_id=run_id)
        self.store.put_event(row)
        raw = EMPTY if data is None else msgspec.Raw(encoded)
        self._events += 1
        self._add(EventEnvelope(seq, ts, session, channel, name, raw, run_id))
        return seq

    def publish_text(self, session: str, type_: TextKind, pieces: list[msgspec.Raw], *, run_id: str | None) -> None:
        """Give each piece of text a seq. A piece is a JSON string, as valid as a decoder leaves it."""
        if not pieces:
            return
        if b"\n".join(pieces).count(b"\n") >= len(pieces):
            raise UsageError(f"a piece of session {session} is no JSON string: it holds a line end")
        first, ts = self._barrier.allocate(len(pieces)), self._clock()
        self._text_pieces += len(pieces)
        for begin, end in blocks_between(first, first + len(pieces)):
            texts = b"\n".join(pieces[begin - first : end - first])
            self._add(TextPieceBlock(begin, end - 1, ts, session, run_id, type_, texts))

    def _add(self, item: Item) -> None:
        if item.seq > self._recorded_seq:
            self._recorded_seq = self.store.record_seq(item.seq)
        self.ring.append(item)
        uncommitted = self._barrier.uncommitted
        if not (uncommitted or self._unseen or self._visibility_waiters):
            self._show(item)
        else:
            self._unseen.append(item)
            if not uncommitted or self.store.is_degraded:
                self._commit(self._barrier.last)
            elif uncommitted[0] == item.seq:
                self._commit_requested.unpark()
        if self._is_closed:
            self._evict(self.ring.evict(everything=True))
        elif self.ring.bytes > self.ring.limit:
            self._evict(self.ring.evict())

    def _evict(self, items: list[Item]) -> None:
        rows = compact(items, iter(self._barrier.uncommitted))
        self._snapshots += len(rows)
        if rows:
            self.store.put_events(rows)

    # --- reading ------------------------------------------------------------------------------------------------------

    def on(self, type_: str, handler: EventHandler) -> Callable[[], None]:
        """Call ``handler`` for each control or monitor event of this type from now on; call the result to undo it.

        It is called while the event is shown to readers, in order; it must be quick. One that raises is logged.
        """
        return self._listeners.on(type_, handler)

    def open_cursor(
        self,
        *,
        session: str | None = None,
        run_id: str | None = None,
        channels: frozenset[EventChannel] | None = None,
        kinds: frozenset[str] | None = None,
        since: int | None = None,
    ) -> EventCursor:
        """A reader of everything after the bookmark ``since`` (None = from now on) that all given filters let through.

        A kind of text stands for its snapshots too. A bookmark that was never given out is one of another supervisor:
        such a reader begins at ``head``, incomplete.
        """
        position = self.head if since is None else max(0, min(since, self.head))
        is_ours = since is None or since <= self.head
        complete = is_ours and position + 1 >= self._stream.oldest
        event_filter = EventFilter(session, run_id, channels, kinds and with_other_form(kinds))
        return EventCursor(self._stream, event_filter, position, complete=complete)

    def statistics(self) -> BusStatistics:
        """Figures of this moment."""
        return BusStatistics(
            head=self.head,
            last_seq=self._barrier.last,
            ring_floor=self.ring.floor,
            ring_bytes=self.ring.bytes,
            ring_sessions=self.ring.sessions,
            unseen=len(self._unseen),
            sleeping=self._stream.notifier.waiter_count,
            handlers=len(self._listeners),
            handler_failures=self._listeners.failures,
            events=self._events,
            text_pieces=self._text_pieces,
            snapshots=self._snapshots,
        )
