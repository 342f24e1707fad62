"""The write backlog: batches in order, bounded in bytes. Pure."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from store.records import DocumentKey, DocumentRow, EventRow, RunKey, RunRow, SessionRow

Key = TypeVar("Key", str, RunKey, DocumentKey)
Row = TypeVar("Row", SessionRow, RunRow, DocumentRow)

_BATCH_BYTES = 1024 * 1024
"""One transaction: some 50 ms of writing, the most that a flush has to wait for what came before it."""
_ROW_BYTES = 300  # what a row costs beside its texts: the struct, the list's entry, short strings
_KEY_BYTES = 200


class Changes(Generic[Key, Row]):
    """The last change of each key of one table: first ``removed`` is to be deleted, then ``rows`` put.

    Every method returns by how many bytes the changes have grown.
    """

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.removed: dict[Key, None] = {}

    def put(self, key: Key, row: Row) -> int:
        """The row's place among the new ones is that of its first put."""
        before = self.rows.get(key)
        self.rows[key] = row
        return cost_of(row) - (0 if before is None else cost_of(before))

    def remove(self, key: Key) -> int:
        """Whatever was to be put is forgotten."""
        before = self.rows.pop(key, None)
        grown = 0 if key in self.removed else _KEY_BYTES
        self.removed[key] = None
        return grown - (0 if before is None else cost_of(before))

    def merge(self, later: "Changes[Key, Row]") -> int:
        """Let later changes follow these."""
        return sum(map(self.remove, later.removed)) + sum(self.put(key, row) for key, row in later.rows.items())


class WriteBatch:
    """What one transaction writes.

    ``upto`` is the position of its last change, ``cost`` its bytes in memory; ``reserved`` and ``gone`` are seqs to be
    noted (0 = not): the highest one that may be given out, and the highest one of events that were given up.
    """

    def __init__(self) -> None:
        self.sessions: Changes[str, SessionRow] = Changes()
        self.runs: Changes[RunKey, RunRow] = Changes()
        self.documents: Changes[DocumentKey, DocumentRow] = Changes()
        self.events: deque[EventRow] = deque()
        self.reserved = 0
        self.purged_through = 0
        self.last_position = 0
        self.cost = 0

    @property
    def changes(self) -> int:
        """Rows to be put or deleted."""
        tables = (self.sessions, self.runs, self.documents)
        return len(self.events) + sum(len(table.rows) + len(table.removed) for table in tables)

    def merge(self, later: "WriteBatch") -> None:
        """Take over a later batch; of each key only its last row stays."""
        self.cost += self.sessions.merge(later.sessions) + self.runs.merge(later.runs)
        self.cost += self.documents.merge(later.documents)
        self.cost += sum(map(cost_of, later.events))
        self.events.extend(later.events)
        self.reserved = max(self.reserved, later.reserved)
        self.purged_through = max(self.purged_through, later.purged_through)
        self.last_position = later.last_position

    def drop(self, excess: int) -> int:
        """Give up the oldest events until ``excess`` bytes are free; returns how many.

        When they do not suffice, the oldest deletions of runs go too: such a run comes back with the next life, which
        forgets it again by its age. Sessions, documents, and runs that are to be put, always stay.
        """
        lost = 0
        least = self.cost - excess
        while self.events and self.cost > least:
            row = self.events.popleft()
            self.cost -= cost_of(row)
            self.purged_through = max(self.purged_through, row.seq)
            lost += 1
        while self.runs.removed and self.cost > least:
            del self.runs.removed[next(iter(self.runs.removed))]
            self.cost -= _KEY_BYTES
        return lost


class WriteBacklog:
    """Batches that wait, the one that is being written, and what had to be given up.

    ``position`` counts the changes asked for, ``written`` is the position up to which all are durable (or given up).
    """

    def __init__(self, limit: int, *, on_open: Callable[[], None] = lambda: None) -> None:
        """``limit``: bytes that may wait while the backlog is tight. ``on_open`` is called before a batch is opened.

        Where it raises, the change that would have opened the batch is not made.
        """
        self.position = 0
        self.written = 0
        self.cost = 0
        self.lost = 0
        self.purged_through = 0
        """Highest seq among the events given up; older ones may be durable nevertheless."""
        self.is_limited = False
        self._limit = limit
        self._waiting: deque[WriteBatch] = deque()
        self._open: WriteBatch | None = None
        """The last of them, while it takes changes."""
        self._on_open = on_open
        self._groups = 0
        self.in_flight: WriteBatch | None = None
        """The batch that is being written."""

    def put_session(self, row: SessionRow) -> None:
        """Insert or replace."""
        batch = self._open or self._open_batch()
        self._record_change(batch, batch.sessions.put(row.key, row))

    def delete_session(self, key: str) -> None:
        """Delete if it is there."""
        batch = self._open or self._open_batch()
        self._record_change(batch, batch.sessions.remove(key))

    def put_run(self, row: RunRow) -> None:
        """Insert or replace."""
        batch = self._open or self._open_batch()
        self._record_change(batch, batch.runs.put(row.key, row))

    def delete_runs(self, keys: Iterable[RunKey]) -> None:
        """Delete those that are there."""
        for key in keys:
            batch = self._open or self._open_batch()
            self._record_change(batch, batch.runs.remove(key))

    def put_document(self, row: DocumentRow) -> None:
        """Insert or replace."""
        batch = self._open or self._open_batch()
        self._record_change(batch, batch.documents.put((row.kind, row.key), row))

    def delete_document(self, key: DocumentKey) -> None:
        """Delete if it is there."""
        batch = self._open or self._open_batch()
        self._record_change(batch, batch.documents.remove(key))

    def put_event(self, row: EventRow) -> None:
        """Insert, where the seq is new."""
        batch = self._open or self._open_batch()
        batch.events.append(row)
        self._record_change(batch, _ROW_BYTES + len(row.data))

    def put_events(self, rows: Iterable[EventRow]) -> None:
        """Insert several."""
        for row in rows:
            self.put_event(row)

    def reserve(self, seq: int) -> None:
        """Make durable that every seq up to this one may have been given out."""
        batch = self._open or self._open_batch()
        batch.reserved = seq
        self._record_change(batch, 0)

    def __enter__(self) -> None:
        """What is put within the block goes into one batch, however large that becomes; blocks may be nested."""
        self._groups += 1

    def __exit__(self, *_: object) -> None:
        self._groups -= 1
        if self._open is not None and self._open.cost >= _BATCH_BYTES:
            self._close_full(self._open)

    @property
    def is_grouping(self) -> bool:
        """Whether such a block has begun and not ended."""
        return self._groups > 0

    def begin_batch(self) -> WriteBatch | None:
        """The oldest batch, to be written now; it still counts until it is finished or given back.

        None = there is none, or it may be incomplete.
        """
        if not self._waiting or self._groups:
            return None
        self.in_flight = batch = self._waiting.popleft()
        if batch is self._open:
            self._open = None
        return batch

    def close_batch(self) -> None:
        """Have the next change open another batch."""
        self._open = None

    def finish_batch(self, *, refused: int = 0) -> None:
        """The batch taken is durable, except ``refused`` rows that the database cannot hold."""
        batch = self._end_in_flight()
        self.cost -= batch.cost
        self.written = batch.last_position
        self.lost += refused

    def enable_limit(self) -> None:
        """From now on give up events over the limit: nothing can be written."""
        self.is_limited = True
        self._enforce_limit()

    def disable_limit(self) -> None:
        """Everything can be written again."""
        self.is_limited = False

    def requeue_batch(self) -> None:
        """The batch taken could not be written and is the next one again."""
        self._waiting.appendleft(self._end_in_flight())
        if self.is_limited:
            self._enforce_limit()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self._waiting and self.in_flight is None

    @property
    def changes(self) -> int:
        """Rows that wait to be put or deleted; counts them, for reports."""
        return sum(batch.changes for batch in self._batches())

    def events(self) -> list[EventRow]:
        """All events that are not durable yet, as they came."""
        return [row for batch in self._batches() for row in batch.events]

    def documents(self, kind: str) -> dict[str, bytes | None]:
        """The last word on each document of the kind that is not durable yet; None = it is to be removed."""
        words: dict[str, bytes | None] = {}
        for batch in self._batches():
            words.update({key: None for of, key in batch.documents.removed if of == kind})
            words.update({key: row.body for (of, key), row in batch.documents.rows.items() if of == kind})
        return words

    def _batches(self) -> Iterator[WriteBatch]:
        if self.in_flight is not None:
            yield self.in_flight
        yield from self._waiting

    def _end_in_flight(self) -> WriteBatch:
        batch, self.in_flight = self.in_flight, None
        if batch is None:
            msg = "no batch has been taken"
            raise RuntimeError(msg)
        return batch

    def _open_batch(self) -> WriteBatch:
        self._on_open()
        self._open = batch = WriteBatch()
        self._waiting.append(batch)
        return batch

    def _record_change(self, batch: WriteBatch, grown: int) -> None:
        self.position += 1
        batch.last_position = self.position
        batch.cost += grown
        self.cost += grown
        if batch.cost >= _BATCH_BYTES:
            self._close_full(batch)
        if self.is_limited:
            self._enforce_limit()

    def _close_full(self, batch: WriteBatch) -> None:
        if batch.cost >= _BATCH_BYTES and not self._groups:
            self._open = None

    def _enforce_limit(self) -> None:
        """Merge all that waits, which leaves one row of each key, and let the oldest events go.

        What is being written meanwhile does not count: otherwise each attempt would cost all the events that come. Nor
        can it be given up any more. Should it come through after all, it is older than what was lost, and yet there.
        """
        waiting = self.cost - (self.in_flight.cost if self.in_flight else 0)
        if waiting <= self._limit:
            return
        first = self._waiting.popleft()
        while self._waiting:
            first.merge(self._waiting.popleft())
        self._waiting.append(first)
        self._open = None if self._open is None else first
        self.lost += first.drop(first.cost - self._limit)
        self.cost += first.cost - waiting
        self.purged_through = max(self.purged_through, first.purged_through)
        self._close_full(first)


def cost_of(row: EventRow | SessionRow | RunRow | DocumentRow) -> int:
    """Bytes that a row takes in memory, roughly."""
    match row:
        case EventRow() | SessionRow():
            return _ROW_BYTES + len(row.data)
        case RunRow():
            return _ROW_BYTES + len(row.request) + len(row.outcome or b"")
        case DocumentRow():
            return _ROW_BYTES + len(row.body)
