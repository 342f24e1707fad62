"""Nodes in a simulation: workers live on them, nodes are lost with all they have, are emptied, and come back."""

import itertools
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

from cluster.messages import Hello
from cluster.nodes import NodeLife
from cluster.placement import ClusterPlacement, NodeDrain
from cluster.remote_node import NodeOrigin, RemoteNode
from cluster.settings import ClusterSettings, GroupSettings
from pool import stimuli
from pool.stimuli import Action
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile
from tests.sim.faults import Fault
from tests.sim.loads import LOADS, Scale
from tests.sim.simulation import Simulation, eight_profiles

if TYPE_CHECKING:
    from cluster.link import Link

NODES, SLOTS, LOCAL_SLOTS = 200, 2, 4
FENCE = 7.0
"""Seconds after a loss after which nothing on the node can run any more."""
PATIENCE = 20.0
"""Seconds that turns get to end on a node that is to be empty."""
AWAY = 15.0
"""Seconds after which a node is back with another name."""
_GROUPS = {"main": "cpu", "helper": "gpu"}


def profiles_in_groups() -> list[CapabilityProfile]:
    """The eight, those of each agent in a group of nodes."""
    return [
        make_profile(
            each.cwd[1:],
            model=each.soft.model,
            skills=each.resources.skills,
            agent=f"{each.agent}@{_GROUPS[each.agent]}",
        )
        for each in eight_profiles()
    ]


def remote_node(name: str, kind: str, slots: int) -> RemoteNode:
    """A node that is let in; nothing goes over its link."""
    hello = Hello(version="1", name=name, boot="b", instance=name, slots=slots, labels={"kind": kind})
    life = NodeLife(name=name, machine="m", boot="b", instance=name, fenced_at=0.0)
    return RemoteNode(hello, cast("Link", None), life, Path("/"), NodeOrigin(engine="sim"))


class NodeSimulation(Simulation):
    """A simulation whose workers run on 200 nodes of two groups, filled in different ways, and a few here."""

    profiles_of_load = staticmethod(profiles_in_groups)
    starters = NODES + 1

    def __init__(self, seed: int, load: str, scale: Scale, faults: list[Fault]) -> None:
        self.node_numbers = itertools.count()
        super().__init__(seed, LOADS[load], scale, faults)

    def _introduce(self) -> None:
        groups = {"gpu": GroupSettings(labels={"kind": "gpu"}, strategy="pack"), "cpu": GroupSettings()}
        self.placement = ClusterPlacement(
            ClusterSettings(local_slots=LOCAL_SLOTS, groups=groups),
            worker_memory=0,
            on_drained=self._drained,
            clock=lambda: self.now,
        )
        self.nodes: dict[str, RemoteNode] = {}
        """Those that take workers."""
        self.emptying: dict[str, RemoteNode] = {}
        self.node_of: dict[str, str] = {}
        """By worker; "" is this machine."""
        self.silent: set[str] = set()
        """Workers of lost nodes, of which nothing is heard before the fence."""
        self.placement.connect(partial(World.tell, self))
        for _ in range(NODES):
            self._join_another()
        self.placement.connect(self.tell)
        super()._introduce()

    def _join(self, name: str, kind: str) -> None:
        node = self.nodes[name] = remote_node(name, kind, SLOTS)
        self.placement.joined(node)

    def _join_another(self) -> None:
        number = next(self.node_numbers)
        self._join(f"n{number}", "gpu" if number % 3 == 0 else "cpu")

    # --- workers ----------------------------------------------------------------------------------------------------

    def _spawn(self, action: stimuli.Spawn) -> None:
        super()._spawn(action)
        node = self.placement.place(action.worker, action.profile.group, action.near)  # or it raises
        name = self.node_of[action.worker] = "" if node is None else node.name
        assert node is None or (self.nodes[name] is node and node.group == action.profile.group)
        self.totals["near"] += bool(action.near) and action.near == name
        used = sum(self.node_of.get(worker) == name for worker in self.workers)
        assert used <= (LOCAL_SLOTS if node is None else SLOTS), f"{used} workers on node {name}"

    def ready(self, worker: str, node: str = "") -> list[Action]:
        return super().ready(worker, node or self.node_of[worker])

    def die(self, worker: str) -> None:
        if worker not in self.silent:
            super().die(worker)

    def exit(self, worker: str) -> list[Action]:
        self.totals["ends beside a full group"] += any(place.condition.count for place in self.machine._state.places)
        del self.node_of[worker]
        self.placement.release(worker)
        return super().exit(worker)

    def on(self, node: str) -> list[str]:
        """The workers of a node."""
        return [worker for worker in self.workers if self.node_of.get(worker) == node]

    # --- nodes ------------------------------------------------------------------------------------------------------

    def lose(self, name: str) -> None:
        """The node is out of reach; each end follows when it is sure."""
        lost = self.on(name)
        self.silent.update(lost)
        self.placement.lost(self.nodes.pop(name), "lost")
        self.in_this_life(FENCE, self._fence, name, lost)
        self.totals["lost nodes"] += 1
        self.totals["lost workers"] += len(lost)

    def _fence(self, name: str, lost: list[str]) -> None:
        """It is back before the supervisor has seen to all the ends, or another one takes its place later."""
        if self.rng.random() < 0.5:
            self._join(name, "gpu" if int(name[1:]) % 3 == 0 else "cpu")
        else:
            self.in_this_life(AWAY - FENCE, self._join_another)
        for worker in lost:
            self.silent.discard(worker)
            self.die(worker)

    def empty(self, name: str) -> None:
        """The node takes nothing new: what is idle stops, what is in use at its turn's end, the rest after a while."""
        self.emptying[name] = self.nodes.pop(name)
        self.placement.drain(name, PATIENCE, ends=True)
        self.in_this_life(PATIENCE, self._insist, name)
        self.in_this_life(AWAY, self._join_another)
        self.totals["emptied nodes"] += 1

    def _insist(self, name: str) -> None:
        self.totals["insisted"] += sum(not self.workers[worker].stopping for worker in self.on(name))
        self.placement.end_overdue()

    def _drained(self, name: str, _drain: NodeDrain) -> None:
        assert self.on(name) == []
        self.placement.lost(self.emptying.pop(name), "drained")
        self.placement.forget_drain(name)
        self.totals["drained nodes"] += 1


class Nodes(Fault):
    """Nodes are lost, some of them together, and emptied."""

    name = "nodes"
    every = 4.0

    def strike(self, sim: Simulation) -> None:
        assert isinstance(sim, NodeSimulation)
        names = list(sim.nodes)
        for node in self.rng.sample(names, k=min(self.rng.choice((1, 1, 1, 12)), len(names))):
            (sim.lose if self.rng.random() < 0.6 else sim.empty)(node)


def node_faults(seed: int) -> list[Fault]:
    """New ones, with choices of their own."""
    return [Nodes(Random(f"{seed} nodes"))]
