"""The waiting messages of one session and priority, by arrival, with those that go together in a group.

The *group* is what goes next: one message, or all consecutive ones that may be merged. It is formed only when the
session looks for its next turn, so that returned steers, which are older than everything else that waits at their
priority, never find one in their way.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator

from gateway.lanes.entry import Entry
from gateway.lanes.ordered import Ordered

__all__ = ["Group", "Tier"]

_LONGEST_DEBOUNCE = 4
"""Collected messages wait at most so many times the debounce, however fast others follow."""


class Group:
    """Messages that become one prompt: a single one of any kind, or collected ones of one lane.

    ``since`` and ``last`` outlive the messages that set them: a group whose oldest message is dropped again and again
    would otherwise begin its wait anew each time, and a debounce could starve.
    """

    __slots__ = ("entries", "is_ripe", "lane", "last", "mergeable", "since")

    def __init__(self, first: Entry) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.mergeable = first.mergeable
        self.lane = first.lane
        self.since = self.last = first.arrived
        self.is_ripe = False
        """Whether its debounce was over once; what joins it later delays it no more."""
        self.join(first)

    def takes(self, entry: Entry) -> bool:
        """Whether the message may be merged into the same prompt."""
        return self.mergeable and entry.mergeable and entry.lane == self.lane

    def join(self, entry: Entry) -> None:
        """Add the message that follows."""
        self.entries[entry.run] = entry
        self.last = entry.arrived

    @property
    def first(self) -> Entry:
        """The oldest message."""
        return next(iter(self.entries.values()))


class Tier:
    """All waiting messages of one session and priority."""

    __slots__ = ("group", "rest")

    def __init__(self) -> None:
        self.group: Group | None = None
        self.rest: Ordered[Entry] = Ordered()

    def __len__(self) -> int:
        return len(self.rest) + (len(self.group.entries) if self.group else 0)

    def __iter__(self) -> Iterator[Entry]:
        """The messages, in no order."""
        if self.group is not None:
            yield from self.group.entries.values()
        yield from self.rest

    def add(self, entry: Entry) -> None:
        """Let a message wait, at its place by arrival."""
        if self.group is not None and not self.rest and self.group.takes(entry):
            self.group.join(entry)
        else:
            entry.place = self.rest.add(entry.rank, entry)

    def remove(self, entry: Entry) -> None:
        """Take a message out."""
        if entry.place is not None:
            self.rest.remove(entry.place)
            entry.place = None
        elif self.group is not None:
            del self.group.entries[entry.run]
            if not self.group.entries:
                self.group = None

    def oldest(self) -> Entry | None:
        """The message that came first; None in an empty tier."""
        return self.group.first if self.group is not None else self.rest.first()

    def front(self) -> Group | None:
        """The group that goes next, formed where there is none and filled with all that it may take."""
        following = self.rest.first()
        while following is not None and (self.group is None or self.group.takes(following)):
            self.remove(following)
            if self.group is None:
                self.group = Group(following)
            else:
                self.group.join(following)
            following = self.rest.first()
        return self.group

    def due(self, debounce: float) -> float:
        """When the front group may go; a group that nothing can join any more need not wait at all."""
        group = self.front()
        if group is None or not group.mergeable or group.is_ripe or self.rest:
            return -math.inf
        return min(group.last + debounce, group.since + _LONGEST_DEBOUNCE * debounce)
