"""Nodes in a simulation: workers live on them, nodes are lost with all they have, are emptied, and come back."""

import itertools
from random import Random

from pool import stimuli
from pool.nodes import NodeTable, Strategy
from pool.stimuli import Action, FailureKind
from profiles.profile import CapabilityProfile
from tests.pool.world import World, make_profile
from tests.sim.faults import Fault
from tests.sim.loads import LOADS, Scale
from tests.sim.simulation import Simulation, eight_profiles

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


class NodeSimulation(Simulation):
    """A simulation whose workers run on 200 nodes of two groups, filled in different ways, and a few here."""

    profiles_of_load = staticmethod(profiles_in_groups)
    starters = NODES + 1

    def __init__(self, seed: int, load: str, scale: Scale, faults: list[Fault]) -> None:
        self.node_numbers = itertools.count()
        super().__init__(seed, LOADS[load], scale, faults)

    def _introduce(self) -> None:
        self.table = NodeTable({"gpu": Strategy.PACK})
        self.slots_of: dict[str, int] = {}
        """Of the nodes that take workers."""
        self.silent: set[str] = set()
        """Workers of lost nodes, of which nothing is heard before the fence."""
        self._join("", "", LOCAL_SLOTS)
        for _ in range(NODES):
            self._join_another()
        World.tell(self, self.table.capacity())
        super()._introduce()

    def _join(self, name: str, group: str, slots: int) -> None:
        self.table.add(name, group, slots)
        self.slots_of[name] = slots

    def _join_another(self) -> None:
        number = next(self.node_numbers)
        self._join(f"n{number}", "gpu" if number % 3 == 0 else "cpu", SLOTS)

    def come_back(self) -> None:
        """A node joins, in place of one that is gone."""
        self._join_another()
        self.tell(self.table.capacity())

    # --- workers ----------------------------------------------------------------------------------------------------

    def _spawn(self, action: stimuli.Spawn) -> None:
        super()._spawn(action)
        node = self.table.place(action.worker, action.profile.group, action.near)
        assert node is not None, f"{action.worker} was started without a slot in group {action.profile.group!r}"
        self.totals["near"] += bool(action.near) and action.near == node
        used = sum(self.table.node_of(worker) == node for worker in self.workers)
        assert used <= self.slots_of[node], f"{used} workers on node {node}"

    def ready(self, worker: str, node: str = "") -> list[Action]:
        return super().ready(worker, node or self.table.node_of(worker) or "")

    def die(self, worker: str) -> None:
        if worker not in self.silent:
            super().die(worker)

    def exit(self, worker: str) -> list[Action]:
        node = self.table.node_of(worker)
        self.totals["ends beside a full group"] += any(place.condition.count for place in self.machine._state.places)
        self.table.release(worker)
        if node not in self.slots_of:
            self.tell(self.table.capacity())
        return super().exit(worker)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """The node is out of reach: all its workers fail, then the capacity, and each end when that is sure."""
        del self.slots_of[node]
        lost = self.table.close(node)
        self.silent.update(lost)
        for worker in lost:
            if not self.workers[worker].stopping:
                self.fail(worker, FailureKind.LOST)
        self.tell(self.table.capacity())
        self.in_this_life(FENCE, self._fence, lost)
        self.in_this_life(AWAY, self.come_back)
        self.totals["lost nodes"] += 1
        self.totals["lost workers"] += len(lost)

    def _fence(self, lost: tuple[str, ...]) -> None:
        for worker in lost:
            self.silent.discard(worker)
            self.die(worker)

    def empty(self, node: str) -> None:
        """The node takes nothing new: what is idle stops, what is in use at its turn's end, the rest after a while."""
        del self.slots_of[node]
        workers = self.table.close(node)
        self.tell(self.table.capacity())
        for worker in workers:
            paper = self.workers.get(worker)
            if paper is not None and not paper.stopping:
                self.tell(stimuli.RecycleWorker(worker, replace=False) if paper.ready else stimuli.StopWorker(worker))
        self.in_this_life(PATIENCE, self._insist, workers)
        self.in_this_life(AWAY, self.come_back)
        self.totals["emptied nodes"] += 1

    def _insist(self, workers: tuple[str, ...]) -> None:
        for worker in workers:
            if worker in self.workers and not self.workers[worker].stopping:
                self.totals["insisted"] += 1
                self.tell(stimuli.StopWorker(worker))


class Nodes(Fault):
    """Nodes are lost, some of them together, and emptied."""

    name = "nodes"
    every = 4.0

    def strike(self, sim: Simulation) -> None:
        assert isinstance(sim, NodeSimulation)
        remote = [name for name in sim.slots_of if name]
        for node in self.rng.sample(remote, k=min(self.rng.choice((1, 1, 1, 12)), len(remote))):
            (sim.lose if self.rng.random() < 0.6 else sim.empty)(node)


def node_faults(seed: int) -> list[Fault]:
    """New ones, with choices of their own."""
    return [Nodes(Random(f"{seed} nodes"))]
