"""Runs as the lanes see them, the transition tables of runs and sessions, and the heap that orders them. Pure."""

import heapq
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from gateway.lanes.messages import Submit
from wire.messages import QueueMode
from wire.states import transition


class EntryState(StrEnum):
    """Where a run is on its way to an end."""

    NEW = "new"
    WAITING = "waiting"
    """In its session's queue, whole."""
    SUMMARIZED = "summarized"
    """Dropped but for a line, which goes with the session's next prompt; that turn answers for it."""
    STEERED = "steered"
    """Handed to the running turn, which answers for it unless it comes back."""
    RUNNING = "running"
    """Part of a turn's prompt."""
    ENDED = "ended"
    """Answered, rejected or withdrawn; no longer known."""


class LaneSessionState(StrEnum):
    """What a session waits for."""

    FREE = "free"
    """For nothing: no turn, no messages. Free sessions are not kept."""
    GATHERING = "gathering"
    """For more messages to collect, until its debounce is over."""
    QUEUED = "queued"
    """For a slot of its next message's lane."""
    RUNNING = "running"
    """For its turn to end."""
    ABORTING = "aborting"
    """The same, but the turn is being aborted for a message that interrupts it."""


ENTRY_TRANSITIONS: Mapping[EntryState, frozenset[EntryState]] = {
    EntryState.NEW: frozenset({EntryState.WAITING, EntryState.STEERED, EntryState.RUNNING, EntryState.ENDED}),
    EntryState.WAITING: frozenset({EntryState.SUMMARIZED, EntryState.RUNNING, EntryState.ENDED}),
    EntryState.SUMMARIZED: frozenset({EntryState.RUNNING, EntryState.ENDED}),
    EntryState.STEERED: frozenset({EntryState.WAITING, EntryState.ENDED}),
    EntryState.RUNNING: frozenset({EntryState.ENDED}),
    EntryState.ENDED: frozenset(),
}

LANE_SESSION_TRANSITIONS: Mapping[LaneSessionState, frozenset[LaneSessionState]] = {
    LaneSessionState.FREE: frozenset({LaneSessionState.QUEUED, LaneSessionState.RUNNING}),
    LaneSessionState.GATHERING: frozenset({LaneSessionState.QUEUED, LaneSessionState.FREE}),
    LaneSessionState.QUEUED: frozenset({LaneSessionState.GATHERING, LaneSessionState.RUNNING, LaneSessionState.FREE}),
    LaneSessionState.RUNNING: frozenset(
        {LaneSessionState.ABORTING, LaneSessionState.GATHERING, LaneSessionState.QUEUED, LaneSessionState.FREE}
    ),
    LaneSessionState.ABORTING: frozenset({LaneSessionState.GATHERING, LaneSessionState.QUEUED, LaneSessionState.FREE}),
}


HeapRank = tuple[int, int]
T = TypeVar("T")
_COMPACT_THRESHOLD = 64


class HeapEntry(Generic[T]):
    """Where an item stands in an ``IndexedHeap``; empty once it has been taken out."""

    __slots__ = ("item", "rank")

    def __init__(self, rank: HeapRank, item: T) -> None:
        self.rank = rank
        self.item: T | None = item


class IndexedHeap(Generic[T]):
    """A heap with lazy deletion: empty places leave when they come up, or when they are the majority."""

    __slots__ = ("_heap", "_sequence", "size")

    def __init__(self) -> None:
        self._heap: list[tuple[HeapRank, int, HeapEntry[T]]] = []
        self._sequence = 0
        self.size = 0
        """Number of items."""

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[T]:
        """The items, in no order."""
        return (place.item for _, _, place in self._heap if place.item is not None)

    def add(self, rank: HeapRank, item: T) -> HeapEntry[T]:
        """Put an item in; among equal ranks the first comes first."""
        place = HeapEntry(rank, item)
        self._sequence += 1
        self.size += 1
        heapq.heappush(self._heap, (rank, self._sequence, place))
        return place

    def remove(self, place: HeapEntry[T]) -> None:
        """Take an item out, wherever it stands. It must be in."""
        place.item = None
        self.size -= 1
        if len(self._heap) > _COMPACT_THRESHOLD and len(self._heap) > 2 * self.size:
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapq.heapify(self._heap)

    def first(self) -> T | None:
        """The item of the smallest rank; None where there is none."""
        heap = self._heap
        while heap:
            item = heap[0][2].item
            if item is not None:
                return item
            heapq.heappop(heap)
        return None


class LaneEntry:
    """A run, where it stands, and what is left of its text."""

    __slots__ = (
        "arrived",
        "exclusive",
        "heap_entry",
        "lane",
        "mergeable",
        "pending_entry",
        "priority",
        "rank",
        "run",
        "sequence",
        "session",
        "state",
        "text",
    )

    def __init__(self, submit: Submit, sequence: int, now: float) -> None:
        self.run = submit.run
        self.session = submit.session
        self.lane = submit.lane
        self.priority = submit.priority
        self.exclusive = submit.exclusive
        self.mergeable = submit.mode is QueueMode.COLLECT and not submit.exclusive
        self.text = submit.text
        """The whole message; once it is summarized, the line of it that is kept."""
        self.sequence = sequence
        """The order of arrival: smaller came earlier, also after it was steered and came back."""
        self.rank: HeapRank = (-submit.priority, sequence)
        """Smaller is served first."""
        self.arrived = now
        self.state = EntryState.NEW
        self.heap_entry: HeapEntry[LaneEntry] | None = None
        """In its tier, behind the group that goes next."""
        self.pending_entry: HeapEntry[LaneEntry] | None = None
        """Among all that wait anywhere."""

    def transition_to(self, state: EntryState) -> None:
        """Take the run to ``state``; raises IllegalTransition where the table has no such step."""
        self.state = transition(ENTRY_TRANSITIONS, self.state, state)

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither begun nor ended: it can still be taken back or refused."""
        return self.state is EntryState.WAITING or self.state is EntryState.SUMMARIZED
