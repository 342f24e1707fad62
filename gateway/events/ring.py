"""The recent part of the event stream in memory, indexed by seq and by session, and its encoding as JSON envelopes."""

import sys
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import TypeAlias

import msgspec

from wire.events import EventChannel
from wire.messages import EventEnvelope

ITEM_BYTES = 256
"""What an item costs beside its text or data: the objects it is made of, and its places in the two indexes."""

_EVICTED_SHARE = 32
"""A full ring gives up this part of itself at once: often enough not to be felt, rarely enough for long snapshots."""


class TextPieceBlock(msgspec.Struct, frozen=True, gc=False):
    """Consecutive pieces of one text, with the seqs ``first`` to ``seq``. ``texts``: JSON strings, joined by LF."""

    first: int
    seq: int
    ts: float
    session: str
    run_id: str | None
    type: str
    texts: bytes

    def pieces(self) -> list[str]:
        """The JSON string of each piece."""
        return self.texts.decode().split("\n")


Item: TypeAlias = TextPieceBlock | EventEnvelope


def first_of(item: Item) -> int:
    """The first seq that it stands for; ``item.seq`` is the last one."""
    return item.first if isinstance(item, TextPieceBlock) else item.seq


def size_of(item: Item) -> int:
    """About how many bytes of memory it takes."""
    content = item.texts if isinstance(item, TextPieceBlock) else memoryview(item.data)
    return ITEM_BYTES + len(content)


class SeqIndex:
    """Items in seq order. Reading from a seq on costs O(log n) and what is read."""

    __slots__ = ("items", "lasts")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.lasts: list[int] = []
        """The last seq of each item."""

    def __len__(self) -> int:
        return len(self.items)

    def read(self, after: int, upto: int) -> Iterator[Item]:
        """The items that hold a seq above ``after``, up to the last one that ends at or below ``upto``.

        The index must not change meanwhile. What is passed over costs nothing; ``islice`` would count through it.
        """
        return map(self.items.__getitem__, range(bisect_right(self.lasts, after), bisect_right(self.lasts, upto)))

    def drop(self, upto: int) -> None:
        """Forget what ends at or below ``upto``: rare and in large parts, so that closing the gap costs little."""
        end = bisect_right(self.lasts, upto)
        del self.items[:end]
        del self.lasts[:end]


class Ring:
    """Everything after ``floor``. The caller bounds it: it evicts once ``bytes`` is above ``limit``."""

    def __init__(self, limit: int, floor: int) -> None:
        """``limit`` in bytes."""
        self.limit = limit
        self._all = SeqIndex()
        self._sessions: dict[str, SeqIndex] = {}
        self.floor = floor
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def sessions(self) -> int:
        """How many sessions have something in it."""
        return len(self._sessions)

    def append(self, item: Item) -> None:
        """Add the newest item."""
        index = self._sessions.get(item.session)
        if index is None:
            index = self._sessions[item.session] = SeqIndex()
        for each in (self._all, index):
            each.items.append(item)
            each.lasts.append(item.seq)
        self.bytes += size_of(item)

    def read(self, session: str | None, after: int, upto: int) -> Iterator[Item]:
        """The items of a session (None = of all) between two seqs, as ``SeqIndex.read`` gives them."""
        index = self._all if session is None else self._sessions.get(session)
        return iter(()) if index is None else index.read(after, upto)

    def evict(self, *, everything: bool = False) -> list[Item]:
        """Take out the oldest part, or everything, and raise ``floor`` to its last seq."""
        size = left = self.bytes if everything else self.bytes - self.limit + self.limit // _EVICTED_SHARE
        evicted: list[Item] = []
        for item in self._all.read(self.floor, sys.maxsize):
            if left <= 0:
                break
            evicted.append(item)
            left -= size_of(item)
        if evicted:
            self.bytes -= size - left
            self.floor = evicted[-1].seq
            self._all.drop(self.floor)
            for session in {item.session for item in evicted}:
                index = self._sessions[session]
                index.drop(self.floor)
                if not index:
                    del self._sessions[session]
        return evicted


_encode = msgspec.json.Encoder().encode


class EncodedEvents(msgspec.Struct, frozen=True):
    """Some events in order: ``body`` is their envelopes, joined by commas; ``has`` the types among them."""

    count: int
    body: bytes
    last_seq: int
    types: frozenset[str]

    def frame(self, name: str, owner: str | int) -> bytes:
        """``{NAME: OWNER, "events": [...]}``."""
        return b'{"%b":%b,"events":[%b]}' % (name.encode(), _encode(owner), self.body)


class EventBatch:
    """Collects envelopes up to ``max_bytes``; the first one is taken whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._types: set[str] = set()
        self.count = 0
        self.last_seq = 0

    def finish(self) -> EncodedEvents:
        """What was collected."""
        return EncodedEvents(self.count, b",".join(self._parts), self.last_seq, frozenset(self._types))

    def add(self, item: Item, after: int = 0) -> bool:
        """Take an event, or the pieces of a block with a seq above ``after``; False = not all of it has room here."""
        if isinstance(item, TextPieceBlock):
            return self._add_text(item, after)
        encoded = _encode(item)
        if self.count and self._size + len(encoded) >= self._max_bytes:
            return False
        self._append(encoded, 1, item.seq, item.type)
        return True

    def _add_text(self, block: TextPieceBlock, after: int) -> bool:
        pieces = block.pieces()
        first = block.first
        if after >= first:
            del pieces[: after + 1 - first]
            first = after + 1
        head = _head_of(block)
        fitting = self._count_fitting(pieces, len(head), block)
        if fitting:
            last = first + fitting - 1
            # a third of the time of encoding envelope by envelope: joining is one copy, and the parts are short
            ends = [f'{piece}}},"seq":{seq}' for seq, piece in enumerate(pieces[:fitting], first)]
            encoded = f"{head}{f'}},{head}'.join(ends)}}}".encode()
            self._append(encoded, fitting, last, block.type)
        return fitting == len(pieces)

    def _count_fitting(self, pieces: list[str], head: int, block: TextPieceBlock) -> int:
        """How many of the pieces have room, each with its head and its seq."""
        around = head + len(_BEFORE_SEQ) + len(str(block.seq)) + len("},")
        room = self._max_bytes - self._size
        if len(block.texts) + around * len(pieces) <= room:
            return len(pieces)
        # a character takes up to four bytes: the pieces are measured as they will be written
        sizes = accumulate(around + len(piece.encode()) for piece in pieces)
        return bisect_right(list(sizes), room) or (0 if self.count else 1)

    def _append(self, encoded: bytes, count: int, last_seq: int, type_: str) -> None:
        self._parts.append(encoded)
        self._size += len(encoded) + 1
        self._types.add(type_)
        self.count += count
        self.last_seq = last_seq


_BEFORE_SEQ = '},"seq":'


def _head_of(block: TextPieceBlock) -> str:
    """What all its envelopes begin with: ``seq`` comes last in them, so that they differ in their ends only."""
    run = "" if block.run_id is None else f',"run_id":{_encode(block.run_id).decode()}'
    return (
        f'{{"ts":{_encode(block.ts).decode()},"session":{_encode(block.session).decode()},'
        f'"channel":"{EventChannel.PROGRESS.value}","type":"{block.type}"{run},"data":{{"delta":'
    )
