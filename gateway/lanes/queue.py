"""The waiting messages of one session: by priority, then arrival, in batches, some of them summarized. Pure.

The *batch* is what goes next: one message, or all consecutive ones that may be merged. It is formed only when the
session looks for its next turn, so that returned steers, which are older than everything else that waits at their
priority, are never behind a younger batch.
"""

import bisect
import math
from collections import OrderedDict
from collections.abc import Iterator

from gateway.lanes.lane_entries import EntryState, IndexedHeap, LaneEntry

_MAX_DEBOUNCE_FACTOR = 4
"""Collected messages wait at most this many times the debounce, however fast others follow."""


class PromptBatch:
    """Messages that become one prompt: a single one of any kind, or collected ones of one lane.

    ``since`` and ``last`` outlive the messages that set them: a batch whose oldest message is dropped again and again
    would otherwise restart its wait each time, and a debounce could starve.
    """

    __slots__ = ("entries", "is_ready", "lane", "last", "mergeable", "since")

    def __init__(self, first: LaneEntry) -> None:
        self.entries: OrderedDict[str, LaneEntry] = OrderedDict()
        self.mergeable = first.mergeable
        self.lane = first.lane
        self.since = self.last = first.arrived
        self.is_ready = False
        """Whether its debounce was over once; what joins it later delays it no more."""
        self.append(first)

    def accepts(self, entry: LaneEntry) -> bool:
        """Whether the message may be merged into the same prompt."""
        return self.mergeable and entry.mergeable and entry.lane == self.lane

    def append(self, entry: LaneEntry) -> None:
        """Add the message that follows."""
        self.entries[entry.run] = entry
        self.last = entry.arrived

    @property
    def first(self) -> LaneEntry:
        """The oldest message."""
        return next(iter(self.entries.values()))


class PriorityQueue:
    """All waiting messages of one session and priority."""

    __slots__ = ("batch", "rest")

    def __init__(self) -> None:
        self.batch: PromptBatch | None = None
        self.rest: IndexedHeap[LaneEntry] = IndexedHeap()

    def __len__(self) -> int:
        return len(self.rest) + (len(self.batch.entries) if self.batch else 0)

    def __iter__(self) -> Iterator[LaneEntry]:
        """The messages, in no order."""
        if self.batch is not None:
            yield from self.batch.entries.values()
        yield from self.rest

    def add(self, entry: LaneEntry) -> None:
        """Let a message wait, at its place by arrival."""
        if self.batch is not None and not self.rest and self.batch.accepts(entry):
            self.batch.append(entry)
        else:
            entry.heap_entry = self.rest.add(entry.rank, entry)

    def remove(self, entry: LaneEntry) -> None:
        """Take a message out."""
        if entry.heap_entry is not None:
            self.rest.remove(entry.heap_entry)
            entry.heap_entry = None
        elif self.batch is not None:
            del self.batch.entries[entry.run]
            if not self.batch.entries:
                self.batch = None

    def oldest(self) -> LaneEntry | None:
        """The message that came first; None in an empty tier."""
        return self.batch.first if self.batch is not None else self.rest.first()

    def front_batch(self) -> PromptBatch | None:
        """The batch that goes next, formed where there is none and filled with all that it may take."""
        following = self.rest.first()
        while following is not None and (self.batch is None or self.batch.accepts(following)):
            self.remove(following)
            if self.batch is None:
                self.batch = PromptBatch(following)
            else:
                self.batch.append(following)
            following = self.rest.first()
        return self.batch

    def due(self, debounce: float) -> float:
        """When the front batch may go; a batch that nothing can join any more need not wait."""
        batch = self.front_batch()
        if batch is None or not batch.mergeable or batch.is_ready or self.rest:
            return -math.inf
        return min(batch.last + debounce, batch.since + _MAX_DEBOUNCE_FACTOR * debounce)


class DroppedSummaries:
    """Summarized runs, in the order in which they were summarized."""

    __slots__ = ("_entries", "_priorities")

    def __init__(self) -> None:
        self._entries: OrderedDict[str, LaneEntry] = OrderedDict()
        self._priorities: dict[int, int] = {}
        """How many there are of each."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[LaneEntry]:
        return iter(self._entries.values())

    def add(self, entry: LaneEntry) -> None:
        """Keep a run that has just been summarized."""
        self._entries[entry.run] = entry
        self._priorities[entry.priority] = self._priorities.get(entry.priority, 0) + 1

    def remove(self, entry: LaneEntry) -> None:
        """Forget a run."""
        del self._entries[entry.run]
        self._priorities[entry.priority] -= 1
        if not self._priorities[entry.priority]:
            del self._priorities[entry.priority]

    @property
    def first(self) -> LaneEntry | None:
        """The run that was summarized first."""
        return next(iter(self._entries.values()), None)

    @property
    def highest(self) -> float:
        """The highest priority among them; -inf where there are none."""
        return max(self._priorities, default=-math.inf)


class SessionQueue:
    """The messages of one session that have no turn yet, the summarized ones among them."""

    __slots__ = ("_priorities", "_texts", "_tiers", "size", "summaries")

    def __init__(self) -> None:
        self._tiers: dict[int, PriorityQueue] = {}
        self._priorities: list[int] = []
        """Those of the tiers, ascending."""
        self._texts = 0
        """Messages whose prompt can carry the lines of summarized ones: all but the exclusive."""
        self.size = 0
        """Messages that wait whole."""
        self.summaries = DroppedSummaries()

    def __len__(self) -> int:
        return self.size + len(self.summaries)

    def __iter__(self) -> Iterator[LaneEntry]:
        """Summarized runs first, which go with whatever is next; then the others as they will be served."""
        yield from self.summaries
        for priority in reversed(self._priorities):
            yield from sorted(self._tiers[priority], key=lambda entry: entry.rank)

    def add(self, entry: LaneEntry) -> None:
        """Let a message wait that has just become WAITING."""
        tier = self._tiers.get(entry.priority)
        if tier is None:
            tier = self._tiers[entry.priority] = PriorityQueue()
            bisect.insort(self._priorities, entry.priority)
        tier.add(entry)
        self.size += 1
        self._texts += not entry.exclusive

    def remove(self, entry: LaneEntry) -> None:
        """Take out a run before its state changes: one that waits, or a summarized one."""
        if entry.state is EntryState.SUMMARIZED:
            self.summaries.remove(entry)
            return
        tier = self._tiers[entry.priority]
        tier.remove(entry)
        self.size -= 1
        self._texts -= not entry.exclusive
        if not tier:
            del self._tiers[entry.priority]
            del self._priorities[bisect.bisect_left(self._priorities, entry.priority)]

    def has_ahead(self, priority: int) -> bool:
        """Whether a new message of ``priority`` would overtake one of these if it did not wait."""
        highest = max(self._priorities[-1], self.summaries.highest) if self._priorities else self.summaries.highest
        return highest >= priority

    def summarize(self, entry: LaneEntry, line: str) -> None:
        """Keep ``line`` of a message that waits, for the session's next prompt."""
        self.remove(entry)
        entry.transition_to(EntryState.SUMMARIZED)
        entry.text = line
        self.summaries.add(entry)

    def pick_victim(self) -> LaneEntry:
        """What is dropped when the queue overflows: the oldest message of the lowest priority. It must not be empty."""
        oldest = self._tiers[self._priorities[0]].oldest()
        assert oldest is not None, "a tier exists only while a message is in it"  # noqa: S101 - tells the type checker
        return oldest

    def head(self) -> LaneEntry | None:
        """The run whose lane, priority and arrival count for the session's next turn; None when none waits.

        Summarized runs have a turn of their own where no message is left that could carry their lines.
        """
        if not self.size:
            return self.summaries.first
        summarized, batch = self.summaries.first, self._front_batch()
        if batch is None:
            return summarized
        if summarized is None or self._texts or batch.first.rank < summarized.rank:
            return batch.first
        return summarized

    def due(self, debounce: float) -> float:
        """When the next turn may begin, as far as the session's own messages are concerned; -inf = at once."""
        leader = self.head()
        if leader is None or leader.state is EntryState.SUMMARIZED:
            return -math.inf
        return self._tiers[leader.priority].due(debounce)

    def mark_ready(self) -> None:
        """The next turn waits for a slot from now on: what joins it delays it no more."""
        batch = self._front_batch()
        if batch is not None:
            batch.is_ready = True

    def pop(self) -> list[LaneEntry]:
        """Take out everything that the next turn answers for, oldest first; states are the caller's to change."""
        leader = self.head()
        if leader is None:
            return []
        taken = [] if leader.exclusive else list(self.summaries)
        batch = self._front_batch()
        if batch is not None and leader.state is EntryState.WAITING:
            taken += batch.entries.values()
        for entry in taken:
            self.remove(entry)
        return sorted(taken, key=lambda entry: entry.sequence)

    def _front_batch(self) -> PromptBatch | None:
        return self._tiers[self._priorities[-1]].front_batch() if self._priorities else None
