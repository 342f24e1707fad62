"""Text snapshots: text that leaves the ring becomes few rows, and events again when it is read.

A row holds pieces of one session and run with nothing else of that session between them, each group with its first
seq: ``[[7, ["he", "llo"]], [12, ["!"]]]``. So a reader is given exactly the part that it has not seen. The row's own
seq is its last piece's. A row lies within one *window* of seqs; a reader of all sessions, for whom events of others
lie between the pieces, needs no more than a window of rows to put everything into one order.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

import msgspec

from gateway.events.ring import Item, TextPieceBlock, first_of
from store.records import EventRow
from wire.events import EventChannel, EventType
from wire.messages import EMPTY, EventEnvelope

BLOCK = 512
"""Pieces of one block at most; blocks lie between two multiples of it."""
WINDOW = 1024
"""Snapshots lie between two multiples of it, which is itself a multiple of ``BLOCK``."""

_MAX_ROW_BYTES = 256 * 1024
_MAX_EVENT_CHARS = 16 * 1024

SNAPSHOT_OF: dict[str, str] = {
    EventType.TEXT_CHUNK: EventType.TEXT_SNAPSHOT,
    EventType.THINK_CHUNK: EventType.THINK_SNAPSHOT,
}
CHUNK_OF = {snapshot: chunk for chunk, snapshot in SNAPSHOT_OF.items()}


def with_other_form(kinds: frozenset[str]) -> frozenset[str]:
    """These types of events, and with text its snapshots and back: a reader cannot know which of them it will meet."""
    pairs = SNAPSHOT_OF | CHUNK_OF
    return kinds | {pairs[kind] for kind in kinds & pairs.keys()}


def blocks_between(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut the seqs from ``first`` up to, without, ``end`` into blocks, given in the same way."""
    while first < end:
        cut = min(end, (first // BLOCK + 1) * BLOCK)
        yield first, cut
        first = cut


def window_of(seq: int) -> range:
    """The window that ``seq`` lies in."""
    first = seq // WINDOW * WINDOW
    return range(first, first + WINDOW)


# --- into rows --------------------------------------------------------------------------------------------------------


class _SnapshotBuilder:
    """A row in the making."""

    def __init__(self, block: TextPieceBlock) -> None:
        self._blocks = [block]
        self._size = len(block.texts)

    def append(self, block: TextPieceBlock) -> bool:
        """Append a block; False = it belongs into another row."""
        begin = self._blocks[0]
        if (block.type, block.run_id) != (begin.type, begin.run_id) or self._size + len(block.texts) > _MAX_ROW_BYTES:
            return False
        self._blocks.append(block)
        self._size += len(block.texts)
        return True

    def build(self) -> EventRow:
        """It, complete."""
        last = self._blocks[-1]
        groups = b",".join(b"[%d,[%b]]" % (block.first, block.texts.replace(b"\n", b",")) for block in self._blocks)
        return EventRow(
            seq=last.seq,
            ts=last.ts,
            session=last.session,
            channel=EventChannel.PROGRESS.value,
            type=SNAPSHOT_OF[last.type],
            data=b"[%b]" % groups,
            run_id=last.run_id,
        )


def compact(items: Iterable[Item], cuts: Iterable[int]) -> list[EventRow]:
    """The rows for the text among ``items``, which are in seq order and whole; other events have rows already.

    No row holds pieces from both sides of one of the ``cuts`` (ascending seqs): readers may have to stop there.
    """
    rows: list[EventRow] = []
    growing: dict[str, _SnapshotBuilder] = {}
    coming = iter(cuts)
    cut, barrier = next(coming, None), -1
    for item in items:
        first = first_of(item)
        if first >= barrier:
            rows += [each.build() for each in growing.values()]
            growing.clear()
            while cut is not None and cut <= first:
                cut = next(coming, None)
            window = window_of(first).stop
            barrier = window if cut is None else min(window, cut)
        before = growing.get(item.session)
        if isinstance(item, TextPieceBlock):
            if before is None or not before.append(item):
                rows += [before.build()] if before else []
                growing[item.session] = _SnapshotBuilder(item)
        elif before is not None:
            rows.append(growing.pop(item.session).build())
    return rows + [each.build() for each in growing.values()]


# --- and back ---------------------------------------------------------------------------------------------------------

_PieceGroup: TypeAlias = tuple[int, list[str]]
_ReplayEntry: TypeAlias = tuple[int, EventRow, list[str]]
_groups = msgspec.json.Decoder(list[_PieceGroup])
_encode = msgspec.json.Encoder().encode


def expand(rows: Iterable[EventRow], after: int) -> Iterator[EventEnvelope]:
    """The events that ``rows`` stand for, in order, without what lies at or below ``after``.

    Pieces that follow each other here become one snapshot; one of several sessions ends where an event of another
    comes, so that a reader that stops at any event has seen everything up to its seq.
    """
    pending: list[_ReplayEntry] = []
    for entry in sorted(_entries(rows, after), key=itemgetter(0)):
        if pending and not (entry[2] and _belong_together(pending[0][1], entry[1])):
            yield from _snapshots(pending)
            pending.clear()
        if entry[2]:
            pending.append(entry)
        else:
            yield _envelope(entry[1])
    if pending:
        yield from _snapshots(pending)


def _entries(rows: Iterable[EventRow], after: int) -> Iterator[_ReplayEntry]:
    for row in rows:
        if row.type in CHUNK_OF:
            for first, texts in _groups.decode(row.data):
                seen = max(0, after + 1 - first)
                if seen < len(texts):
                    yield first + seen, row, texts[seen:]
        elif row.seq > after:
            yield row.seq, row, []


def _belong_together(one: EventRow, other: EventRow) -> bool:
    return (one.session, one.run_id, one.type) == (other.session, other.run_id, other.type)


def _snapshots(entries: list[_ReplayEntry]) -> Iterator[EventEnvelope]:
    """One snapshot, or several where the text is long."""
    texts: list[str] = []
    size, from_seq, to_seq, row = 0, 0, 0, entries[0][1]
    for first, each, pieces in entries:
        for seq, piece in enumerate(pieces, first):
            if texts and size + len(piece) > _MAX_EVENT_CHARS:
                yield _snapshot(row, from_seq, to_seq, texts)
                texts, size = [], 0
            if not texts:
                from_seq = seq
            texts.append(piece)
            size += len(piece)
            to_seq, row = seq, each
    yield _snapshot(row, from_seq, to_seq, texts)


def _snapshot(row: EventRow, from_seq: int, to_seq: int, texts: list[str]) -> EventEnvelope:
    data = _encode({"from_seq": from_seq, "to_seq": to_seq, "text": "".join(texts)})
    return _envelope(row, to_seq, data)


def _envelope(row: EventRow, seq: int | None = None, data: bytes | None = None) -> EventEnvelope:
    content = row.data if data is None else data
    return EventEnvelope(
        seq=row.seq if seq is None else seq,
        ts=row.ts,
        session=row.session,
        channel=EventChannel(row.channel),
        type=row.type,
        data=EMPTY if content == bytes(EMPTY) else msgspec.Raw(content),
        run_id=row.run_id,
    )
