"""A reader's position in the event stream: it replays from the store, continues from the ring, then waits for news."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
import trio

from errors import SubscriberBehind
from gateway.events.ring import EncodedEvents, EventBatch, Item, Ring, TextPieceBlock
from gateway.events.snapshots import expand, window_of
from store.records import EventRow
from wire.events import EventChannel, EventType
from wire.messages import EventEnvelope

_SESSION_WIDE_TYPES = frozenset(type_ for type_ in EventType if type_.is_session_wide)
"""What happens in a session between its runs, or beside them: the followers of each run see it too."""


class EventFilter(msgspec.Struct, frozen=True):
    """Each part None = all. ``session`` is looked up in an index, the rest is looked at event by event.

    With ``run_id`` what belongs to another run is left out, and what belongs to none but ``agent_resumed``,
    ``exec_exit`` and ``alert``.
    """

    session: str | None = None
    run_id: str | None = None
    channels: frozenset[EventChannel] | None = None
    kinds: frozenset[str] | None = None

    def admits(self, item: Item | EventRow) -> bool:
        """Whether an event of the right session is wanted."""
        return (
            (self.kinds is None or item.type in self.kinds)
            and (
                self.run_id is None
                or item.run_id == self.run_id
                or (not item.run_id and item.type in _SESSION_WIDE_TYPES)
            )
            and (self.channels is None or _channel_of(item) in self.channels)
        )

    def admits_type(self, session: str, channel: EventChannel, kind: str) -> bool:
        """Whether an event of that kind would be wanted, whatever its run."""
        return (
            self.session in (None, session)
            and (self.channels is None or channel in self.channels)
            and (self.kinds is None or kind in self.kinds)
        )


def _channel_of(item: Item | EventRow) -> str:
    return EventChannel.PROGRESS if isinstance(item, TextPieceBlock) else item.channel


class EventStore(Protocol):
    """Rows are put at once and become durable in batches."""

    is_degraded: bool
    """Whether the disk refuses: nothing becomes durable, everything is held in memory."""

    @property
    def put_event(self) -> Callable[[EventRow], None]:
        """Write this one, some time soon."""
        ...

    def put_events(self, rows: Iterable[EventRow]) -> None:
        """Write these, some time soon."""
        ...

    def record_seq(self, seq: int) -> int:
        """This is the highest seq that was given out; the next one to be recorded is above the one returned."""
        ...

    def commit(self) -> bool:
        """Make everything that was put durable, where that is quick; False = it is not durable yet."""
        ...

    async def flush(self) -> bool:
        """Wait until everything put before is durable; False = it is held in memory."""
        ...

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        """Rows with ``after < seq < before``, ascending, with everything that was put before the call."""
        ...

    @property
    def oldest_seq(self) -> int:
        """Events with a seq below this one have been dropped by retention."""
        ...


_PAGE_ROWS = 128


async def _whole_windows(
    store: EventStore, event_filter: EventFilter, rows: list[EventRow], upto: int
) -> tuple[list[EventRow], int]:
    """A snapshot's pieces lie before its seq: end the page where no later row can hold any that belong before it.

    Within one session no other event lies between a snapshot's pieces, so that any row is such an end.
    """
    last = rows[-1].seq
    if event_filter.session is not None:
        return rows, last
    window = window_of(last)
    whole = [row for row in rows if row.seq < window.start]
    if whole:
        return whole, window.start - 1
    end = min(upto, window.stop - 1)
    return rows + await store.read_events(last, end + 1, session=None, limit=len(window)), end


class EventNotifier:
    """Wakes the tasks that wait for an event of one session, or (None) of any; no others."""

    def __init__(self) -> None:
        self._waiters: dict[str | None, dict[trio.lowlevel.Task, None]] = {}
        self._seen: dict[trio.lowlevel.Task, int] = {}
        """Of the tasks that are woken and have not run yet."""

    @property
    def waiter_count(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiters.values()))

    async def wait(self, session: str | None) -> int:
        """Sleep until the session's next event; return its seq: nothing has happened there in between."""
        task = trio.lowlevel.current_task()
        self._waiters.setdefault(session, {})[task] = None

        def leave(_: object) -> trio.lowlevel.Abort:
            waiters = self._waiters[session]
            del waiters[task]
            if not waiters:
                del self._waiters[session]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return self._seen.pop(task)

    def notify(self, session: str, seq: int) -> None:
        """Something of the session can be seen from ``seq`` on."""
        for key in (session, None):
            for task in self._waiters.pop(key, ()):
                self._seen[task] = seq
                trio.lowlevel.reschedule(task)


class CommitBarrier:
    """Keeps readers from events that follow an uncommitted durable one. Pure.

    ``last`` is the last seq given out, ``head`` the last one that readers may see.
    """

    def __init__(self, first_seq: int) -> None:
        self.last = self.head = first_seq - 1
        self.uncommitted: deque[int] = deque()
        """The seqs that wait for a commit, ascending; readers stop short of them."""

    def allocate(self, count: int = 1, *, hold: bool = False) -> int:
        """Give out ``count`` seqs, return the first; with ``hold`` nothing from it on is seen before ``commit``."""
        first = self.last + 1
        self.last += count
        if hold:
            self.uncommitted.append(first)
        elif not self.uncommitted:
            self.head = self.last
        return first

    def commit(self, upto: int) -> None:
        """Everything up to this seq is durable, or never will be."""
        while self.uncommitted and self.uncommitted[0] <= upto:
            self.uncommitted.popleft()
        self.head = self.uncommitted[0] - 1 if self.uncommitted else self.last


class ReadableStream:
    """What cursors read: the recent events in memory, the older ones in the store, and how far readers may see."""

    def __init__(self, store: EventStore, ring: Ring, barrier: CommitBarrier) -> None:
        self.store = store
        self.ring = ring
        self.barrier = barrier
        self.notifier = EventNotifier()
        self.oldest = 0
        """Retention has dropped what lies below."""


class EventCursor:
    """A position, for one task at a time. It holds nothing of the stream but the rest of a page it replays.

    Attributes:
        event_filter: what it lets through.
        position: the bookmark: everything up to it that the filter lets through has been taken.
        complete: False once events behind the position it began at turn out to have been discarded by retention.
    """

    def __init__(self, stream: ReadableStream, event_filter: EventFilter, position: int, *, complete: bool) -> None:
        self.position = position
        self.complete = complete
        self._stream = stream
        self.event_filter = event_filter
        self._replayed: deque[EventEnvelope] = deque()
        self._replay_end_seq = position
        self._had_caught_up = False

    async def read(self, max_bytes: int = 128 * 1024) -> EncodedEvents:
        """The next events, at least one; waits for them. More than ``max_bytes`` only where a single one is longer.

        Cancelled, it has taken nothing. Raises SubscriberBehind once this reader had seen everything there was, and
        then came so late that the ring has given up events it had not taken: resume with a new cursor at its
        ``bookmark``.
        """
        if self._replayed or self.position < self._stream.barrier.head:
            await trio.lowlevel.checkpoint()  # otherwise the wait for the next event is one
        while True:
            if self._replayed:
                return self._read_replayed(max_bytes)
            if self.position < self._stream.ring.floor and self.position < self._stream.barrier.head:
                await self._replay()
            elif self.position < self._stream.barrier.head:
                taken = self._read_live(max_bytes)
                if taken.count:
                    return taken
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Until something happens here; meanwhile the ring may have moved far, which is not this reader's delay."""
        self._had_caught_up = True
        news = await self._stream.notifier.wait(self.event_filter.session)
        self.position = max(self.position, news - 1)

    # --- live ---------------------------------------------------------------------------------------------------------

    def _read_live(self, max_bytes: int) -> EncodedEvents:
        batch, upto = EventBatch(max_bytes), self._stream.barrier.head
        for item in self._stream.ring.read(self.event_filter.session, self.position, upto):
            if not self.event_filter.admits(item):
                continue
            if not batch.add(item, self.position):
                self.position = batch.last_seq
                return batch.finish()
        self.position = upto
        self._had_caught_up = True
        return batch.finish()

    # --- replay -------------------------------------------------------------------------------------------------------

    async def _replay(self) -> None:
        """Read a page, up to a seq that no snapshot crosses."""
        store, event_filter, end = (
            self._stream.store,
            self.event_filter,
            min(self._stream.ring.floor, self._stream.barrier.head),
        )
        rows = await store.read_events(self.position, end + 1, session=event_filter.session, limit=_PAGE_ROWS)
        if len(rows) == _PAGE_ROWS:
            rows, end = await _whole_windows(store, event_filter, rows, end)
        events = list(expand(filter(event_filter.admits, rows), self.position))
        oldest = store.oldest_seq
        self._stream.oldest = max(self._stream.oldest, oldest)
        if self.position + 1 < oldest:
            self.complete = False
        if events and self._had_caught_up:
            raise SubscriberBehind(
                f"the subscriber was too slow: events after {self.position} are no longer in memory; "
                "subscribe again with since = bookmark",
                bookmark=self.position,
            )
        self._replayed.extend(events)
        self._replay_end_seq = end
        if not events:
            self.position = end

    def _read_replayed(self, max_bytes: int) -> EncodedEvents:
        batch = EventBatch(max_bytes)
        while self._replayed and batch.add(self._replayed[0]):
            self._replayed.popleft()
        self.position = batch.last_seq if self._replayed else self._replay_end_seq
        return batch.finish()
