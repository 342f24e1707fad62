"""Places: the groups of nodes that workers run on, each with its slots and its workers. Pure."""

import heapq
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pool.queues import ConditionQueue

if TYPE_CHECKING:
    from pool.records import AgentWorkers, WorkerRecord


class Place:
    """The nodes of one group; "" is this machine.

    ``slots`` are the workers that may live there, starting and stopping ones included: without bound as long as no
    Capacity was given.
    """

    __slots__ = ("agents", "condition", "group", "live", "slots")

    def __init__(self, group: str, slots: float) -> None:
        self.group = group
        self.slots = slots
        self.live = 0
        self.agents: dict[AgentWorkers, None] = {}
        """Those whose workers run here."""
        self.condition = ConditionQueue(f"{_named(group)} has no free slot, and no worker there can make room")

    @property
    def is_full(self) -> bool:
        """Whether nothing can be started here now."""
        return self.live >= self.slots

    def available(self) -> Iterator["WorkerRecord"]:
        """Its available workers, the one used longest ago first; each costs O(log agents)."""
        queues = (agent.available for agent in self.agents if agent.available)
        return heapq.merge(*queues, key=lambda worker: worker.idle_since)

    def unclaimed_slots(self) -> Iterator["WorkerRecord"]:
        """Its stopping workers whose slot is meant for no waiting profile."""
        for agent in self.agents:
            yield from agent.unclaimed_slots

    def __str__(self) -> str:
        return _named(self.group)


def _named(group: str) -> str:
    return f"group {group}" if group else "this machine"


class Places:
    """All places by group, and how many workers may live in all."""

    def __init__(self, most: int) -> None:
        self._by_group: dict[str, Place] = {}
        self._slots: Mapping[str, int] | None = None
        self.most = most
        """``max`` of the settings."""
        self.limit = most
        """Workers that may live: ``max`` of the settings, or all slots where these are fewer."""

    def get(self, group: str) -> Place:
        """The place of that group; one that is new leaves no trace until an agent has profiles there."""
        slots = math.inf if self._slots is None else self._slots.get(group, 0)
        return self._by_group.get(group) or Place(group, slots)

    def add(self, agent: "AgentWorkers") -> None:
        """The agent has a profile here."""
        self._by_group[agent.place.group] = agent.place
        agent.place.agents[agent] = None

    def drop(self, agent: "AgentWorkers") -> None:
        """The agent has no profile here any more; a place without agents is forgotten."""
        del agent.place.agents[agent]
        if not agent.place.agents:
            del self._by_group[agent.place.group]

    def set_most(self, most: int) -> None:
        """A new ``max`` of the settings."""
        self.most = most
        self.limit = most if self._slots is None else min(most, sum(self._slots.values()))

    def set_slots(self, slots: Mapping[str, int]) -> None:
        """The slots of all groups from now on."""
        self._slots = slots
        self.set_most(self.most)
        for place in self._by_group.values():
            place.slots = slots.get(place.group, 0)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._by_group.values())
