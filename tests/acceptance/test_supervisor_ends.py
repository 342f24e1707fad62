"""How a supervisor stops with work at hand, and how it takes up other settings: what runs, what waits, what is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.child import run_command
from doors.control.client import ControlClient
from errors import NoSupervisor, PoolClosed, PoolError, SettingsRefused
from tests.acceptance.supervisor import Lives, Supervisor, gated, running_supervisor, tool

pytestmark = pytest.mark.process


@contextmanager
def lives_in(tmp_path: Path, settings: str) -> Iterator[Lives]:
    lives = Lives(tmp_path, settings)
    try:
        yield lives
    finally:
        lives.stop()


def one_runs_and_three_wait(supervisor: Supervisor, text: str) -> None:
    """``k0`` is in its turn on the only worker; ``k1`` and ``k2`` wait behind it, ``k3`` for the worker."""
    supervisor.begin("alice", text, run="k0")
    with supervisor.following("run:start") as starts:
        assert next(starts)["run_id"] == "k0"
    for key, session in (("k1", "alice"), ("k2", "alice"), ("k3", "bob")):
        supervisor.begin(session, f"ECHO:{key}", run=key, queue="followup")


def check_next_life(lives: Lives, reason: str) -> None:
    """``k0`` has ended for this reason; what waited is run, once, in its order; a key still stands for its run."""
    supervisor = lives.living()
    assert [supervisor.outcome(key)["text"] for key in ("k1", "k2", "k3")] == ["k1", "k2", "k3"]
    ends = [(event["run_id"], event["data"]["reason"]) for event in supervisor.told("done")]
    assert sorted(ends) == [("k0", reason), ("k1", "completed"), ("k2", "completed"), ("k3", "completed")]
    starts = [event["run_id"] for event in supervisor.told("run:start")]
    assert sorted(starts) == ["k0", "k1", "k2", "k3"]
    assert starts.index("k1") < starts.index("k2")
    assert supervisor.begin("alice", "ECHO:k1", run="k1", queue="followup") == "k1"
    assert (supervisor.outcome("k1")["text"], len(supervisor.told("done"))) == ("k1", 4)


def test_a_stop_lets_the_turn_end_and_leaves_what_waits_to_the_next_life(tmp_path: Path) -> None:
    with lives_in(tmp_path, "[pool]\nmax = 1\n") as lives:
        supervisor = lives.living()
        one_runs_and_three_wait(supervisor, f"{gated(tmp_path / 'gate')} ECHO:to-the-end")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("stopping")
        with pytest.raises(PoolClosed):
            supervisor.begin("carol", "too late", run="k9")
        (tmp_path / "gate").touch()
        assert supervisor.wait() == 0
        check_next_life(lives, "completed")
        assert lives.living().outcome("k0")["text"] == "to-the-end"


def test_a_turn_that_a_second_signal_ends_is_told_as_interrupted(tmp_path: Path) -> None:
    with lives_in(tmp_path, "[pool]\nmax = 1\n") as lives:
        supervisor = lives.living()
        one_runs_and_three_wait(supervisor, "HANG")
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for_log("stopping")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
        check_next_life(lives, "interrupted")


def test_a_stop_says_for_whom_it_waits_and_leaves_no_question_open(tmp_path: Path) -> None:
    text = '[pool]\nmax = 1\ndrain_timeout = "1s"\n[agents.main]\nrequire_approval = ["exec"]\n'
    with running_supervisor(tmp_path, settings=text) as supervisor:
        with supervisor.following("permission_required", "tool:error", "done") as events:
            supervisor.begin("alice", tool("echo no"))
            assert next(events)["type"] == "permission_required"
            told = supervisor.pool("stop").stderr
            with suppress(NoSupervisor):
                ends = {event["type"]: event["data"] for event in events}
        assert supervisor.wait() == 0
        assert "waits for session alice: a turn on worker w1" in told
        assert "which waits for a person (pool approve -s alice" in told
        assert supervisor.logged("stopping")[0]["waits_for"][0].startswith("session alice")
        assert ends["done"]["error"]["code"] == "interrupted"
        assert "ended before it was done" in ends["tool:error"]["error"]


SIGNALLED_AT_THE_END = """
import atexit, runpy, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):
    atexit.register(signal.raise_signal, number)
sys.argv = sys.argv[4:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


def test_a_signal_that_comes_when_all_is_done_changes_nothing(tmp_path: Path) -> None:
    with running_supervisor(tmp_path, wrapper=(sys.executable, "-P", "-c", SIGNALLED_AT_THE_END)) as supervisor:
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_a_log_that_nobody_reads_does_not_keep_a_supervisor_from_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 65_536):
            """Until it is full."""
    os.set_blocking(writing, True)
    socket = tmp_path / "s"
    command = run_command(tmp_path, socket)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=writing, env=buffered) as process:
        os.close(writing)
        while not _answers(socket):
            assert process.poll() is None
        process.terminate()
        assert process.wait(90) == 0
        os.close(reading)


def _answers(socket: Path) -> bool:
    try:
        with ControlClient(socket) as client:
            return bool(client.call("status"))
    except PoolError:
        return False


AGENTS = """
[pool]
min = 0
max = {max}
[agents.ops]
append_system_prompt = "{words}"
"""


def test_other_settings_are_taken_up_by_a_hang_up_and_those_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    """With key and line; a turn under way goes on under the old ones, and its worker leaves once it is idle."""
    with lives_in(tmp_path, AGENTS.format(max=3, words="Old words.")) as lives:
        supervisor = lives.living()
        supervisor.begin("o1", f"{gated(tmp_path / 'gate')} ECHO:still-here", agent="ops", run="busy")
        busy = supervisor.wait_for_turn("o1")
        supervisor.prompt("m", "hello")
        lives.settings_file.write_text(AGENTS.format(max=4, words="New words."))
        supervisor.signal(signal.SIGHUP)
        supervisor.wait_for_log("reloaded")
        assert {"pool.max", "agents.ops.append_system_prompt"} <= set(supervisor.logged("reloaded")[0]["changed"])
        assert supervisor.status()["pool"]["max"] == 4
        (tmp_path / "gate").touch()
        assert supervisor.outcome("busy")["text"] == "still-here"
        supervisor.wait_for_loss(busy["pid"])
        assert [worker["session"] for worker in supervisor.status()["workers"]] == ["m"]
        broken = {"[pool]\nmax = 3\n\nmaxx = 4\n": "pool.toml:4: pool.maxx", "[pool]\nmax =\n": "pool.toml:2: "}
        for number, (text, words) in enumerate(broken.items(), 1):
            lives.settings_file.write_text(text)
            supervisor.signal(signal.SIGHUP)
            supervisor.wait_for_log("reload_refused", number)
            refused = supervisor.logged("reload_refused")[-1]
            assert (refused["level"], words in refused["reason"]) == ("warning", True)
            with pytest.raises(SettingsRefused, match=words):
                supervisor.call("reload")
        assert supervisor.status()["pool"]["max"] == 4
        assert "New words." in supervisor.prompt("o1", "SYSTEM", "-a", "ops")
