"""The driver of Ray without Ray: what it reports, and the node program that it keeps on a machine."""

import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.ray_driver import NodeStarter, OfferedNode, changes, explained, node_name, offered_nodes


def row(
    ray_id: str, name: str, slots: float = 2.0, *, alive: bool = True, labels: Mapping[str, str] = {}
) -> dict[str, Any]:
    resources = {"CPU": 1.0, "pool_slot": slots} if slots else {"CPU": 1.0}
    return {
        "NodeID": ray_id,
        "NodeName": name,
        "Alive": alive,
        "Resources": resources,
        "Labels": {"ray.io/node-id": ray_id, **labels},
    }


def node(ray_id: str, name: str, drained_at: float | None = None) -> OfferedNode:
    return OfferedNode(ray_id, name, 2, (), drained_at)


def test_live_machines_with_slots_are_nodes_and_of_one_name_there_is_one() -> None:
    rows = [
        row("9", "a"),
        row("2", "a", 7),
        row("3", "head", 0),
        row("4", "b", alive=False),
        row("5", "c", labels={"kind": "gpu"}),
    ]
    found = offered_nodes(rows, {"5": 90_500}, "pool_slot")
    assert found == {
        "a": OfferedNode("2", "a", 7, (), None),
        "c": OfferedNode("5", "c", 2, (("kind", "gpu"),), 90.5),
    }


def test_what_the_supervisor_would_not_take_is_left_out() -> None:
    labels = {f"l{number:03}": "x" for number in range(100)} | {"l000": "x" * 300}
    (found,) = offered_nodes([row("1", "a", 1e9, labels=labels)], {}, "pool_slot").values()
    assert found.slots == 10_000
    assert [name for name, _ in found.labels] == [f"l{number:03}" for number in range(1, 65)]


@pytest.mark.parametrize(("text", "name"), [("10.0.0.7", "10.0.0.7"), ("-gpu 1/é", "gpu-1--"), ("", "node")])
def test_any_name_of_ray_becomes_one_for_a_node(text: str, name: str) -> None:
    assert node_name(text) == name


JOINED = {"event": "node", "name": "a", "slots": 2, "labels": {}}


@pytest.mark.parametrize(
    ("known", "found", "events"),
    [
        ([], [node("1", "a")], [JOINED]),
        ([node("1", "a")], [node("1", "a")], []),
        ([node("1", "a")], [], [{"event": "gone", "name": "a"}]),
        ([node("1", "a")], [node("2", "a")], [{"event": "gone", "name": "a"}, JOINED]),
        ([node("1", "a")], [node("1", "a", 1030.0)], [{"event": "draining", "name": "a", "deadline": 30.0}]),
        ([node("1", "a", 1030.0)], [node("1", "a", 1030.0)], []),
        ([node("1", "a", 0)], [node("1", "a", 900.0)], [{"event": "draining", "name": "a", "deadline": 0.0}]),
        ([node("1", "a")], [node("1", "a", 0)], [{"event": "draining", "name": "a", "deadline": None}]),
        ([], [node("1", "a", 0)], []),
    ],
)
def test_what_has_changed_is_reported_once(
    known: list[OfferedNode], found: list[OfferedNode], events: list[dict[str, Any]]
) -> None:
    before, after = ({each.name: each for each in nodes} for nodes in (known, found))
    assert list(changes(before, after, 1000.0)) == events


def test_an_error_of_ray_is_told_with_what_has_caused_it() -> None:
    error = ConnectionError("Failed to connect")
    error.__cause__ = RuntimeError("Invalid auth token.\n  Fix it.")
    assert explained(error) == "Failed to connect: Invalid auth token. Fix it."


# --- the node program ------------------------------------------------------------------------------------------------

SHOW = """
echo said >&2; tr '\\0' '\\n' </proc/$$/environ >>"$0.env"; echo "$@" >>"$0.args"; cat >"$0.$$"; exec cat "$0.gate"
"""
"""A node program: it keeps what it is given, and goes on until a pipe is opened for writing."""


class Program:
    """Starts of a node program on this machine, as actors of Ray ask for them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "program"
        self._gate = Path(f"{self.file}.gate")
        os.mkfifo(self._gate)
        self._threads: list[threading.Thread] = []

    def start(self, life: str = "one", *, gpus: bool = False) -> list[str]:
        """Ask for it; the list gets how it has ended."""
        ended: list[str] = []
        asked: Mapping[str, Any] = {
            "life": life,
            "name": "a",
            "slots": 3,
            "gpus": gpus,
            "dial": "10.0.0.1:7",
            "fingerprint": "ab",
            "secret": f"secret-of-{life}",
            "command": ["sh", "-c", SHOW, str(self.file)],
        }
        self._threads.append(threading.Thread(target=lambda: ended.append(NodeStarter().run(asked))))
        self._threads[-1].start()
        return ended

    def started(self) -> list[int]:
        """The programs that were ever started."""
        found = [path for path in self.directory.glob("program.[0-9]*") if path.stat().st_size]
        return sorted(int(path.suffix[1:]) for path in found)

    def wait_running(self, count: int = 1) -> list[int]:
        """The same, once there are that many."""
        while len(pids := self.started()) < count:
            os.sched_yield()
        return pids

    def wait_both_waiting(self) -> None:
        """Until two starts wait for the end of the program."""
        lock = (self.directory / "pool-node" / "a.lock").stat().st_ino
        while len(re.findall(rf"-> FLOCK .*:{lock} ", Path("/proc/locks").read_text())) < 2:
            os.sched_yield()

    def open_gate(self) -> None:
        """Let the program that runs end by itself."""
        os.close(os.open(self._gate, os.O_WRONLY))

    def wait_returned(self) -> None:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "canary-token")
    made = Program(tmp_path)
    try:
        yield made
    finally:
        for pid in made.started():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        made.wait_returned()


@pytest.mark.process
def test_a_node_program_gets_its_secret_by_standard_input_alone(program: Program) -> None:
    ended = program.start()
    (pid,) = program.wait_running()
    program.open_gate()
    program.wait_returned()
    assert ended == ["the node program ended with code 0: said"]
    assert Path(f"{program.file}.{pid}").read_text() == "secret-of-one\n"
    state = program.directory / "pool-node"
    own = f"--dial 10.0.0.1:7 --fingerprint ab --secret-file - --name a --slots 3 --state-dir {state}\n"
    assert Path(f"{program.file}.args").read_text() == own
    assert "RAY_" not in Path(f"{program.file}.env").read_text()
    kept = [path for path in program.directory.rglob("*") if path.is_file() and b"secret-of" in path.read_bytes()]
    assert kept == [Path(f"{program.file}.{pid}")], "the program's own"


@pytest.mark.process
@pytest.mark.parametrize("gpus", [False, True])
def test_devices_are_shared_out_where_ray_has_reserved_them(
    program: Program, monkeypatch: pytest.MonkeyPatch, *, gpus: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    program.start(gpus=gpus)
    program.wait_running()
    program.open_gate()
    program.wait_returned()
    assert ("--devices CUDA_VISIBLE_DEVICES=2,5" in Path(f"{program.file}.args").read_text()) == gpus


@pytest.mark.process
def test_a_node_program_is_an_orphan_in_a_session_of_its_own(program: Program) -> None:
    program.start()
    (pid,) = program.wait_running()
    shell = psutil.Process(pid).parent()
    assert shell is not None
    assert shell.ppid() != os.getpid()
    assert os.getsid(pid) not in (os.getsid(0), pid)
    program.open_gate()


@pytest.mark.process
def test_a_start_of_the_same_life_waits_for_the_program_that_runs(program: Program) -> None:
    program.start()
    pids = program.wait_running()
    ended = program.start()  # by another actor: the first is gone, as far as Ray knows
    program.wait_both_waiting()
    os.kill(pids[0], signal.SIGKILL)
    program.wait_returned()
    assert ended[0].startswith("the node program ended with code 137")
    assert program.started() == pids


@pytest.mark.process
def test_a_start_of_another_life_comes_after_the_program_that_runs(program: Program) -> None:
    ended = program.start("one")
    first = program.wait_running()
    program.start("two")
    program.wait_both_waiting()
    assert program.started() == first
    program.open_gate()
    second = set(program.wait_running(2)) - set(first)
    assert [Path(f"{program.file}.{pid}").read_text() for pid in second] == ["secret-of-two\n"]
    program.open_gate()
    program.wait_returned()
    assert len(ended) == 1
