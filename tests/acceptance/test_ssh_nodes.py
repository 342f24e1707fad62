"""``pool run`` with nodes that a real ssh reaches: prompts, ``pool nodes``, and what is left at the end."""

import shlex
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.acceptance.supervisor import Supervisor
from tests.cluster.nodes import own_disk, require_own_disks
from tests.cluster.sshd import Sshd, sshd

pytestmark = pytest.mark.process

SETTINGS = """
[pool]
max = 5
min = 0
[cluster]
local_slots = 1
[cluster.groups.far]
labels = { far = "yes" }
[agents.main]
group = "far"
"""
NODE = """
[cluster.nodes.{name}]
ssh = "node-{name}"
options = {options}
command = {command}
slots = 2
labels = {{ far = "yes" }}
"""


def settings_with(server: Sshd, folder: Path, *names: str) -> str:
    """Settings with a node for each name, all of them this machine with disks of their own."""
    text = SETTINGS
    for name in names:
        program = [sys.executable, "-m", "cli", "node", "--state-dir", str(folder / f"state-{name}")]
        command = msgspec.json.encode([*own_disk(folder / "data"), *program]).decode()
        text += NODE.format(name=name, options=msgspec.json.encode(server.options).decode(), command=command)
    return text


def test_a_pool_over_ssh_is_listed_drained_and_leaves_nothing_behind(tmp_path: Path) -> None:
    require_own_disks()
    (tmp_path / "sshd").mkdir()
    with sshd(tmp_path / "sshd") as server:
        file = tmp_path / "pool.toml"
        file.write_text(settings_with(server, tmp_path, "a", "b"))
        supervisor = Supervisor(tmp_path / "data", "--config", str(file))
        try:
            supervisor.wait_for_log("node_joined", 2)
            assert supervisor.prompt("s", "I am s.")
            first = supervisor.worker_of("s")["node"]
            other = {"a": "b", "b": "a"}[first]
            listed = supervisor.pool("nodes", "--group", "far", "--sort", "name")
            assert [line.split()[:5] for line in listed.stdout.splitlines()] == [
                ["NODE", "GROUP", "ENGINE", "STATE", "SLOTS"],
                *(["ab"[at], "far", "ssh", "up", f"{int('ab'[at] == first)}/2"] for at in range(2)),
            ]
            assert supervisor.pool("nodes", "drain", first).returncode == 0
            supervisor.wait_for_log("node_drained")
            assert supervisor.pool("nodes", "-q", "--state", "draining").stdout.split() == [first]
            assert "slots:  group far: 0 of 2 slots used, 1 node draining" in supervisor.pool("explain").stdout
            assert "I am s." in supervisor.prompt("s", "RECALL")
            assert supervisor.worker_of("s")["node"] == other
            assert f" {other} " in supervisor.pool("workers").stdout
            assert "far  1/2 slots  nodes: 1 up  1 draining" in supervisor.pool("status").stdout
            family = psutil.Process(supervisor.pid).children()
            over_ssh = [each for each in family if each.name() == "ssh"]
            assert len(over_ssh) == 2, [shlex.join(each.cmdline()) for each in family]
        finally:
            supervisor.close()
        assert psutil.wait_procs(family, timeout=20)[1] == []
