"""A pool over a real Ray cluster whose machines have networks, processes and disks of their own."""

import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.cluster.machines import Machine
from tests.cluster.ray_cluster import RESOURCE, SLOTS, RayCluster, is_rays, ray_cluster
from tests.cluster.ray_pool import LONG_TURN, HeadSupervisor, Talk, is_long, settings_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(420)]

SESSIONS = 40
NODE_PROGRAM = "bin/pool node --dial"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    # Not in /tmp, which each machine has for itself.
    with (
        tempfile.TemporaryDirectory(prefix="pool-ray-", dir="/var/tmp") as directory,
        ray_cluster(Path(directory), "a", "b", "c") as made,
    ):
        yield made


class Story:
    """A supervisor, sessions that talk to it, and what happens to them."""

    def __init__(self, cluster: RayCluster, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.nursery = nursery
        self.talk = Talk(cluster, SESSIONS)
        self.supervisor: HeadSupervisor
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        used = sum(machine.memory() for machine in (self.cluster.head, *self.cluster.nodes.values())) // 1_000_000
        failed = dict(Counter(code for code, _ in self.talk.failures))
        figures = f"{self.talk.answers} answers, failed {failed}, {used} MB"
        print(f"\n{time.monotonic() - self._began:6.1f} s: {text} ({figures})")  # noqa: T201

    async def begin_life(self) -> None:
        """Start a supervisor; its nodes have joined on return."""
        started = partial(HeadSupervisor, self.cluster, settings_of(self.cluster))
        self.supervisor = await trio.to_thread.run_sync(started)
        await self.wait_log("ready", 1)
        for name in self.cluster.nodes:
            await self.wait_for("node_joined", name)
        await self.nursery.start(self.talk.connect)

    async def wait_log(self, event: str, count: int) -> None:
        await trio.to_thread.run_sync(self.supervisor.wait_for_log, event, count)

    async def wait_for(self, event: str, node: str, since: int = 0) -> None:
        await trio.to_thread.run_sync(partial(self.supervisor.wait_for, event, node, since=since))

    def count(self, event: str) -> int:
        return len(self.supervisor.logged(event))

    async def busy_worker(self, is_meant: Callable[[str], bool] = lambda _session: True) -> dict[str, Any]:
        """A worker in a turn."""
        while True:
            for worker in self.supervisor.status()["workers"]:
                if worker["turn_age"] is not None and worker["pid"] and is_meant(worker["session"]):
                    return dict(worker)
            await self.talk.wait_answers(1)


@asynccontextmanager
async def story(cluster: RayCluster) -> AsyncGenerator[Story, None]:
    """Sessions under way on all nodes; after the block they have recalled all, and what was promised is checked."""
    async with trio.open_nursery() as nursery:
        told = Story(cluster, nursery)
        try:
            await told.begin_life()
            told.note("all nodes have joined")
            async with trio.open_nursery() as talking:
                talking.start_soon(told.talk.run)
                await told.talk.wait_answers(2 * SESSIONS)
                yield told
                told.talk.finish()
            told.note("all sessions have recalled")
            await trio.to_thread.run_sync(told.supervisor.stop)
        finally:
            told.supervisor.close()
    assert told.talk.audit(cluster.data_dir) == []
    for machine in (cluster.head, *cluster.nodes.values()):
        await trio.to_thread.run_sync(wait_only_ray, machine)


def wait_only_ray(machine: Machine) -> None:
    """Until nothing runs there that is not Ray's."""
    deadline = time.monotonic() + 20
    while left := [each for each in machine.commands().values() if not is_rays(each) and each != "sleep infinity"]:
        assert time.monotonic() < deadline, f"left on {machine.name}: {left}"


async def ask_for_slots(told: Story) -> None:
    """There are more sessions than slots: Ray hears of those that are waited for, beside those that are there."""
    while len(asked := await trio.to_thread.run_sync(told.cluster.asked)) <= SLOTS * len(told.cluster.nodes):
        await told.talk.wait_answers(1)
    assert {*map(str, asked)} == {str({RESOURCE: 1})}


async def kill_worker(told: Story) -> None:
    worker = await told.busy_worker()
    told.cluster.nodes[worker["node"]].run("kill", "-9", str(worker["pid"]))
    await told.talk.wait_answers(SESSIONS)
    assert told.count("node_lost") == 0


async def stop_head(told: Story) -> None:
    """No turn fails; the engine comes back with the head, and finds the node programs that run."""
    failed, joined = len(told.talk.failures), told.count("node_joined")
    await trio.to_thread.run_sync(told.cluster.stop_head)
    await told.wait_log("engine_lost", 1)
    await told.talk.wait_answers(SESSIONS)
    await trio.to_thread.run_sync(told.cluster.start_head)
    for name, machine in told.cluster.nodes.items():
        await trio.to_thread.run_sync(told.cluster.end_ray, machine)
        told.cluster.start_node(name)
    await told.talk.wait_answers(SESSIONS)
    assert told.talk.failures[failed:] == []
    assert told.count("node_joined") == joined


async def kill_node_program(told: Story) -> None:
    """Ray starts it again, also after the loss of its head."""
    joined = told.count("node_joined")
    node = (await told.busy_worker())["node"]
    told.cluster.nodes[node].kill_programs(NODE_PROGRAM)
    await told.wait_for("node_joined", node, joined)


async def cut_network(told: Story) -> None:
    """In a turn that goes on there for longer than the node has."""
    worker = await told.busy_worker(is_long)
    node = told.cluster.nodes[worker["node"]]
    joined, fenced = told.count("node_joined"), told.count("node_fenced")
    node.set_link(told.cluster.head, "down")
    await told.wait_for("node_fenced", node.name, fenced)
    assert node.pids_of(f"sleep {LONG_TURN}") == []
    node.set_link(told.cluster.head, "up")
    await trio.to_thread.run_sync(told.cluster.end_ray, node)
    told.cluster.start_node(node.name)
    await told.wait_for("node_joined", node.name, joined)


async def kill_machine(told: Story) -> None:
    """Another one joins, and is used."""
    node = told.cluster.nodes.pop("a")
    fenced = told.count("node_fenced")
    node.set_link(told.cluster.head, "down")
    await trio.to_thread.run_sync(node.kill)
    await told.wait_for("node_fenced", "a", fenced)
    told.cluster.add_node("d")
    await told.wait_for("node_joined", "d")
    while len(pids := [each["pid"] for each in told.supervisor.status()["workers"] if each["node"] == "d"]) < SLOTS:
        await told.talk.wait_answers(1)
    given = told.cluster.nodes["d"].run("sh", "-c", " ".join(f"cat /proc/{pid}/environ;" for pid in pids)).split("\0")
    assert {each for each in given if "CUDA" in each} == {f"CUDA_VISIBLE_DEVICES={device}" for device in range(SLOTS)}


async def drain_node(told: Story) -> None:
    """It becomes empty without one failed turn, and Ray has it back."""
    failed = len(told.talk.failures)
    node = told.cluster.nodes.pop("b")
    await trio.to_thread.run_sync(told.cluster.drain, "b", 120)
    await told.wait_for("node_drained", "b")
    await trio.to_thread.run_sync(wait_only_ray, node)
    await told.talk.wait_answers(SESSIONS)
    assert told.talk.failures[failed:] == []


async def kill_supervisor(told: Story) -> None:
    await trio.to_thread.run_sync(told.supervisor.kill)
    told.supervisor.close()
    await told.begin_life()


def looks_at_secrets(told: Story) -> None:
    """Keys of agents and of nodes are in no argument, no environment of Ray, and no log of it."""
    for machine in told.cluster.nodes.values():
        said = machine.run("sh", "-c", "cat /proc/[0-9]*/cmdline; cat /tmp/ray/session_*/logs/*; true")
        assert "canary" not in said
        for pid in machine.pids_of("ray::"):
            assert "canary" not in Path(f"/proc/{pid}/environ").read_text()


STEPS = (
    ask_for_slots,
    kill_worker,
    stop_head,
    kill_node_program,
    cut_network,
    kill_machine,
    drain_node,
    kill_supervisor,
)


async def test_every_request_ends_once_and_every_session_goes_on_whatever_dies(cluster: RayCluster) -> None:
    async with story(cluster) as told:
        for step in STEPS:
            await step(told)
            told.note(step.__name__)
            await told.talk.wait_answers(SESSIONS)
        looks_at_secrets(told)


def test_a_driver_and_a_node_with_another_token_are_refused(cluster: RayCluster) -> None:
    (token := cluster.directory / "a-wrong-token").write_text("wrong")
    supervisor = HeadSupervisor(cluster, settings_of(cluster), {"RAY_AUTH_TOKEN_PATH": str(token)})
    try:
        supervisor.wait_for_log("engine_lost")
        (line,) = supervisor.logged("engine_lost")[:1]
        assert "token" in line["reason"].lower()
        supervisor.stop()
    finally:
        supervisor.close()
    machine = cluster.add_machine("stranger")
    assert "token" in cluster.refusal_of(machine, "wrong").lower()
    assert machine.pids_of("raylet") == []
