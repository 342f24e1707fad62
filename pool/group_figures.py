"""What the nodes of each group add up to. Pure."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from pool.nodes import NodeStatus


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One group; ``group`` "": this machine and nodes of no group.

    ``nodes``: how many there are in each state. ``slots``: for workers, those of drained nodes only as far as they are
    taken; ``used``: that are taken.
    """

    group: str
    nodes: dict[str, int]
    slots: int
    used: int

    def __str__(self) -> str:
        name = f"group {self.group}" if self.group else "this machine and nodes of no group"
        others = "".join(f", {_count(self.nodes[state])} {state}" for state in sorted(self.nodes) if state != "up")
        return f"{name}: {self.used} of {self.slots} slots used{others}"


def figures_of_groups(nodes: Iterable[NodeStatus]) -> tuple[GroupFigures, ...]:
    """By name. What was refused is of no group."""
    found: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        found.setdefault(node.group, []).append(node)
    return tuple(_figures(name, found[name]) for name in sorted(found))


def _figures(group: str, nodes: list[NodeStatus]) -> GroupFigures:
    return GroupFigures(
        group=group,
        nodes=dict(Counter(node.state for node in nodes)),
        slots=sum(node.slots if node.state == "up" else node.used for node in nodes),
        used=sum(node.used for node in nodes),
    )


def _count(number: int) -> str:
    return f"{number} node" if number == 1 else f"{number} nodes"
