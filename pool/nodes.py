"""Which node a worker is started on: the nodes of each group, what they have free, and how it is shared out. Pure."""

from enum import StrEnum
from typing import Literal

import msgspec

from pool.stimuli import Capacity


class Strategy(StrEnum):
    """How the workers of a group are shared out among its nodes."""

    SPREAD = "spread"
    """The node with the most free slots first."""
    PACK = "pack"
    """The node with the fewest free slots first."""


class Node:
    """One node: its group, its slots, the workers that it has (starting and stopping ones included)."""

    __slots__ = ("group", "is_open", "name", "slots", "workers")

    def __init__(self, name: str, group: str, slots: int) -> None:
        self.name = name
        self.group = group
        self.slots = slots
        self.workers: dict[str, None] = {}
        self.is_open = True
        """Whether it takes workers; one that does not counts with those that it has."""

    @property
    def free(self) -> int:
        """Slots for further workers."""
        return self.slots - len(self.workers) if self.is_open else 0


class _Group:
    """The nodes of a group by their free slots; of equal ones the one that was given a worker last is the last."""

    def __init__(self) -> None:
        self.by_free: dict[int, dict[Node, None]] = {}
        self.slots = 0
        """Of all its nodes; of one that takes no workers as many as it has."""

    def add(self, node: Node) -> None:
        """Count a node; ``remove`` it before anything of it changes."""
        free = node.free
        self.slots += len(node.workers) + max(free, 0)
        if free > 0:
            self.by_free.setdefault(free, {})[node] = None

    def remove(self, node: Node) -> None:
        """Take a node out."""
        free = node.free
        self.slots -= len(node.workers) + max(free, 0)
        if free > 0:
            nodes = self.by_free[free]
            del nodes[node]
            if not nodes:
                del self.by_free[free]


class NodeTable:
    """All nodes, and where each worker is. ``strategies`` by group, spread where none is named.

    A machine that gets each new ``capacity`` before the end of the worker that changed it (``stimuli.Capacity``) starts
    none for which ``place`` finds no node. ``place`` costs by how many different numbers of free slots there
    are, not by the number of nodes.
    """

    def __init__(self, strategies: dict[str, Strategy] | None = None) -> None:
        self._strategies = strategies or {}
        self._nodes: dict[str, Node] = {}
        self._groups: dict[str, _Group] = {}
        self._node_of: dict[str, Node] = {}
        self._open = 0

    def add(self, name: str, group: str, slots: int) -> None:
        """A node has come. Its name must be free: an earlier one of that name has ended with all its workers."""
        if name in self._nodes:
            msg = f"node {name!r} is there already"
            raise ValueError(msg)
        node = self._nodes[name] = Node(name, group, slots)
        self._open += 1
        self._groups.setdefault(group, _Group()).add(node)

    def find(self, name: str) -> Node | None:
        """The node of that name, closed ones included."""
        return self._nodes.get(name)

    def open(self, name: str, group: str, slots: int) -> None:
        """The node takes workers, up to ``slots`` with those that it has; it may be new, closed, or of another size."""
        node = self._nodes.get(name)
        if node is None:
            self.add(name, group, slots)
            return
        self._groups[node.group].remove(node)
        self._open += not node.is_open
        node.is_open, node.slots = True, slots
        self._groups[node.group].add(node)

    def close(self, name: str) -> tuple[str, ...]:
        """The node takes no workers any more, as it is lost or to be empty; returns those that it has.

        It is forgotten with the last of them. One that is unknown has none.
        """
        node = self._nodes.get(name)
        if node is None:
            return ()
        group = self._groups[node.group]
        group.remove(node)
        self._open -= node.is_open
        node.is_open = False
        group.add(node)
        self._forget_if_empty(node)
        return tuple(node.workers)

    def place(self, worker: str, group: str, near: str = "") -> str | None:
        """Give a new worker a slot, on the node ``near`` where that has one; None: no node of the group has."""
        found = self._groups.get(group)
        if found is None or not found.by_free:
            return None
        wanted = self._nodes.get(near)
        if wanted is None or wanted.group != group or wanted.free <= 0:
            choose = min if self._strategies.get(group) is Strategy.PACK else max
            wanted = next(iter(found.by_free[choose(found.by_free)]))
        found.remove(wanted)
        wanted.workers[worker] = None
        found.add(wanted)
        self._node_of[worker] = wanted
        return wanted.name

    def release(self, worker: str) -> bool:
        """The worker has ended: nothing of it can run any more. Whether that has changed the capacity.

        An unknown one is passed over.
        """
        node = self._node_of.pop(worker, None)
        if node is None:
            return False
        group = self._groups[node.group]
        before = group.slots
        group.remove(node)
        del node.workers[worker]
        group.add(node)
        self._forget_if_empty(node)
        return group.slots != before

    def node_of(self, worker: str) -> str | None:
        """Where the worker is."""
        node = self._node_of.get(worker)
        return None if node is None else node.name

    def capacity(self, start_rate: float | None = None) -> Capacity:
        """What the machine has to know now."""
        slots = {name: group.slots for name, group in self._groups.items()}
        return Capacity(slots, starters=self._open, start_rate=start_rate)

    def _forget_if_empty(self, node: Node) -> None:
        if not node.is_open and not node.workers:
            self._nodes.pop(node.name, None)
            if not any(other.group == node.group for other in self._nodes.values()):
                del self._groups[node.group]


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment; ``name`` "" is this machine.

    ``until``: seconds until a draining node is emptied by force, or a lost one is fenced. ``slots``: workers it may
    run, of which ``used`` are taken. ``memory`` and ``memory_free``: bytes. ``rtt``: seconds. ``note``: why it is in
    its state.
    """

    name: str
    group: str = ""
    engine: str = ""
    state: Literal["up", "draining", "lost", "refused"]
    until: float | None = None
    slots: int = 0
    used: int = 0
    load: float | None = None
    memory: int | None = None
    memory_free: int | None = None
    rtt: float | None = None
    note: str = ""
