"""The real pi behind the pool: rebinding between conversations, kill -9 in mid-turn, nothing left behind."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.fake_openai import FakeOpenAI
from fixtures.pi_home import write_pi_home
from tests.acceptance.supervisor import Supervisor, gone_within, marked_processes, processes_with, running_supervisor

pytestmark = [pytest.mark.process, pytest.mark.real_pi]


@pytest.fixture
def supervisor(tmp_path: Path, pi_command: str) -> Iterator[Supervisor]:
    """A supervisor whose agent ``pi`` is the real one, at most one process, with the fake model."""
    server = FakeOpenAI()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    home = write_pi_home(tmp_path / "home", server.port)
    settings = tmp_path / "pool.toml"
    settings.write_text(
        f'[pool]\nmin = 0\nmax = 1\n[agents.pi]\ncommand = ["{pi_command}", "--mode", "rpc"]\ndialect = "pi"\n'
        f'agent_dir = "{home}"\nextra_args = ["--offline"]\n'
    )
    try:
        with running_supervisor(tmp_path / "data", "--config", str(settings)) as running:
            yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_conversations_share_one_process_and_remember(supervisor: Supervisor) -> None:
    assert "ECHO" not in supervisor.prompt("alice", "hello-alice", "-a", "pi")
    supervisor.prompt("bob", "hello-bob", "-a", "pi")
    recalled = supervisor.prompt("alice", "RECALL", "-a", "pi")
    assert "hello-alice" in recalled
    assert "hello-bob" not in recalled
    assert supervisor.status()["counters"]["spawned"] == 1


def test_a_pi_killed_in_mid_turn_fails_that_turn_and_the_next_one_remembers(supervisor: Supervisor) -> None:
    supervisor.prompt("alice", "remember-this", "-a", "pi")
    turn = supervisor.start("prompt", "-s", "alice", "-a", "pi", "HANG")
    os.kill(supervisor.wait_for_turn("alice")["pid"], signal.SIGKILL)
    _, words = turn.communicate(timeout=20)
    assert turn.returncode == 1
    assert "killed by signal 9" in words
    assert "remember-this" in supervisor.prompt("alice", "RECALL", "-a", "pi")


def test_a_killed_supervisor_takes_pi_and_its_tools_along(supervisor: Supervisor) -> None:
    turn = supervisor.start("prompt", "-s", "alice", "-a", "pi", "BASH:sleep 300")
    pi = supervisor.wait_for_turn("alice")["pid"]
    instance = supervisor.instance()
    processes = processes_with(instance, "sleep")
    os.kill(pi, signal.SIGSTOP)
    supervisor.signal(signal.SIGKILL)
    supervisor.wait()
    turn.communicate(timeout=20)
    assert gone_within(processes, 20.0)
    assert marked_processes(instance) == []
