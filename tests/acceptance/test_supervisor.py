"""The whole house with real processes: ``pool run`` in one terminal, ``pool`` commands in another, and kill -9."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from doors.control.client import ControlClient
from errors import RequestTimeout
from fixtures.hostile_agent import COMMAND
from tests.acceptance.supervisor import (
    POOL,
    Supervisor,
    gated,
    gone_within,
    marked_processes,
    processes_with,
    running_supervisor,
)

pytestmark = pytest.mark.process


def test_prompts_stream_and_sessions_remember_whoever_serves_them(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        assert "hello" in supervisor.prompt("alice", "hello")
        assert "good morning" in supervisor.prompt("bob", "good morning")
        recalled = supervisor.prompt("alice", "RECALL")
    assert "hello" in recalled
    assert "good morning" not in recalled


def test_the_status_agrees_with_the_process_table(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "3") as supervisor:
        for session in ("a", "b", "c", "d"):
            supervisor.prompt(session, "hello")
        status = supervisor.status()
        workers = [child for child in psutil.Process(supervisor.process.pid).children() if "agent" in child.cmdline()]
    assert {worker["pid"] for worker in status["workers"]} == {child.pid for child in workers}
    assert status["pool"]["total"] == len(workers) <= 3
    assert status["counters"]["releases"] + status["counters"]["lost"] + status["counters"]["active"] == 4


def test_a_killed_worker_fails_its_turn_in_clear_words_and_the_session_goes_on(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.prompt("alice", "remember-this")
        turn = supervisor.start("prompt", "-s", "alice", "HANG")
        os.kill(supervisor.wait_for_turn("alice")["pid"], signal.SIGKILL)
        _, words = turn.communicate(timeout=20)
        assert turn.returncode == 1
        assert "killed by signal 9" in words
        assert "Traceback" not in words
        assert "remember-this" in supervisor.prompt("alice", "RECALL")


def test_what_goes_wrong_in_a_session_is_in_the_log_too(tmp_path: Path) -> None:
    settings = tmp_path / "pool.toml"
    settings.write_text(f"[agents.main]\ncommand = {[*COMMAND, '--behaviour=refuse', '--on=compact']}\n")
    with running_supervisor(tmp_path, "--config", str(settings)) as supervisor:
        supervisor.prompt("alice", "/compact")
        supervisor.wait_for_log("error")
        (line,) = [line for line in supervisor.log if '"event":"error"' in line]
    told = msgspec.json.decode(line)
    assert (told["level"], told["session"], told["phase"]) == ("warning", "alice", "model")
    assert "not summarised" in told["message"]


def test_a_front_end_that_is_killed_does_not_end_its_run(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with running_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", f"first-of-all {gated(gate)}")
        supervisor.wait_for_turn("alice")
        turn.kill()
        turn.communicate(timeout=20)
        gate.touch()
        assert "first-of-all" in supervisor.prompt("alice", "RECALL")


def test_an_interrupted_prompt_aborts_its_turn(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        turn = supervisor.start("prompt", "-s", "alice", "HANG")
        supervisor.wait_for_turn("alice")
        turn.send_signal(signal.SIGINT)
        turn.communicate(timeout=20)
        assert turn.returncode == 130
        assert "hello" in supervisor.prompt("alice", "hello", "--timeout", "20s")


def test_a_prompt_without_a_supervisor_says_where_it_looked(tmp_path: Path) -> None:
    socket = tmp_path / "nobody.sock"
    done = subprocess.run(
        [*POOL, "prompt", "--socket", str(socket), "-s", "a", "hi"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 3
    assert str(socket) in done.stderr
    assert "pool run" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_second_supervisor_on_the_same_data_directory_is_refused(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as first:
        second = Supervisor(tmp_path)
        assert second.wait() == 1
        assert str(first.process.pid) in "".join(second.log)
        assert "hello" in first.prompt("alice", "hello")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.prompt("alice", "hello")
        instance = supervisor.instance()
        supervisor.signal(number)
        assert supervisor.wait() == 0
        assert marked_processes(instance) == []
        assert not supervisor.socket.exists()


_IN_A_TERMINAL = [
    sys.executable,
    "-c",
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


@pytest.mark.parametrize("wrapper", [[], ["nohup"]])
def test_a_hang_up_without_a_terminal_does_not_stop_it(tmp_path: Path, wrapper: list[str]) -> None:
    with running_supervisor(tmp_path, wrapper=wrapper) as supervisor:
        supervisor.signal(signal.SIGHUP)
        assert "hello" in supervisor.prompt("alice", "hello")
        assert supervisor.process.poll() is None


def test_a_socket_whose_file_was_removed_is_bound_anew_at_a_hang_up(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.socket.unlink()
        assert supervisor.pool("status").returncode == 3
        supervisor.signal(signal.SIGHUP)
        supervisor.wait_for_log("socket_bound_anew")
        assert "hello" in supervisor.prompt("alice", "hello")


def test_a_stop_lets_a_turn_end_and_a_second_signal_hurries(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with running_supervisor(tmp_path) as supervisor:
        polite = supervisor.start("prompt", "-s", "alice", gated(gate))
        supervisor.wait_for_turn("alice")
        stop = supervisor.start("stop")
        supervisor.wait_for_log("stopping")
        gate.touch()
        stop.communicate(timeout=20)
        assert stop.returncode == 0
        polite.communicate(timeout=20)
        assert polite.returncode == 0
    with running_supervisor(tmp_path) as supervisor:
        endless = supervisor.start("prompt", "-s", "alice", "HANG")
        supervisor.wait_for_turn("alice")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("stopping")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
        endless.communicate(timeout=20)
        assert endless.returncode == 1


def test_a_signal_while_the_workers_end_does_not_end_the_supervisor_before_them(tmp_path: Path) -> None:
    clinging = [*COMMAND, *(f"--behaviour={name}" for name in ("no-answer", "ignore-eof", "ignore-sigterm"))]
    settings = tmp_path / "pool.toml"
    settings.write_text(f'[agents.main]\ncommand = {clinging}\n[log]\nlevel = "debug"\n')
    with running_supervisor(tmp_path, "--config", str(settings)) as supervisor:
        unanswered = supervisor.start("prompt", "-s", "alice", "hello")
        supervisor.wait_for_turn("alice")
        instance = supervisor.instance()
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("stopping")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("session_parked")  # the whole kill ladder lies ahead: three seconds at least
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
        assert marked_processes(instance) == []
        unanswered.communicate(timeout=20)


def test_a_killed_supervisor_leaves_no_worker_and_no_tool_of_theirs(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        tool = 'TOOL:exec {"command": "setsid sleep 300 & echo started; sleep 300"}'
        with_tool = supervisor.start("prompt", "-s", "tool", tool)
        suspended = supervisor.start("prompt", "-s", "suspended", "HANG")
        supervisor.wait_for_turn("tool")
        os.kill(supervisor.wait_for_turn("suspended")["pid"], signal.SIGSTOP)
        instance = supervisor.instance()
        processes = processes_with(instance, "sleep", 2)
        supervisor.signal(signal.SIGKILL)
        supervisor.wait()
        assert gone_within(processes, 20.0)
        assert marked_processes(instance) == []
        for front_end in (with_tool, suspended):
            front_end.communicate(timeout=20)
            assert front_end.returncode in (1, 3)


def test_the_next_supervisor_starts_after_a_kill_and_serves(tmp_path: Path) -> None:
    with running_supervisor(tmp_path) as supervisor:
        supervisor.prompt("alice", "hello")
        supervisor.signal(signal.SIGKILL)
        supervisor.wait()
    with running_supervisor(tmp_path) as supervisor:
        assert "hello" in supervisor.prompt("alice", "hello")


def test_an_agent_that_cannot_start_is_explained_and_others_are_unharmed(tmp_path: Path) -> None:
    settings = tmp_path / "pool.toml"
    settings.write_text(
        '[pool]\nbackoff_min = "10ms"\nbackoff_max = "50ms"\n'
        '[agents.missing]\ncommand = ["/nonexistent/agent"]\n'
        '[agents.badflag]\nextra_args = ["--frobnicate"]\n'
    )
    with running_supervisor(tmp_path / "data", "--config", str(settings)) as supervisor:
        missing = supervisor.pool("prompt", "-s", "a", "-a", "missing", "hi")
        flag = supervisor.pool("prompt", "-s", "b", "-a", "badflag", "hi")
        assert missing.returncode == flag.returncode == 1
        assert "/nonexistent/agent" in missing.stderr
        assert "--frobnicate" in flag.stderr
        assert "hello" in supervisor.prompt("c", "hello")


def test_a_worker_is_stopped_and_recycled_on_demand(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, "--max", "1") as supervisor:
        supervisor.prompt("alice", "hello")
        (worker,) = supervisor.status()["workers"]
        assert supervisor.pool("worker", "recycle", worker["id"]).returncode == 0
        assert "hello" in supervisor.prompt("alice", "RECALL")
        unknown = supervisor.pool("worker", "stop", "w999")
        assert unknown.returncode == 2
        assert "w999" in unknown.stderr


def test_a_suspended_supervisor_is_given_up_by_who_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doors.control.client_socket._SUSPENDED_CHECK_SECONDS", 0.2)
    with running_supervisor(tmp_path) as supervisor, ControlClient(supervisor.socket) as client:
        slow = {"session": "alice", "text": "ECHO:hello", "queue": "followup"}
        assert client.call("prompt", {**slow, "text": "PIECES=1 DELAY=1500"}, timeout=None)["status"] == "ok"
        supervisor.signal(signal.SIGSTOP)
        try:
            with pytest.raises(RequestTimeout, match=f"suspended by a signal.*kill -CONT {supervisor.process.pid}"):
                client.call("prompt", {**slow, "run": "k1"}, timeout=None)
        finally:
            supervisor.signal(signal.SIGCONT)
        assert client.call("agent.wait", {"run_id": "k1", "timeout_ms": 20_000}, timeout=None)["text"] == "hello"
