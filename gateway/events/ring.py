"""The recent part of the stream in memory: everything after ``floor``, in seq order, as a whole and by session."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from wire.envelope import EventEnvelope

__all__ = ["ITEM_BYTES", "Index", "Item", "Ring", "TextBlock", "first_of", "last_of", "size_of"]

ITEM_BYTES = 256
"""What an item costs beside its text or data: the objects it is made of, and its places in the two indexes."""

_EVICTED_SHARE = 32
"""A full ring gives up this part of itself at once: often enough not to be felt, rarely enough for long snapshots."""


class TextBlock(msgspec.Struct, frozen=True, gc=False):
    """Pieces of one text that came together, one seq each; ``texts`` are their JSON strings, joined by LF."""

    first: int
    last: int
    ts: float
    session: str
    run_id: str | None
    type: str
    texts: bytes

    def pieces(self) -> list[str]:
        """The JSON string of each piece."""
        return self.texts.decode().split("\n")


Item: TypeAlias = TextBlock | EventEnvelope


def first_of(item: Item) -> int:
    """The first seq that it stands for."""
    return item.first if isinstance(item, TextBlock) else item.seq


def last_of(item: Item) -> int:
    """The last seq that it stands for."""
    return item.last if isinstance(item, TextBlock) else item.seq


def size_of(item: Item) -> int:
    """About how many bytes of memory it takes."""
    content = item.texts if isinstance(item, TextBlock) else memoryview(item.data)
    return ITEM_BYTES + len(content)


class Index:
    """Items in seq order. Reading from a seq on costs O(log n) and what is read."""

    __slots__ = ("_items", "_lasts")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: Item) -> None:
        """Add the newest item."""
        self._items.append(item)
        self._lasts.append(last_of(item))

    def read(self, after: int, upto: int) -> Iterator[Item]:
        """The items that hold a seq above ``after``, up to the last one that ends at or below ``upto``.

        The index must not change meanwhile. What is passed over costs nothing; ``islice`` would count through it.
        """
        return map(self._items.__getitem__, range(bisect_right(self._lasts, after), bisect_right(self._lasts, upto)))

    def drop(self, upto: int) -> None:
        """Forget what ends at or below ``upto``: rare and in large parts, so that closing the gap costs little."""
        end = bisect_right(self._lasts, upto)
        del self._items[:end]
        del self._lasts[:end]


class Ring:
    """Everything after ``floor``. Bounded by whoever calls ``evict`` while ``is_over``."""

    def __init__(self, limit: int, floor: int) -> None:
        """``limit`` in bytes."""
        self._limit = limit
        self._whole = Index()
        self._sessions: dict[str, Index] = {}
        self.floor = floor
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._whole)

    @property
    def sessions(self) -> int:
        """How many sessions have something in it."""
        return len(self._sessions)

    @property
    def is_over(self) -> bool:
        """Whether the oldest part has to give way."""
        return self.bytes > self._limit

    def append(self, item: Item) -> None:
        """Add the newest item."""
        self._whole.append(item)
        index = self._sessions.get(item.session)
        if index is None:
            index = self._sessions[item.session] = Index()
        index.append(item)
        self.bytes += size_of(item)

    def read(self, session: str | None, after: int, upto: int) -> Iterator[Item]:
        """The items of a session (None = of all) between two seqs, see ``Index.read``."""
        index = self._whole if session is None else self._sessions.get(session)
        return iter(()) if index is None else index.read(after, upto)

    def evict(self) -> list[Item]:
        """Take out the oldest part and raise ``floor`` to its last seq."""
        return self._take_out(self.bytes - self._limit + self._limit // _EVICTED_SHARE)

    def evict_all(self) -> list[Item]:
        """Take out everything."""
        return self._take_out(self.bytes)

    def _take_out(self, size: int) -> list[Item]:
        evicted: list[Item] = []
        left = size
        for item in self._whole.read(self.floor, _EVERYTHING):
            if left <= 0:
                break
            evicted.append(item)
            left -= size_of(item)
        if evicted:
            self.bytes -= size - left
            self.floor = last_of(evicted[-1])
            self._forget(evicted)
        return evicted

    def _forget(self, evicted: list[Item]) -> None:
        self._whole.drop(self.floor)
        for session in {item.session for item in evicted}:
            index = self._sessions[session]
            index.drop(self.floor)
            if not index:
                del self._sessions[session]


_EVERYTHING = 1 << 63
