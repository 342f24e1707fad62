"""The tool exec: what a call returns, when it stops waiting, what it refuses, and that nothing of it is left behind."""

import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio
from trio.testing import MockClock

from agent.processes.registry import ProcessRegistry, RegistryLimits
from agent.processes.spawn import SpawnFailed
from agent.tools.base import ToolError
from agent.tools.exec import ExecInput, ExecTool, wait_window
from agent.tools.pages import MAX_BYTES, MAX_LINES
from agent.tools.process import ProcessTool
from tests.agent.processes.helpers import Bench, bench_of, processes_with

pytestmark = pytest.mark.process

EXEC = ExecTool()


async def test_a_result_is_both_streams_in_order_and_the_exit_code(bench: Bench) -> None:
    os.mkfifo("gate")
    async with trio.open_nursery() as nursery:

        async def open_gate() -> None:
            await bench.until_shown("out\nerr\n")
            await trio.to_thread.run_sync(Path("gate").write_text, "go\n")

        nursery.start_soon(open_gate)
        output = await bench.use(EXEC, command="echo out; echo err >&2; read x < gate; echo more; exit 3")
    assert output.text == "out\nerr\nmore\n\n(Command exited with code 3)"
    known = {"status": "completed", "exit_code": 3, "cwd": bench.cwd, "tail": "out\nerr\nmore\n"}
    assert known.items() <= output.details.items()
    assert output.details.keys() - known.keys() == {"session_id", "pid", "started_at"}
    assert bench.changes == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-command", "exited with code 127"),
        ("touch f; ./f", "exited with code 126"),
        ("kill -9 $$", "killed by signal SIGKILL"),
    ],
)
async def test_what_could_not_run_or_was_killed_is_a_failure(bench: Bench, command: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        await bench.use(EXEC, command=command, timeout=0)


async def let_pass_once_it_has_spoken(bench: Bench, clock: MockClock, seconds: float) -> None:
    await bench.shown_something.wait()
    clock.jump(seconds)


async def test_long_output_is_cut_to_its_end_and_kept_in_a_file(bench: Bench) -> None:
    text = await bench.text(EXEC, command="seq 30000")
    note, _, shown = text.partition("\n")
    assert note.startswith("[cut: the end is shown, 2000 of 30000 lines; the full text is in ")
    path = Path(note.rpartition(" ")[2].rstrip("]"))
    assert path.parent == Path(bench.outputs)
    assert await trio.Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 30_001))
    assert shown == "".join(f"{number}\n" for number in range(28_001, 30_001))
    text = await bench.text(EXEC, command="seq 100000")
    assert "; the last 200,000 characters are in " in text.partition("\n")[0]
    assert len(text) < MAX_BYTES + 200
    assert text.count("\n") <= MAX_LINES + 1


async def test_bytes_that_are_no_text_do_no_harm(bench: Bench) -> None:
    assert await bench.text(EXEC, command=r"printf '\377\376\033[31mred\033[0m\0\007'") == "\ufffd\ufffdred\\x00\\x07"
    assert len(await bench.text(EXEC, command="head -c 300000 /dev/urandom")) < MAX_BYTES + 300


async def test_it_runs_in_its_directory_with_its_environment(bench: Bench, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    output = await bench.text(EXEC, command='pwd; echo "$HOME $COLOUR"', workdir="sub/", env={"COLOUR": "blue"})
    assert output == f"{bench.cwd}/sub\n/nowhere blue\n"


@pytest.mark.parametrize("workdir", ["/", "none", "file", ".."])
async def test_a_bad_workdir_is_an_error_and_nothing_runs(bench: Bench, workspace: Path, workdir: str) -> None:
    (workspace / "file").write_text("")
    with pytest.raises(ToolError, match=r"workdir|outside"):
        await bench.use(EXEC, command="touch ran", workdir=workdir)
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize(
    ("command", "more", "why"),
    [
        ("true", {"env": {"PATH": "x"}}, "PATH"),
        ("echo \0", {}, r"cannot run the command: .*null"),
        ("#" * 3_000_000, {}, r"cannot run the command: .*too long"),
    ],
    ids=["a variable that changes it", "no text", "too long"],
)
async def test_a_command_that_cannot_be_started_is_a_clear_error(
    bench: Bench, command: str, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ToolError, match=why):
        await bench.use(EXEC, command=command, **more)


async def test_progress_shows_the_end_of_the_output_and_the_last_word_comes_always(bench: Bench) -> None:
    start = time.monotonic()
    await bench.use(EXEC, command="for i in $(seq 2000); do echo $i; done")
    elapsed = time.monotonic() - start
    assert bench.shown[-1].endswith("\n1999\n2000\n")
    assert len(bench.shown[-1]) == 2000
    assert len(bench.shown) <= elapsed * 20 + 2


@pytest.mark.parametrize(
    ("arguments", "seconds", "where_asked_for"),
    [
        ({}, 10.0, float("inf")),
        ({"yield_ms": 0}, 0.01, 0.01),
        ({"yield_ms": 500}, 0.5, 0.5),
        ({"yield_ms": 10**9}, 120.0, 120.0),
        ({"yield_ms": -5}, 0.01, 0.01),
        ({"background": True, "yield_ms": 500}, 0.0, 0.0),
    ],
)
def test_a_call_waits_ten_seconds_or_as_long_as_it_says_within_bounds(
    arguments: dict[str, Any], seconds: float, where_asked_for: float
) -> None:
    assert wait_window(ExecInput("true", **arguments), ProcessRegistry()) == seconds
    assert wait_window(ExecInput("true", **arguments), ProcessRegistry(yields=False)) == where_asked_for


async def test_when_the_window_passes_the_command_goes_on_in_the_background(
    bench: Bench, mock_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_pass_once_it_has_spoken, bench, mock_clock, 1)
        output = await bench.use(EXEC, command="echo begun; sleep 60; :", yield_ms=100, env={"MARK": bench.mark})
    session_id, pid = output.details["session_id"], output.details["pid"]
    assert output.text.startswith(
        f"The command still runs in the background (session {session_id}, pid {pid}). Follow it up with the process "
    )
    assert (output.details["status"], output.details["tail"]) == ("running", "begun\n")
    assert bench.changes == [1]
    assert bench.shown == ["begun\n"]
    assert processes_with(f"MARK={bench.mark}")


async def test_the_timeout_goes_along_to_the_background(bench: Bench) -> None:
    output = await bench.use(EXEC, command="sleep 60", background=True, timeout=0.2)
    await bench.ended(output.details["session_id"])
    assert [notice.summary for notice in bench.notices] == [
        f"Exec failed ({output.details['session_id']}, timed out after 0.2 s)"
    ]
    assert bench.notices[0].timed_out
    assert bench.changes == [1, 0]
    assert "timed out" in await bench.text(ProcessTool(), action="list")


async def test_an_aborted_call_ends_its_command_and_not_what_is_in_the_background(bench: Bench) -> None:
    background, foreground = f"{bench.mark}-background", f"{bench.mark}-foreground"
    await bench.use(EXEC, command="sleep 61", background=True, env={"MARK": background})
    async with trio.open_nursery() as nursery:
        # A process that is just being replaced by another program shows no environment: each says when it is there.
        up = "echo >&3; sleep 60; :"
        command = (
            f"mkfifo up; exec 3<>up; setsid sh -c '{up}' & sh -c '{up}' & "
            "read -u 3; read -u 3; kill -STOP $!; echo begun; wait"
        )

        async def call() -> None:
            await bench.use(EXEC, command=command, env={"MARK": foreground})

        nursery.start_soon(call)
        await bench.shown_something.wait()
        assert len(processes_with(f"MARK={foreground}")) >= 3
        nursery.cancel_scope.cancel()
    assert processes_with(f"MARK={foreground}") == []
    assert len(processes_with(f"MARK={background}")) == 1
    assert bench.notices == []


@pytest.mark.parametrize(
    "command",
    [
        "(trap '' TERM; setsid sleep 61) & echo begun; sleep 62",
        "trap '' TERM; yes",
        "(setsid sleep 66 &) ; (setsid setsid sleep 66 &); sleep 62",
        # Its parent ends at SIGTERM, and only then it forks: no descent ties the child to the shell.
        "(setsid bash -c \"trap 'sleep 67 & wait' TERM; while :; do sleep 68 & wait; done\") & sleep 69",
    ],
    ids=["ignores", "floods", "forks-away", "forks-late"],
)
async def test_a_timeout_ends_the_whole_tree_whatever_it_does(bench: Bench, command: str) -> None:
    with pytest.raises(ToolError, match=r"\(Command timed out after 0.3 s\)"):
        await bench.use(EXEC, command=command, timeout=0.3, env={"MARK": bench.mark})
    assert processes_with(f"MARK={bench.mark}") == []


async def test_a_command_that_is_stopped_still_hears_that_it_shall_end(workspace: Path) -> None:
    async with bench_of(limits=RegistryLimits(term_grace=1000)) as bench:
        with pytest.raises(ToolError, match="timed out"):
            await bench.use(EXEC, command="kill -STOP $$", timeout=0.1)


@pytest.mark.parametrize("command", ["sleep 65 & echo done", "(setsid sleep 65 &) ; echo done"])
async def test_nothing_outlives_a_foreground_command_that_has_ended(bench: Bench, command: str) -> None:
    assert await bench.text(EXEC, command=command, env={"MARK": bench.mark}) == "done\n"
    assert processes_with(f"MARK={bench.mark}") == []


async def test_when_the_worker_ends_everything_ends_at_once_and_nobody_is_told(workspace: Path) -> None:
    async with bench_of() as bench:
        await bench.use(EXEC, command="trap '' TERM; sleep 61", background=True, env={"MARK": bench.mark})
        await bench.use(EXEC, command="(setsid sleep 62 &); sleep 63", background=True, env={"MARK": bench.mark})
    assert processes_with(f"MARK={bench.mark}") == []
    assert bench.notices == []
    with pytest.raises(SpawnFailed, match="ending"):
        bench.registry.start(None)  # type: ignore[arg-type]  # refused before it looks


async def test_a_terminal_is_a_terminal_of_thirty_rows_and_belongs_to_the_command(bench: Bench) -> None:
    text = await bench.text(EXEC, command="tty >/dev/tty; stty size; test -t 2 && echo yes", pty=True)
    first, *rest = text.split("\r\n")
    assert first.startswith("/dev/")
    assert rest == ["30 120", "yes", ""]


async def test_where_there_is_no_terminal_pipes_serve_with_a_warning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "openpty", Mock(side_effect=OSError(28, "out of pty devices")))
    text = await bench.text(EXEC, command="test -t 1 || echo pipes", pty=True)
    assert text == "Warning: there is no terminal to be had (out of pty devices); the command runs on pipes.\npipes\n"


async def test_descriptors_are_all_given_back(bench: Bench) -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    assert await bench.text(EXEC, command="true") == "(no output)"
    before = open_descriptors()
    for pty in (False, True):
        await bench.text(EXEC, command="echo x; echo y >&2", pty=pty)
        with pytest.raises(ToolError):
            await bench.text(EXEC, command="sleep 60", pty=pty, timeout=0.05)
    assert open_descriptors() == before
