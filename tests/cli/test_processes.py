"""The command line with a real supervisor and a fake worker program, each in a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from commands.demo import SupervisorProcess

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
    assert supervisor.wait(20) == 0
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
        prompt.communicate(timeout=20)
    assert prompt.returncode == 130
    with supervisor.connect() as client:
        assert client.call("prompt", {"session": "a", "text": "next"}, timeout=20)["text"].startswith("echo: next")


@pytest.mark.process
def test_a_reader_that_leaves_early_sees_one_line(supervisor: SupervisorProcess) -> None:
    command = [*POOL, "status", "--json", "--socket", str(supervisor.socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as status:
        assert status.stdout is not None
        assert status.stderr is not None
        status.stdout.close()
        assert status.stderr.read() == b"pool: cannot write: Broken pipe\n"
    assert status.returncode == 1


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize(
    "command",
    [["prompt", "-s", "a", "hi"], ["prompt", "-s", "a", "--detach", "hi"], ["status"], ["pause"], ["status", "--help"]],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_clear_line(
    supervisor: SupervisorProcess, command: list[str], unbuffered: str
) -> None:
    words = [*POOL, command[0], "--socket", str(supervisor.socket), *command[1:]]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False, env=env)
    assert (done.returncode, done.stderr) == (1, "pool: cannot write: No space left on device\n")


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_help_too_says_in_one_line_that_it_cannot_be_written(argument: str, unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [*POOL, argument]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False, env=env)
    assert (done.returncode, done.stderr) == (1, "pool: cannot write: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as left:
        done = subprocess.run(command, stdout=left, stderr=subprocess.PIPE, text=True, timeout=20, check=False, env=env)
    assert (done.returncode, done.stderr) == (1, "pool: cannot write: Broken pipe\n")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pool-") as name:
        yield Path(name)


def start(supervisor: SupervisorProcess, *args: str) -> subprocess.Popen[str]:
    """A command that goes on."""
    command = [*POOL, *args, "--socket", str(supervisor.socket)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.process
def test_events_are_followed_over_a_restart_without_a_gap_or_a_repetition(folder: Path) -> None:
    with SupervisorProcess(folder, ECHO) as supervisor:
        assert pool(supervisor, "prompt", "-s", "a", "one").returncode == 0
        with start(supervisor, "events", "follow", "--json", "--type", "done", "--since", "0") as events:
            assert events.stdout is not None
            assert events.stderr is not None
            seen = [msgspec.json.decode(events.stdout.readline())]
            assert pool(supervisor, "stop").returncode == 0
            assert "went away" in events.stderr.readline()
            with SupervisorProcess(folder, ECHO) as again:
                assert "is back" in events.stderr.readline()
                assert pool(again, "prompt", "-s", "a", "two").returncode == 0
                seen.append(msgspec.json.decode(events.stdout.readline()))
                events.send_signal(2)
                rest, said = events.communicate(timeout=20)
    assert [event["data"]["text"] for event in seen] == ["echo: one", "echo: two | before: one"]
    assert (rest, events.returncode) == ("", 130)
    again_from = f"--type done --json --socket {supervisor.socket} --since {seen[-1]['seq']}"
    assert said == f"to continue from here: pool events follow {again_from}\n"


@pytest.mark.process
def test_a_prompt_whose_supervisor_is_killed_tells_how_to_ask_for_its_outcome(folder: Path) -> None:
    with SupervisorProcess(folder, ECHO) as supervisor:
        with start(supervisor, "prompt", "-s", "a", "--key", "k1", "--json", "wait") as prompt:
            assert prompt.stdout is not None
            while "run:start" not in prompt.stdout.readline():
                assert prompt.poll() is None
            os.kill(supervisor.pid, signal.SIGKILL)
            _, said = prompt.communicate(timeout=20)
        assert prompt.returncode == 1
        *_, look = said.strip().partition("get its outcome with: ")
        assert look == f"pool wait --socket {supervisor.socket} -s a k1"
    with SupervisorProcess(folder, ECHO):
        told = subprocess.run([*POOL, *look.split()[1:]], capture_output=True, text=True, timeout=20, check=False)
    assert told.returncode == 1
    assert "the supervisor ended while run k1 of session a was in its turn" in told.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("make", "command", "complaint"),
    [
        ("mkdir gone; cd gone; rmdir ../gone", "status", "the working directory does not exist any more"),
        ("mkdir gone; cd gone; rmdir ../gone", "config check", "the working directory does not exist any more"),
        ("mkdir gone; cd gone; rmdir ../gone", "attach --mode rpc", "the working directory does not exist any more"),
        ("", r"run --data-dir $'caf\xe9'", r"caf\udce9' has a name that is not UTF-8 text; name another one with"),
        ("", r"status --data-dir $'caf\xe9'", r"caf\udce9' has a name that is not UTF-8 text"),
    ],
)
def test_a_directory_that_is_gone_or_has_no_name_in_text_is_told_in_a_sentence(
    tmp_path: Path, make: str, command: str, complaint: str
) -> None:
    script = f'{make}\nexec "$0" -P -m cli {command}'
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
    ended = subprocess.run(
        ["/bin/bash", "-c", script, sys.executable], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert ended.stderr.startswith("pool: ")
    assert ended.stderr.count("\n") == 1
