"""Where workers go, and what the machine learns of nodes that come, drain and are lost, in which order."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cluster.messages import Hello
from cluster.nodes import NodeLife
from cluster.placement import ClusterPlacement, reckoned_slots
from cluster.remote_node import NodeOrigin, RemoteNode
from cluster.settings import ClusterSettings, GroupSettings
from errors import UsageError, WorkerStartFailed
from pool.stimuli import Capacity, FailureKind, RecycleWorker, Stimulus, StopWorker, WorkerFailed

if TYPE_CHECKING:
    from cluster.link import Link

SETTINGS = ClusterSettings(local_slots=1, groups={"gpu": GroupSettings(labels={"gpu": "yes"})}, start_rate=7.0)


def remote_node(name: str, *, given: int = 0, **said: object) -> RemoteNode:
    """A node as it has joined; nothing goes over its link."""
    hello = Hello(version="1", name=name, boot="b", instance=name, **said)  # type: ignore[arg-type]  # fields by name
    life = NodeLife(name=name, machine="m", boot="b", instance=name, fenced_at=0.0)
    return RemoteNode(hello, cast("Link", None), life, Path("/"), NodeOrigin(engine="ssh", slots=given))


class Desk:
    """A placement, what the pool was told, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: list[Stimulus] = []
        self.drained: list[tuple[str, bool]] = []
        self.placement = ClusterPlacement(
            SETTINGS,
            worker_memory=100,
            on_drained=lambda name, drain: self.drained.append((name, drain.ends)),
            clock=lambda: self.now,
        )
        self.placement.connect(self.told.append)
        self.take()

    def take(self) -> list[object]:
        """What was told since: slots of a capacity, workers of anything else."""
        told, self.told[:] = [*self.told], []
        return [each.slots if isinstance(each, Capacity) else each for each in told]

    def join(self, name: str, slots: int, *, group: str = "") -> RemoteNode:
        node = remote_node(name, slots=slots, labels={"gpu": "yes"} if group else {})
        self.placement.joined(node)
        self.take()
        return node

    def place(self, *workers: str, group: str = "") -> list[str]:
        """The nodes that they go to; "" is this machine."""
        placed = [self.placement.place(worker, group, "") for worker in workers]
        return ["" if node is None else node.name for node in placed]

    def states(self) -> dict[str, tuple[str, int]]:
        return {node.name: (node.state, node.used) for node in self.placement.nodes()}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_agents_without_a_group_run_here_and_on_nodes_of_no_group(desk: Desk) -> None:
    assert desk.placement.place("w0", "", "") is None
    with pytest.raises(WorkerStartFailed, match="no node of group '' has a free slot"):
        desk.place("w1")
    desk.placement.joined(remote_node("one", slots=2))
    desk.placement.joined(remote_node("fast", slots=3, labels={"gpu": "yes"}))
    assert desk.told[-1] == Capacity({"": 3, "gpu": 3}, starters=3, start_rate=7.0)
    assert desk.place("w2", "w3") == ["one", "one"]
    assert desk.place("w4", group="gpu") == ["fast"]
    with pytest.raises(WorkerStartFailed):
        desk.place("w5")


def test_slots_are_what_the_engine_says_else_the_node_else_by_memory_and_cores() -> None:
    assert [reckoned_slots(remote_node("n", memory=1000, cores=cores).hello, 100) for cores in (1, 2)] == [8, 10]
    assert reckoned_slots(remote_node("n", memory=10, cores=4).hello, 100) == 1
    desk = Desk()
    for name, node in {"a": remote_node("a", given=2, slots=3), "b": remote_node("b", memory=500, cores=1)}.items():
        desk.placement.joined(node)
        assert name in desk.states()
    assert [node.slots for node in desk.placement.nodes()] == [1, 2, 5]


def test_of_a_lost_node_all_workers_fail_then_the_capacity_shrinks_then_each_end_follows_what_is_left(
    desk: Desk,
) -> None:
    node = desk.join("one", 4, group="gpu")
    assert desk.place("w1", "w2", group="gpu") == ["one", "one"]
    assert desk.placement.lost(node, "silent for 10 s") == 2
    first, second, capacity = desk.take()
    for failed, worker in ((first, "w1"), (second, "w2")):
        assert isinstance(failed, WorkerFailed)
        assert (failed.worker, failed.kind) == (worker, FailureKind.LOST)
        assert failed.error.message == f"worker {worker} was lost with its node one: silent for 10 s"
    assert capacity == {"": 1, "gpu": 2}
    desk.placement.release("w2")
    assert desk.take() == [{"": 1, "gpu": 1}]
    desk.placement.release("w1")
    assert desk.take() == [{"": 1}]
    assert desk.placement.lost(node, "again") == 0
    assert desk.states() == {"": ("up", 0)}


def test_a_node_that_is_back_takes_workers_after_the_last_one_of_its_life_before(desk: Desk) -> None:
    lost = desk.join("one", 4, group="gpu")
    desk.place("w1", "w2", group="gpu")
    desk.placement.lost(lost, "gone")
    desk.placement.joined(remote_node("one", slots=8, labels={"gpu": "yes"}))
    for worker in ("w1", "w2"):
        with pytest.raises(WorkerStartFailed):
            desk.place("too early", group="gpu")
        desk.placement.release(worker)
    assert desk.take()[-1] == {"": 1, "gpu": 8}
    assert desk.place("w3", group="gpu") == ["one"]


def test_a_drained_node_starts_nothing_and_is_empty_when_its_turns_have_ended_or_in_time(desk: Desk) -> None:
    desk.join("one", 4, group="gpu")
    desk.place("w1", "w2", group="gpu")
    desk.placement.drain("one", 20.0, ends=True)
    assert desk.take() == [
        {"": 1, "gpu": 2},
        RecycleWorker("w1", replace=False),
        RecycleWorker("w2", replace=False),
    ]
    with pytest.raises(WorkerStartFailed):
        desk.place("w3", group="gpu")
    desk.placement.release("w1")
    assert (desk.take(), desk.placement.end_overdue()) == ([{"": 1, "gpu": 1}], 120.0)
    desk.now = 120.0
    desk.placement.end_overdue()
    desk.placement.end_overdue()
    assert desk.take() == [StopWorker("w2")], "once"
    assert (desk.states()["one"], desk.drained) == (("draining", 1), [])
    desk.placement.release("w2")
    assert desk.drained == [("one", True)]


def test_a_node_that_is_drained_takes_workers_again_when_it_may_also_after_another_link(desk: Desk) -> None:
    node = desk.join("one", 2, group="gpu")
    desk.placement.drain("one", None, ends=False)
    assert (desk.drained, desk.placement.end_overdue()) == ([("one", False)], float("inf"))
    desk.placement.lost(node, "restarted")
    desk.join("one", 2, group="gpu")
    assert desk.states()["one"] == ("draining", 0)
    with pytest.raises(WorkerStartFailed):
        desk.place("w1", group="gpu")
    desk.placement.resume("one")
    assert desk.take() == [{"": 1, "gpu": 2}]
    assert desk.place("w1", group="gpu") == ["one"]
    with pytest.raises(UsageError, match="not being drained"):
        desk.placement.resume("one")
    with pytest.raises(UsageError, match="no node 'two'"):
        desk.placement.drain("two", None, ends=False)


def test_a_node_of_an_engine_stays_closed_until_its_machine_was_to_be_gone(desk: Desk) -> None:
    node = desk.join("one", 2, group="gpu")
    desk.placement.drain("one", 20.0, ends=True)
    for now, expected in ((110.0, {"": 1}), (120.0, {"": 1, "gpu": 2})):
        desk.now = now
        desk.placement.lost(node, "cut")
        node = remote_node("one", slots=2, labels={"gpu": "yes"})
        desk.placement.joined(node)
        assert desk.take()[-1] == expected


def test_a_node_that_an_engine_drains_before_it_joins_or_while_its_life_before_ends_takes_no_worker(desk: Desk) -> None:
    desk.placement.drain("one", None, ends=True)
    node = desk.join("one", 2, group="gpu")
    assert (desk.drained, desk.states()["one"]) == ([("one", True)], ("draining", 0))
    desk.placement.lost(node, "dismissed")
    desk.placement.forget_drain("one")
    node = desk.join("one", 2, group="gpu")
    desk.place("w1", group="gpu")
    desk.placement.lost(node, "cut")
    desk.join("one", 2, group="gpu")
    desk.placement.drain("one", 20.0, ends=True)
    assert desk.take() == [{"": 1, "gpu": 1}], "the worker of the life before has failed already"
    desk.placement.release("w1")
    assert desk.drained == [("one", True)] * 2
    with pytest.raises(WorkerStartFailed):
        desk.place("w2", group="gpu")


@pytest.mark.parametrize("seconds", [None, 20.0])
def test_a_drain_outlives_a_cut_of_the_link(desk: Desk, seconds: float | None) -> None:
    node = desk.join("one", 2, group="gpu")
    desk.place("w1", group="gpu")
    desk.placement.drain("one", seconds, ends=True)
    desk.placement.lost(node, "cut")
    desk.join("one", 2, group="gpu")
    desk.placement.release("w1")
    assert (desk.states()["one"], desk.drained) == (("draining", 0), [("one", True)])


def test_a_node_is_idle_from_its_last_worker_on(desk: Desk) -> None:
    desk.join("one", 4, group="gpu")
    desk.now += 3
    assert desk.placement.idle("one") == 3
    desk.place("w1", "w2", group="gpu")
    for worker in ("w1", "w2"):
        desk.now += 5
        assert desk.placement.idle("one") == 0
        desk.placement.release(worker)
    desk.now += 7
    assert desk.placement.idle("one") == 7
    assert desk.placement.idle("elsewhere") == 0


def test_other_slots_of_this_machine_hold_at_once_and_never_below_what_runs_here(desk: Desk) -> None:
    desk.place("w1")
    desk.placement.reconfigure(ClusterSettings(local_slots=0), 100)
    assert desk.take() == [{"": 1}]
    desk.placement.release("w1")
    assert desk.take() == [{"": 0}]
