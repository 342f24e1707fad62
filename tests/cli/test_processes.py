"""The command line with a real supervisor and a fake worker program, each in a process of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from doors.supervisor_process import SupervisorProcess

ECHO = f"""
[pool]
max = 1
[agents.main]
command = ["{sys.executable}", "-m", "fixtures.echo_agent"]
"""
POOL = [sys.executable, "-P", "-m", "cli"]


@pytest.fixture
def supervisor() -> Iterator[SupervisorProcess]:
    with tempfile.TemporaryDirectory(prefix="pool-") as folder, SupervisorProcess(Path(folder), ECHO) as running:
        yield running


def pool(supervisor: SupervisorProcess, *args: str) -> subprocess.CompletedProcess[str]:
    command = [*POOL, args[0], "--socket", str(supervisor.socket), *args[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.process
def test_a_supervisor_serves_prompts_and_is_stopped_from_the_command_line(supervisor: SupervisorProcess) -> None:
    assert pool(supervisor, "prompt", "-s", "a", "hello").stdout == "echo: hello\n"
    assert pool(supervisor, "prompt", "-s", "a", "again").stdout == "echo: again | before: hello\n"
    assert "1 active" in pool(supervisor, "status").stdout
    stopped = pool(supervisor, "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "the supervisor has stopped\n")
    assert supervisor.wait(0.5) == 0
    assert not supervisor.socket.exists()
    assert pool(supervisor, "status").returncode == 3


@pytest.mark.process
def test_a_second_supervisor_on_the_same_data_directory_is_told_who_is_first(supervisor: SupervisorProcess) -> None:
    other = ["--data-dir", str(supervisor.data_dir), "--socket", f"{supervisor.socket}2"]
    second = subprocess.run([*POOL, "run", *other], capture_output=True, text=True, timeout=20, check=False)
    assert second.returncode == 1
    assert f"the supervisor with pid {supervisor.pid} already serves the data directory" in second.stderr
    assert str(supervisor.socket) in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.process
def test_a_supervisor_is_found_by_its_data_directory_wherever_its_socket_is(
    supervisor: SupervisorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POOL_SOCKET", raising=False)
    found = [*POOL, "workers", "--json", "--data-dir", str(supervisor.data_dir)]
    done = subprocess.run(found, capture_output=True, text=True, timeout=20, check=True)
    assert isinstance(msgspec.json.decode(done.stdout), list)


@pytest.mark.process
def test_an_interrupted_prompt_aborts_its_run_and_exits_130(supervisor: SupervisorProcess) -> None:
    command = [*POOL, "prompt", "--socket", str(supervisor.socket), "-s", "a", "--json", "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as prompt:
        assert prompt.stdout is not None
        assert "type" in prompt.stdout.readline()
        prompt.send_signal(2)
        prompt.communicate(timeout=10)
    assert prompt.returncode == 130
    with supervisor.connect() as client:
        assert client.call("prompt", {"session": "a", "text": "next"}, timeout=5)["text"].startswith("echo: next")


@pytest.mark.process
def test_a_reader_that_leaves_early_sees_no_stack_trace(supervisor: SupervisorProcess) -> None:
    command = [*POOL, "status", "--json", "--socket", str(supervisor.socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as status:
        assert status.stdout is not None
        assert status.stderr is not None
        status.stdout.close()
        assert status.stderr.read() == b""
