"""How a supervisor stops with work at hand, and how it takes up other settings: what runs, what waits, what is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tests.acceptance.line_client import LineClient, Refused, connected
from tests.acceptance.listener import Listener
from tests.acceptance.lives import Lives
from tests.acceptance.supervisor import LONGEST_YIELD_MS, POOL, Supervisor, running_supervisor

pytestmark = pytest.mark.process

LIMIT = 90.0


@pytest.fixture
def listener() -> Listener:
    return Listener()


def ends(listener: Listener) -> list[tuple[str, str]]:
    """Which runs have ended, and why, in that order."""
    return [(event["run_id"], event["data"]["reason"]) for event in listener.find("done")]


def waiting_for(go: Path, answer: str) -> str:
    """A prompt whose turn lasts until somebody writes to the pipe ``go``, which is made here."""
    os.mkfifo(go)
    return f'TOOL:exec {{"command": "cat {go}", "yield_ms": {LONGEST_YIELD_MS}}} ECHO:{answer}'


async def let_go(go: Path) -> None:
    await trio.to_thread.run_sync(go.write_bytes, b"go")


async def one_runs_and_three_wait(client: LineClient, listener: Listener, text: str) -> None:
    """``k0`` is in its turn on the only worker; ``k1`` and ``k2`` wait behind it, ``k3`` for the worker."""
    await client.call("subscribe", since=0)
    await client.call("agent", session="alice", text=text, run="k0")
    await listener.wait_for("run:start", run_id="k0")
    for key, session in (("k1", "alice"), ("k2", "alice"), ("k3", "bob")):
        await client.call("agent", session=session, text=f"ECHO:{key}", run=key, queue="followup")


async def in_the_next_life(lives: Lives, listener: Listener) -> None:
    """What waited is run, once, in its order; a key still stands for its run."""
    supervisor = await trio.to_thread.run_sync(lives.living)
    async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
        await client.call("subscribe", since=listener.bookmark)
        for key in ("k1", "k2", "k3"):
            end = await listener.wait_for("done", run_id=key)
            assert end["data"]["text"] == key
        assert sorted(ends(listener))[1:] == [(key, "completed") for key in ("k1", "k2", "k3")]
        starts = [event["run_id"] for event in listener.find("run:start")]
        assert sorted(starts) == ["k0", "k1", "k2", "k3"]
        assert starts.index("k1") < starts.index("k2")
        repeated = await client.call("agent", session="alice", text="ECHO:k1", run="k1", queue="followup")
        assert (await client.call("agent.wait", run_id=repeated["run_id"], timeout_ms=0))["text"] == "k1"
    assert len(listener.find("done")) == 4


def by_signal(supervisor: Supervisor) -> None:
    supervisor.signal(signal.SIGTERM)


def by_command(supervisor: Supervisor) -> None:
    supervisor.start("stop")


@pytest.mark.parametrize("stop", [by_signal, by_command])
async def test_a_stop_lets_the_turn_end_and_leaves_what_waits_to_the_next_life(
    tmp_path: Path, listener: Listener, stop: Callable[[Supervisor], None]
) -> None:
    lives = Lives(tmp_path, "[pool]\nmax = 1\n")
    try:
        supervisor = await trio.to_thread.run_sync(lives.living)
        async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
            await one_runs_and_three_wait(client, listener, waiting_for(tmp_path / "go", "to-the-end"))
            stop(supervisor)
            await listener.wait_for("stopping")
            with pytest.raises(Refused, match="closed"):
                await client.call("agent", session="carol", text="too late", run="k9")
            await let_go(tmp_path / "go")
            await client.ended.wait()
        assert await trio.to_thread.run_sync(supervisor.wait) == 0
        assert ends(listener) == [("k0", "completed")]
        assert listener.find("done")[0]["data"]["text"] == "to-the-end"
        await in_the_next_life(lives, listener)
    finally:
        supervisor.clear()
        lives.stop()


SIGNALLED_AT_THE_END = """
import atexit, runpy, signal, sys
atexit.register(signal.raise_signal, int(sys.argv[1]))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_when_all_is_done_changes_nothing(tmp_path: Path, number: signal.Signals) -> None:
    wrapper = (sys.executable, "-c", SIGNALLED_AT_THE_END, str(int(number)))
    with running_supervisor(tmp_path, wrapper=wrapper) as supervisor:
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


@pytest.mark.parametrize(("drain_timeout", "signals"), [("300ms", 1), ("60s", 2)])
async def test_a_turn_that_outlasts_the_drain_or_a_second_signal_is_told_as_interrupted(
    tmp_path: Path, listener: Listener, drain_timeout: str, signals: int
) -> None:
    lives = Lives(tmp_path, f'[pool]\nmax = 1\ndrain_timeout = "{drain_timeout}"\n')
    try:
        supervisor = await trio.to_thread.run_sync(lives.living)
        async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
            await one_runs_and_three_wait(client, listener, "HANG")
            supervisor.signal(signal.SIGTERM)
            await listener.wait_for("stopping")
            if signals == 2:
                supervisor.signal(signal.SIGTERM)
            await client.ended.wait()
        assert await trio.to_thread.run_sync(supervisor.wait) == 0
        await in_the_next_life(lives, listener)
        (end,) = listener.find("done", run_id="k0")
        assert (end["data"]["reason"], end["data"]["error"]["code"]) == ("interrupted", "interrupted")
    finally:
        lives.stop()


# --- other settings ---------------------------------------------------------------------------------------------------

AGENTS = """
[pool]
min = 0
max = {max}
[agents.ops]
append_system_prompt = "{words}"
"""


async def test_other_settings_are_taken_up_and_only_workers_that_they_concern_leave_once_idle(
    tmp_path: Path, listener: Listener
) -> None:
    lives = Lives(tmp_path, AGENTS.format(max=3, words="Old words."))
    try:
        supervisor = await trio.to_thread.run_sync(lives.living)
        async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
            await client.call("subscribe", since=0)

            async def worker_of(session: str, agent: str) -> str:
                await client.call("agent", session=session, agent=agent, text="hello", run=session)
                outcome: dict[str, Any] = await client.call("agent.wait", run_id=session)
                return str(outcome["worker"])

            text = waiting_for(tmp_path / "go", "still-here")
            await client.call("agent", session="o1", agent="ops", text=text, run="busy")
            busy = (await listener.wait_for("run:start", run_id="busy"))["data"]["worker"]
            idle, other = await worker_of("o2", "ops"), await worker_of("m", "main")
            lives.settings_file.write_text(AGENTS.format(max=4, words="New words."))
            supervisor.signal(signal.SIGHUP)
            reloaded = await listener.wait_for("reloaded")
            assert {"pool.max", "agents.ops.append_system_prompt"} <= set(reloaded["data"]["changed"])
            assert (await client.call("status"))["pool"]["max"] == 4
            await listener.wait_for("worker_exited", worker=idle)
            assert {worker["id"] for worker in await client.call("workers.list")} == {other, busy}
            await let_go(tmp_path / "go")
            assert (await listener.wait_for("done", run_id="busy"))["data"]["text"] == "still-here"
            await listener.wait_for("worker_exited", worker=busy)
            assert [worker["id"] for worker in await client.call("workers.list")] == [other]
            await client.call("agent", session="o1", agent="ops", text="SYSTEM", run="after")
            assert "New words." in (await client.call("agent.wait", run_id="after"))["text"]
    finally:
        lives.stop()


async def test_settings_that_cannot_be_meant_are_refused_with_key_and_line_and_the_last_good_ones_stay(
    tmp_path: Path, listener: Listener
) -> None:
    lives = Lives(tmp_path, AGENTS.format(max=3, words="Good words."))
    try:
        supervisor = await trio.to_thread.run_sync(lives.living)
        async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
            await client.call("subscribe", since=0)
            broken = {"[pool]\nmax = 3\n\nmaxx = 4\n": ("pool.maxx", ":4:"), "[pool]\nmax =\n": (":2:",)}
            for number, (text, words) in enumerate(broken.items(), 1):
                lives.settings_file.write_text(text)
                supervisor.signal(signal.SIGHUP)
                reason = (await listener.wait_for("reload_refused", number))["data"]["reason"]
                for word in (*words, str(lives.settings_file)):
                    assert word in reason
                with pytest.raises(Refused, match=words[-1]):
                    await client.call("reload")
            assert (await client.call("status"))["pool"]["max"] == 3
            await client.call("agent", session="o", agent="ops", text="SYSTEM", run="after")
            assert "Good words." in (await client.call("agent.wait", run_id="after"))["text"]
            await trio.to_thread.run_sync(supervisor.wait_for_log, "reload_refused", len(broken))
            lines = [msgspec.json.decode(line) for line in supervisor.log if '"reload_refused"' in line]
            assert [line["level"] for line in lines] == ["warning"] * len(broken)
    finally:
        lives.stop()


def test_a_log_that_nobody_reads_does_not_keep_a_supervisor_from_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 65_536):
            """Until it is full."""
    os.set_blocking(writing, True)
    socket = tmp_path / "s"
    command = [*POOL, "run", "--data-dir", str(tmp_path), "--socket", str(socket)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=writing, env=buffered) as process:
        os.close(writing)
        while not _answers(socket):
            assert process.poll() is None
        process.terminate()
        assert process.wait(LIMIT) == 0
        os.close(reading)


def _answers(socket: Path) -> bool:
    return subprocess.run([*POOL, "status", "--socket", socket], capture_output=True, check=False).returncode == 0


async def test_a_stop_says_for_whom_it_waits_and_leaves_no_question_open(tmp_path: Path, listener: Listener) -> None:
    lives = Lives(tmp_path, '[pool]\nmax = 1\ndrain_timeout = "1s"\n[agents.main]\nrequire_approval = ["exec"]\n')
    try:
        supervisor = await trio.to_thread.run_sync(lives.living)
        async with connected(supervisor.socket, listener.hear, seconds=LIMIT) as client:
            await client.call("subscribe", since=0)
            await client.call("agent", session="alice", text='TOOL:exec {"command": "echo no"}', run="k0")
            await listener.wait_for("permission_required", run_id="k0")
            _, told = await trio.to_thread.run_sync(lambda: supervisor.start("stop").communicate(timeout=LIMIT))
            (end,) = listener.find("done", run_id="k0")
        assert await trio.to_thread.run_sync(supervisor.wait) == 0
        assert "waits for session alice: a turn on worker w1" in told
        assert "which waits for a person (pool approve -s alice" in told
        assert any('"waits_for":["session alice' in line for line in supervisor.log)
        assert end["data"]["error"]["code"] == "interrupted"
        (tool,) = listener.find("tool:error", run_id="k0")
        assert "ended before it was done" in tool["data"]["error"]
    finally:
        supervisor.clear()
        lives.stop()
