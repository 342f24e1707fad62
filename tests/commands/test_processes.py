"""The command line with a real supervisor and a fake worker program, each in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from app.child import SupervisorProcess
from pool import __version__

pytestmark = pytest.mark.process

ECHO = f'[pool]\nmax = 1\n[agents.main]\ncommand = ["{sys.executable}", "-m", "fixtures.echo_agent"]\n'
POOL = [sys.executable, "-P", "-m", "cli"]
NO_SPACE, BROKEN = "pool: cannot write: No space left on device\n", "pool: cannot write: Broken pipe\n"


def run(*words: str, env: dict[str, str] | None = None, **options: int) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    env = {**os.environ, **(env or {})}
    return subprocess.run([*POOL, *words], text=True, timeout=20, check=False, env=env, **pipes)  # type: ignore[call-overload, no-any-return]  # options are file numbers


def pool(supervisor: SupervisorProcess, *args: str) -> subprocess.CompletedProcess[str]:
    return run(args[0], "--socket", str(supervisor.socket), *args[1:])


def start(supervisor: SupervisorProcess, *args: str) -> subprocess.Popen[str]:
    """A command that goes on."""
    command = [*POOL, *args, "--socket", str(supervisor.socket)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisorProcess]:
    """One for all tests that do not end it."""
    with SupervisorProcess(tmp_path_factory.mktemp("p"), ECHO) as running:
        yield running


def test_the_package_is_the_command_and_knows_its_version() -> None:
    command = [sys.executable, "-P", "-m", "pool", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (f"pool, version {__version__}\n", "")


def test_a_second_supervisor_is_told_who_is_first_which_is_found_by_its_data_directory(
    supervisor: SupervisorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = run("run", "--data-dir", str(supervisor.data_dir), "--socket", f"{supervisor.socket}2")
    assert (second.returncode, "Traceback" in second.stderr) == (1, False)
    assert f"the supervisor with pid {supervisor.pid} already serves the data directory" in second.stderr
    assert str(supervisor.socket) in second.stderr
    monkeypatch.delenv("POOL_SOCKET", raising=False)
    found = run("workers", "--json", "--data-dir", str(supervisor.data_dir))
    assert isinstance(msgspec.json.decode(found.stdout), list), found.stderr


def test_an_interrupted_prompt_aborts_its_run_and_exits_130(supervisor: SupervisorProcess) -> None:
    with start(supervisor, "prompt", "-s", "a", "--json", "wait") as prompt:
        assert prompt.stdout is not None
        assert "type" in prompt.stdout.readline()
        prompt.send_signal(signal.SIGINT)
        prompt.communicate(timeout=20)
    assert prompt.returncode == 130
    with supervisor.connect() as client:
        assert client.call("prompt", {"session": "a", "text": "next"}, timeout=20)["text"].startswith("echo: next")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        (["prompt", "-s", "b", "hi"], ""),
        (["prompt", "-s", "b", "--detach", "hi"], ""),
        (["status"], "1"),
        (["pause", "--help"], ""),
        (["--help"], "1"),
        (["--version"], ""),
    ],
)
def test_output_that_cannot_be_written_is_one_clear_line(
    supervisor: SupervisorProcess, command: list[str], unbuffered: str
) -> None:
    env = {"PYTHONUNBUFFERED": unbuffered, "POOL_SOCKET": str(supervisor.socket)}
    with Path("/dev/full").open("w") as full:
        done = run(*command, env=env, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (1, NO_SPACE)


@pytest.mark.parametrize("command", [["--help"], ["status", "--json"]])
def test_a_reader_that_has_left_is_one_clear_line(supervisor: SupervisorProcess, command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as left:
        done = run(*command, env={"POOL_SOCKET": str(supervisor.socket)}, stdout=left.fileno())
    assert (done.returncode, done.stderr) == (1, BROKEN)


def test_events_are_followed_over_a_stop_and_a_restart_without_a_gap_or_a_repetition(short_dir: Path) -> None:
    with SupervisorProcess(short_dir, ECHO) as supervisor:
        assert pool(supervisor, "prompt", "-s", "a", "one").stdout == "echo: one\n"
        assert "1 idle" in pool(supervisor, "status").stdout
        with start(supervisor, "events", "follow", "--json", "--type", "done", "--since", "0") as events:
            assert events.stdout is not None
            assert events.stderr is not None
            seen = [msgspec.json.decode(events.stdout.readline())]
            stopped = pool(supervisor, "stop")
            assert (stopped.returncode, stopped.stdout) == (0, "the supervisor has stopped\n")
            assert (supervisor.wait(20), supervisor.socket.exists()) == (0, False)
            assert pool(supervisor, "status").returncode == 3
            assert "went away" in events.stderr.readline()
            with SupervisorProcess(short_dir, ECHO) as again:
                assert "is back" in events.stderr.readline()
                assert pool(again, "prompt", "-s", "a", "two").stdout == "echo: two | before: one\n"
                seen.append(msgspec.json.decode(events.stdout.readline()))
                events.send_signal(signal.SIGINT)
                rest, said = events.communicate(timeout=20)
    assert [event["data"]["text"] for event in seen] == ["echo: one", "echo: two | before: one"]
    assert (rest, events.returncode) == ("", 130)
    again_from = f"--type done --json --socket {supervisor.socket} --since {seen[-1]['seq']}"
    assert said == f"to continue from here: pool events follow {again_from}\n"


def test_a_prompt_whose_supervisor_is_killed_tells_how_to_ask_for_its_outcome(short_dir: Path) -> None:
    with SupervisorProcess(short_dir, ECHO) as supervisor:
        with start(supervisor, "prompt", "-s", "a", "--key", "k1", "--json", "wait") as prompt:
            assert prompt.stdout is not None
            while "run:start" not in prompt.stdout.readline():
                assert prompt.poll() is None
            os.kill(supervisor.pid, signal.SIGKILL)
            _, said = prompt.communicate(timeout=20)
        assert prompt.returncode == 1
        *_, look = said.strip().partition("get its outcome with: ")
        assert look == f"pool wait --socket {supervisor.socket} -s a k1"
    with SupervisorProcess(short_dir, ECHO):
        waited = run(*look.split()[1:])
    assert waited.returncode == 1
    assert "the supervisor ended while run k1 of session a was in its turn" in waited.stderr


GONE = "mkdir gone; cd gone; rmdir ../gone"


@pytest.mark.parametrize(
    ("make", "command", "complaint"),
    [
        (GONE, "status", "the working directory does not exist any more"),
        (GONE, "config check", "the working directory does not exist any more"),
        (GONE, "attach --mode rpc", "the working directory does not exist any more"),
        ("", r"run --data-dir $'caf\xe9'", r"caf\udce9' has a name that is not UTF-8 text; name another one with"),
        ("", r"status --data-dir $'caf\xe9'", r"caf\udce9' has a name that is not UTF-8 text"),
    ],
)
def test_a_directory_that_is_gone_or_has_no_name_in_text_is_told_in_a_sentence(
    tmp_path: Path, make: str, command: str, complaint: str
) -> None:
    script = ["/bin/bash", "-c", f'{make}\nexec "$0" -P -m cli {command}', sys.executable]
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOL_")}
    ended = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (ended.returncode, complaint in ended.stderr) == (2, True)
    assert (ended.stderr.startswith("pool: "), ended.stderr.count("\n")) == (True, 1)


def test_nothing_is_imported_while_it_serves(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    token = "a-token-for-this-test-alone"
    settings = f'{ECHO}[http]\nbind = "127.0.0.1:0"\ntoken = "{token}"\n'
    with SupervisorProcess(short_dir, settings, log_lines=None) as supervisor, supervisor.connect() as client:
        url = client.call("status")["supervisor"]["http"]["url"]
        client.call("prompt", {"session": "alice", "text": "hi", "run": "k1"})
        for method in ("sessions.list", "heartbeat.status", "cron.list", "config.get", "reload"):
            client.call(method)
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=20) as web:
            for page in ("/", "/health", "/metrics", "/v1/models"):
                assert web.get(page).status_code == 200
            question = {"model": "main", "messages": [{"role": "user", "content": "hi"}]}
            assert web.post("/v1/chat/completions", json=question).status_code == 200
    events = [next(iter(re.findall(r'"event":"(\w+)"', line)), "") for line in supervisor.log]
    served = supervisor.log[events.index("ready") : events.index("stopping")]
    assert any(line.startswith("import time:") for line in supervisor.log)
    assert [line for line in served if line.startswith("import time:")] == []


def test_garbage_is_collected_as_soon_as_it_serves(short_dir: Path) -> None:
    hooks, found = short_dir / "hooks.py", short_dir / "found"
    hooks.write_text(
        "import gc\nfrom pathlib import Path\nfrom gateway.hooks import hook\n"
        f"@hook('gateway:start')\ndef note(_event): Path({str(found)!r}).write_text(str(gc.isenabled()))\n"
    )
    with SupervisorProcess(short_dir, f'{ECHO}[gateway]\nhooks = "{hooks}"\n'):
        assert found.read_text() == "True"
