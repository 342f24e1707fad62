"""``pool logs`` with a real supervisor and real workers: what is shown, followed, and found when all have ended."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import cli
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.commands.terminal import on_a_terminal

pytestmark = pytest.mark.process

TALKATIVE = f"""
[pool]
min = 0
max = 2
[agents.main]
command = ["{sys.executable}", "-c", '''
import sys, runpy
sys.stderr.write("hello from the agent \\u202e\\x1b[2J\\n")
sys.stderr.flush()
sys.argv = sys.argv[1:]
runpy.run_module("fixtures.echo_agent", run_name="__main__")
''', "echo_agent"]
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with running_supervisor(tmp_path, settings=TALKATIVE) as running:
        yield running


def test_what_workers_wrote_is_shown_with_their_names_and_of_one_alone(supervisor: Supervisor) -> None:
    assert supervisor.pool("logs").stderr == f"no line of any worker is kept in {supervisor.data_dir / 'logs'}\n"
    for session in ("a", "b"):
        supervisor.prompt(session, "x")
    every = supervisor.pool("logs").stdout
    assert [line.split(" ")[1:3] for line in every.splitlines() if "hello" in line] == [
        ["w1", "hello"],
        ["w2", "hello"],
    ]
    one = supervisor.pool("logs", "-s", "b").stdout.splitlines()
    assert [line.partition(" ")[2].partition(" (")[0] for line in one[:1]] == ["-- started"]
    assert "w1" not in "".join(one)
    (shown,) = [
        msgspec.json.decode(line) for line in supervisor.pool("logs", "w2", "--json", "-n1").stdout.splitlines()
    ]
    assert (shown["log"], shown["source"], shown["text"][:5]) == ("w2", "stderr", "hello")
    unknown = supervisor.pool("logs", "w9")
    assert unknown.returncode == 2
    assert "no log of a worker 'w9' is kept" in unknown.stderr
    assert "there are w1, w2" in unknown.stderr


ECHOING = f"""
[pool]
max = 1
[rpc]
log_bytes = "1KiB"
[agents.main]
command = ["sh", "-c", "tee /dev/stderr | {sys.executable} -m fixtures.echo_agent"]
"""


def test_a_follower_sees_each_line_once_over_rotation_and_how_the_worker_died_and_then_ends(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, settings=ECHOING) as supervisor:
        supervisor.prompt("a", "first")
        follower = supervisor.start("logs", "w1", "-f")
        assert follower.stdout is not None
        while "first" not in follower.stdout.readline():
            continue
        texts = [f"{number} {'x' * 300}" for number in range(20)]
        for text in texts:
            supervisor.prompt("a", text)
        assert (supervisor.data_dir / "logs" / "w1.log.1").exists()
        os.kill(supervisor.worker_of("a")["pid"], signal.SIGKILL)
        told, said = follower.communicate(timeout=30)
    assert (follower.returncode, said) == (0, "")
    assert [line for text in texts for line in told.splitlines() if f'"{text}"' in line] == [
        line for line in told.splitlines() if "xxx" in line
    ]
    assert told.count("x" * 300) == 20
    assert told.splitlines()[-1].endswith("-- ended: killed by signal 9; not by the pool (out of memory?)")


def test_a_follower_of_all_sees_workers_begin_and_ends_with_the_supervisor(supervisor: Supervisor) -> None:
    follower = supervisor.start("logs", "-f")
    assert follower.stderr is not None
    assert follower.stderr.readline().startswith("no line of any worker")
    supervisor.prompt("a", "x")
    assert supervisor.pool("stop").returncode == 0
    told, said = follower.communicate(timeout=30)
    assert "w1 hello from the agent" in told
    assert told.splitlines()[-1].endswith("w1 -- ended: exited with code 0; was stopped (drained)")
    assert said == "the supervisor has stopped, or restarts\n"


def test_after_a_kill_the_files_say_what_is_known_and_what_is_missing(supervisor: Supervisor) -> None:
    supervisor.prompt("a", "x")
    supervisor.kill()
    place = ("--data-dir", str(supervisor.data_dir))
    found = supervisor.pool("logs", "w1", "-f", *place)
    assert "hello from the agent" in found.stdout
    assert (found.returncode, found.stderr) == (0, "no supervisor runs: nothing more can come\n")
    assert "no end of w1 is recorded: its supervisor was killed" in supervisor.pool("logs", "w1", *place).stderr
    assert "ready socket=" in supervisor.pool("logs", "--supervisor", *place).stdout
    assert supervisor.pool("logs", "-s", "a", *place).returncode == 3


def test_the_supervisors_log_is_followed_to_its_end(supervisor: Supervisor) -> None:
    follower = supervisor.start("logs", "--supervisor", "-f", "--json")
    assert follower.stdout is not None
    assert msgspec.json.decode(follower.stdout.readline())["event"] == "ready"
    assert supervisor.pool("stop").returncode == 0
    told, _ = follower.communicate(timeout=30)
    assert msgspec.json.decode(told.splitlines()[-1])["event"] == "pool_closed"


def test_settings_that_became_invalid_hide_no_log_of_a_supervisor_that_runs(supervisor: Supervisor) -> None:
    settings = supervisor.data_dir / "pool.toml"
    settings.write_text(f"{settings.read_text()}\n[nonsense]\n")
    place = ["--config", str(settings), "--data-dir", str(supervisor.data_dir)]
    done = CliRunner(env={"POOL_SOCKET": None}).invoke(cli.main, ["logs", "--supervisor", *place])
    assert (done.exit_code, "ready socket=" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal_no_control_code_of_a_worker_arrives(supervisor: Supervisor, columns: int) -> None:
    supervisor.prompt("a", "x")
    command = [sys.executable, "-P", "-m", "cli", "logs", "w1", "--socket", str(supervisor.socket)]
    with on_a_terminal(command, columns, NO_COLOR="1") as terminal:
        shown = terminal.read_until("hello from the agent \\u202e\\x1b[2J\n")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
