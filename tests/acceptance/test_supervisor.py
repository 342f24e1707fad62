"""``pool run`` as a process: what it serves, what ends it, and what is left when it is killed."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from doors.control.client import ControlClient
from errors import RequestTimeout
from fixtures.hostile_agent import COMMAND
from tests.acceptance.supervisor import (
    Supervisor,
    gone_within,
    marked_processes,
    processes_with,
    running_supervisor,
    tool,
)

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """For tests with sessions of their own."""
    with running_supervisor(tmp_path_factory.mktemp("s"), "--max", "3") as running:
        yield running


def test_sessions_remember_and_the_status_agrees_with_the_process_table(supervisor: Supervisor) -> None:
    for session, text in (("a", "hello"), ("b", "good morning"), ("c", "x"), ("d", "x")):
        assert text in supervisor.prompt(session, text)
    recalled = supervisor.prompt("a", "RECALL")
    assert ("hello" in recalled, "good morning" in recalled) == (True, False)
    status = supervisor.status()
    children = [(child.pid, child.cmdline()) for child in psutil.Process(supervisor.pid).children()]
    workers = [pid for pid, words in children if "agent" in words or words[:2] == ["pool:", "worker"]]
    assert {worker["pid"] for worker in status["workers"]} == set(workers)
    assert status["pool"]["total"] == len(workers) <= 3
    counters = status["counters"]
    assert counters["releases"] + counters["lost"] + counters["active"] == sum(counters["grants"].values()) >= 5


def test_a_worker_is_recycled_on_demand(supervisor: Supervisor) -> None:
    supervisor.prompt("recycled", "remember-this")
    before = supervisor.worker_of("recycled")
    assert supervisor.pool("workers", "recycle", before["id"]).returncode == 0
    supervisor.wait_for_loss(before["pid"])
    assert "remember-this" in supervisor.prompt("recycled", "RECALL")


def test_a_hang_up_without_a_terminal_stops_nothing_and_binds_a_socket_that_was_removed(supervisor: Supervisor) -> None:
    supervisor.socket.unlink()
    assert supervisor.pool("status").returncode == 3
    supervisor.signal(signal.SIGHUP)
    supervisor.wait_for_log("socket_bound_anew")
    assert "hello" in supervisor.prompt("bound", "hello")


def test_a_suspended_supervisor_is_given_up_by_who_waits_for_its_answer(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doors.control.client_socket._SUSPENDED_CHECK_SECONDS", 0.2)
    with ControlClient(supervisor.socket) as client:
        slow = {"session": "alice", "text": "PIECES=1 DELAY=1000"}  # longer than a check: it is not taken for suspended
        assert client.call("prompt", slow, timeout=None)["status"] == "ok"
        supervisor.signal(signal.SIGSTOP)
        try:
            with pytest.raises(RequestTimeout, match=f"suspended by a signal.*kill -CONT {supervisor.pid}"):
                client.call("prompt", {"session": "alice", "text": "ECHO:hello", "run": "k1"}, timeout=None)
        finally:
            supervisor.signal(signal.SIGCONT)
    assert supervisor.outcome("k1")["text"] == "hello"


# --- its end ----------------------------------------------------------------------------------------------------------


def test_an_interrupt_stops_it_cleanly_and_nothing_is_left(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.prompt("alice", "hello")
        instance = supervisor.instance()
        supervisor.signal(signal.SIGINT)
        assert supervisor.wait() == 0
        assert (marked_processes(instance), supervisor.socket.exists()) == ([], False)


_IN_A_TERMINAL = [
    *(sys.executable, "-c"),
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])",
]
"""Makes the terminal on its standard input the one that controls the session."""


@pytest.mark.parametrize(("wrapper", "stops"), [([], True), (["nohup"], False)])
def test_the_end_of_its_terminal_stops_it_unless_nohup_forbids(
    tmp_path: Path, wrapper: list[str], *, stops: bool
) -> None:
    ours, theirs = os.openpty()
    with running_supervisor(tmp_path, wrapper=[*_IN_A_TERMINAL, *wrapper], terminal=theirs) as supervisor:
        os.close(theirs)
        os.close(ours)
        if stops:
            assert supervisor.wait() == 0
        else:
            assert "hello" in supervisor.prompt("alice", "hello")
            assert supervisor.process.poll() is None


def test_a_signal_while_the_workers_end_does_not_end_the_supervisor_before_them(tmp_path: Path) -> None:
    clinging = [*COMMAND, *(f"--behaviour={name}" for name in ("no-answer", "ignore-eof", "ignore-sigterm"))]
    settings = f'[agents.main]\ncommand = {clinging}\n[log]\nlevel = "debug"\n[rpc]\nterm_grace = "500ms"\n'
    with running_supervisor(tmp_path, settings=settings) as supervisor:
        supervisor.begin("alice", "hello")
        supervisor.wait_for_turn("alice")
        instance = supervisor.instance()
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("stopping")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("session_parked")  # the whole kill ladder lies ahead
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
        assert marked_processes(instance) == []


def test_a_killed_supervisor_leaves_no_worker_and_no_tool_of_theirs_and_the_next_one_serves(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.begin("tool", tool("setsid sleep 300 & echo started; sleep 300"))
        front_end = supervisor.start("prompt", "-s", "suspended", "HANG")
        supervisor.wait_for_turn("tool")
        os.kill(supervisor.wait_for_turn("suspended")["pid"], signal.SIGSTOP)
        instance = supervisor.instance()
        processes = processes_with(instance, "sleep", 2)
        supervisor.kill()
        assert gone_within(processes, 20.0)
        assert marked_processes(instance) == []
        front_end.communicate(timeout=20)
        assert front_end.returncode in (1, 3)
    (tmp_path / "workers.json").write_text("this is no record of processes")
    with running_supervisor(tmp_path) as supervisor:
        assert "workers.json.damaged" in supervisor.logged("state_file_set_aside")[0]["kept_as"]
        assert "hello" in supervisor.prompt("alice", "hello")


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")
@pytest.mark.parametrize("setting", ["true", "false"])
def test_workers_of_the_bundled_agent_are_forked_unless_the_settings_say_no(tmp_path: Path, setting: str) -> None:
    settings = f"[pool]\nmin = 0\nfork_server = {setting}\n"
    with running_supervisor(tmp_path, settings=settings) as running:
        assert "hello" in running.prompt("a", "hello")
        worker = running.worker_of("a")["pid"]
        servers = [child for child in psutil.Process(running.pid).children() if "agent.fork_server" in child.cmdline()]
        # a program that is executed gets a stack at a random place
        assert [_stack(server.pid) == _stack(worker) for server in servers] == ([True] if setting == "true" else [])
        assert running.logged("fork_server_lost") == []


def _stack(pid: int) -> str:
    """Where the first stack of the program begins."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[25]
