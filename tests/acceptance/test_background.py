"""A supervisor in the background, one that starts again in place, and one that gets more workers while it runs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from app.child import child_environment
from doors.control.client import ControlClient
from doors.locations import read_lock_holder
from tests.acceptance.supervisor import Supervisor, running_supervisor

pytestmark = pytest.mark.process


class Place:
    """A data directory, and ``pool`` commands for its supervisor."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.socket = self.data / "control.sock"

    def pool(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "cli", *words, "--data-dir", str(self.data)]
        env = {**child_environment(), "XDG_RUNTIME_DIR": ""}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=100)

    @property
    def pid(self) -> int | None:
        holder = read_lock_holder(self.data)
        return None if holder is None else holder.pid


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path)
    yield here
    if here.pid is not None:
        os.kill(here.pid, signal.SIGKILL)


def test_a_detached_supervisor_serves_when_the_command_returns_and_has_let_go_of_its_terminal(place: Place) -> None:
    begun = place.pool("run", "--detach", "--max", "2")
    assert (begun.returncode, begun.stderr) == (0, "")
    assert f"(pid {place.pid})" in begun.stdout
    assert f"pool stop --data-dir {place.data}" in begun.stdout
    with ControlClient(place.socket) as client:
        assert client.call("status")["pool"]["max"] == 2
    process = psutil.Process(place.pid)
    assert os.getsid(process.pid) == process.pid
    assert "--detach" not in process.cmdline()
    log = place.data / "logs" / "supervisor.log"
    assert [Path(f"/proc/{process.pid}/fd/{fd}").resolve() for fd in (0, 1, 2)] == [Path(os.devnull), log, log]
    assert place.pool("logs", "--supervisor").stdout.count("ready socket=") == 1
    assert place.pool("stop").returncode == 0
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # of a parent that reaps none


def test_a_detached_supervisor_that_cannot_start_is_reported_in_its_own_words(place: Place) -> None:
    assert place.pool("run", "--detach").returncode == 0
    again = place.pool("run", "--detach")
    assert again.returncode == 1
    assert again.stderr.startswith(f"pool: the supervisor with pid {place.pid} already serves the data directory")
    assert place.pool("stop").returncode == 0
    assert place.pool("run", "--detach", "--max", "0").returncode == 2, "settings are looked at before"


@pytest.mark.parametrize("begin", ["the background", "a terminal"])
def test_a_restart_drains_and_starts_the_same_command_in_the_same_process(place: Place, begin: str) -> None:
    if begin == "a terminal":
        with running_supervisor(place.data, "--max", "3") as supervisor:
            _restart(place, supervisor.pid)
            supervisor.wait_for_log("ready", 2)
            supervisor.socket.unlink()
            supervisor.signal(signal.SIGHUP)  # it is not ignored, as the first life left it
            supervisor.wait_for_log("socket_bound_anew")
            supervisor.prompt("a", "hello again")
            supervisor.signal(signal.SIGTERM)
            assert supervisor.wait() == 0
    else:
        assert place.pool("run", "--detach", "--max", "3").returncode == 0
        _restart(place, place.pid)
        assert place.pool("stop").returncode == 0


def _restart(place: Place, pid: int | None) -> None:
    assert place.pool("prompt", "-s", "a", "remember-this").returncode == 0
    assert place.pool("scale", "5").returncode == 0
    done = place.pool("restart")
    assert (done.returncode, done.stdout) == (0, "the supervisor has restarted\n"), done.stderr
    assert place.pid == pid
    status = msgspec.json.decode(place.pool("status", "--json").stdout)
    assert status["pool"]["max"] == 3, "what `scale` said is over"
    assert status["supervisor"]["pid"] == pid
    assert "remember-this" in place.pool("prompt", "-s", "a", "RECALL").stdout


def test_a_restart_is_refused_while_the_settings_have_an_error_and_told_where_the_start_fails(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, settings="[pool]\nmax = 2\n") as supervisor:
        (tmp_path / "pool.toml").write_text("[pool]\nmax = 0\n")
        refused = supervisor.pool("restart")
        assert refused.returncode == 2
        assert "pool.max" in refused.stderr
        assert "hello" in supervisor.prompt("a", "hello"), "it goes on"
        (tmp_path / "pool.toml").write_text("[pool]\nmax = 2\n")
        hooks = tmp_path / "hooks.py"
        hooks.write_text("raise SystemExit(7)\n")
        (tmp_path / "pool.toml").write_text(f'[gateway]\nhooks = "{hooks}"\n')
        failed = supervisor.pool("restart")
        assert failed.returncode == 1
        assert "did not start again" in failed.stderr


def test_more_workers_at_once_also_after_a_reload_and_nothing_that_contradicts(supervisor: Supervisor) -> None:
    scaled = supervisor.pool("scale", "2")
    assert "pool.max: 1 -> 2, until the supervisor ends" in scaled.stdout
    assert supervisor.pool("reload").stdout == "changed: nothing\n"
    assert supervisor.status()["pool"]["max"] == 2
    for session in ("a", "b"):
        supervisor.prompt(session, "x")
    assert supervisor.status()["pool"]["total"] == 2
    assert supervisor.pool("scale", "1").returncode == 0
    refused = supervisor.pool("scale", "90000")
    assert refused.returncode == 2
    assert "pool.max = 90000" in refused.stderr
    assert supervisor.status()["pool"]["max"] == 1


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path, "--max", "1") as running:
        yield running
