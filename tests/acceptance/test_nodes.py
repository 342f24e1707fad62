"""``pool run`` with node programs that dial: prompts go to all machines, and what ends one ends no conversation."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.acceptance.supervisor import Supervisor, gated
from tests.cluster.nodes import own_disk, require_own_disks

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-nodes-of-a-test"
SETTINGS = """
[pool]
max = 4
min = 0

[cluster]
listen = "127.0.0.1:{port}"
token_file = "node-token"
local_slots = 0
lease = "4s"
silence = "3s"
fence_margin = "2s"

[cluster.groups.far]
labels = {{ far = "yes" }}

[agents.main]
group = "far"
"""


class Cluster:
    """A supervisor and its nodes."""

    def __init__(self, folder: Path, settings: str) -> None:
        token = folder / "node-token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        (folder / "pool.toml").write_text(settings)
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = folder
        self.begin()

    def begin(self) -> None:
        """Start the supervisor."""
        self.supervisor = Supervisor(self._folder / "data", "--config", str(self._folder / "pool.toml"))
        self.supervisor.wait_for_log("ready")

    def add(self, name: str, *flags: str, label: str = "far=yes") -> None:
        """Start a node program, on a disk of its own; wait until it has joined."""
        joined = len(self.supervisor.logged("node_joined"))
        address = self.supervisor.logged("cluster_ready")[-1]["address"]
        own = ["--name", name, "--state-dir", str(self._folder / f"state-{name}"), "--label", label, *flags]
        where = ["--dial", address, "--token-file", str(self._folder / "node-token")]
        command = [*own_disk(self.supervisor.data_dir), sys.executable, "-P", "-m", "cli", "node", *own, *where]
        self.programs[name] = subprocess.Popen(command, cwd=ROOT)
        self.supervisor.wait_for_log("node_joined", joined + 1)

    def kill(self, name: str) -> None:
        """``kill -9`` of its program."""
        program = self.programs.pop(name)
        program.kill()
        program.wait()

    def states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.supervisor.call("nodes.list")}

    def node_of(self, session: str) -> str:
        return str(self.supervisor.worker_of(session)["node"])


@contextmanager
def cluster(folder: Path, *, port: int = 0) -> Iterator[Cluster]:
    require_own_disks()
    made = Cluster(folder, SETTINGS.format(port=port))
    try:
        yield made
    finally:
        made.supervisor.close()
        for name in [*made.programs]:
            made.kill(name)


def test_a_session_goes_on_at_another_node_when_its_own_is_killed_in_a_turn(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        for name in ("a", "b"):
            nodes.add(name, "--slots", "2")
        pool = nodes.supervisor
        for session in ("s", "t"):
            assert pool.prompt(session, f"I am {session}.")
        first, other = nodes.node_of("s"), nodes.node_of("t")
        assert {first, other} == {"a", "b"}, "workers are spread"
        assert "note" not in pool.logged("node_joined")[-1]
        gate = tmp_path / "gate"
        run = pool.begin("s", gated(gate))
        pid = pool.wait_for_turn("s")["pid"]
        nodes.kill(first)
        outcome = pool.outcome(run)
        assert f"was lost with its node {first}" in str(outcome)
        assert nodes.states() == {"": "up", other: "up", first: "lost"}
        assert "I am s." in pool.prompt("s", "RECALL")
        assert not psutil.pid_exists(pid), "its first worker runs on"
        assert nodes.node_of("s") == other
        assert [event["node"] for event in pool.logged("node_lost")] == [first]
        nodes.add(first, "--slots", "3")
        assert nodes.states() == {"": "up", "a": "up", "b": "up"}
        assert pool.logged("node_joined")[-1]["note"] == "pool.max = 4 is less than the 5 slots of all nodes"


def test_nodes_come_back_to_the_next_supervisor_and_its_sessions_go_on_there(tmp_path: Path) -> None:
    with socket.socket() as reserved:  # no one else gets the port while it has none to listen on
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        with cluster(tmp_path, port=reserved.getsockname()[1]) as nodes:
            nodes.add("a")
            nodes.supervisor.prompt("s", "I am s.")
            nodes.supervisor.signal(signal.SIGTERM)
            assert nodes.supervisor.wait() == 0
            assert nodes.supervisor.logged("node_lost") == [], "all ends, and no node was lost"
            nodes.begin()
            nodes.supervisor.wait_for_log("node_joined")
            assert "I am s." in nodes.supervisor.prompt("s", "RECALL")


def test_nothing_is_left_on_the_nodes_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        nodes.add("a")
        nodes.supervisor.begin("s", gated(tmp_path / "gate"))
        worker = psutil.Process(nodes.supervisor.wait_for_turn("s")["pid"])
        family = [worker, *worker.children(recursive=True)]
        nodes.supervisor.kill()
        _, alive = psutil.wait_procs(family, timeout=20)
        assert alive == []


def test_a_node_that_is_drained_is_empty_once_its_turns_have_ended_and_takes_workers_again_when_it_may(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as nodes:
        nodes.add("a", "--slots", "2")
        pool, gate = nodes.supervisor, tmp_path / "gate"
        pool.prompt("idle", "I am idle.")
        run = pool.begin("busy", gated(gate))
        pool.wait_for_turn("busy")
        pool.call("nodes.drain", node="a")
        assert nodes.states() == {"": "up", "a": "draining"}
        waiting = pool.begin("idle", "RECALL")
        assert pool.logged("node_drained") == []
        gate.touch()
        assert pool.outcome(run)["status"] == "ok"
        pool.wait_for_log("node_drained")
        assert [node["note"] for node in pool.call("nodes.list") if node["name"] == "a"] == ["empty"]
        pool.call("nodes.resume", node="a")
        assert "I am idle." in str(pool.outcome(waiting))
        assert nodes.states() == {"": "up", "a": "up"}
