"""The tools: confined to their directory, bounded in what they say, and nothing of them left running."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agent.tools.base import Tool, ToolContext, ToolError, confined
from agent.tools.exec import ExecTool
from agent.tools.truncation import MAX_BYTES, MAX_LINES, TailBuffer

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}


def here() -> str:
    return os.path.realpath(".")


async def use(tool: Tool, report: Callable[[str], None] = lambda _: None, **arguments: Any) -> str:
    with trio.fail_after(20):
        context = ToolContext(here(), ENVIRONMENT, report)
        output = await tool.run(msgspec.convert(arguments, tool.input_type), context)
    return output if isinstance(output, str) else output.text


def processes_with(marker: str) -> list[int]:
    """Pids of living processes whose environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_directory_with_the_same_beginning_is_outside() -> None:
    with pytest.raises(ToolError):
        confined("/home/a", "/home/ab")
    assert confined("/", "/tmp") == "/tmp"


# --- exec -----------------------------------------------------------------------------------------------------------


async def test_exec_returns_both_streams_and_the_exit_code() -> None:
    assert await use(ExecTool(), command="echo out; echo err >&2; exit 3") == "out\nerr\n\n(Command exited with code 3)"
    assert await use(ExecTool(), command="true") == "(no output)"
    assert await use(ExecTool(), command="cat") == "(no output)"  # stdin is empty


async def test_exec_fails_where_the_command_could_not_run_or_was_killed() -> None:
    with pytest.raises(ToolError, match="exited with code 127"):
        await use(ExecTool(), command="no-such-command")
    with pytest.raises(ToolError, match="killed by signal 9"):
        await use(ExecTool(), command="kill -9 $$")


async def test_exec_runs_in_its_directory_with_its_environment(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    output = await use(ExecTool(), command='pwd; echo "$HOME $COLOUR"', workdir="sub", env={"COLOUR": "blue"})
    assert output == f"{here()}/sub\n/nowhere blue\n"


@pytest.mark.parametrize("workdir", ["/", "none", "file", ".."])
async def test_a_bad_workdir_is_an_error_and_nothing_runs(workspace: Path, workdir: str) -> None:
    (workspace / "file").write_text("")
    with pytest.raises(ToolError, match=r"workdir|outside"):
        await use(ExecTool(), command="touch ran", workdir=workdir)
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV"])
async def test_variables_that_change_what_is_run_are_refused(name: str) -> None:
    with pytest.raises(ToolError, match=name):
        await use(ExecTool(), command="true", env={name: "x"})


async def test_progress_shows_the_end_of_the_output_and_the_last_word_comes_always() -> None:
    shown: list[str] = []
    await use(ExecTool(), shown.append, command="for i in $(seq 2000); do echo $i; done")
    assert shown[-1].endswith("\n1999\n2000\n")
    assert len(shown[-1]) == 2000
    assert len(shown) < 20


async def test_long_output_keeps_its_end() -> None:
    text = await use(ExecTool(), command="seq 100000")
    assert text.endswith("\n99999\n100000\n")
    assert text.startswith("[the first ")
    assert len(text) < MAX_BYTES + 100
    assert text.count("\n") <= MAX_LINES + 1


@pytest.mark.process
async def test_a_timeout_kills_the_whole_tree_also_what_ignores_sigterm() -> None:
    with pytest.raises(ToolError, match=r"begun\n\n\(Command timed out after 0.3 s\)"):
        await use(
            ExecTool(),
            command="(trap '' TERM; setsid sleep 61) & echo begun; sleep 62",
            timeout=0.3,
            env={"MARK": "of-timeout"},
        )
    assert processes_with("MARK=of-timeout") == []


@pytest.mark.process
async def test_a_cancelled_call_leaves_nothing_running_not_even_what_is_stopped() -> None:
    begun = trio.Event()
    command = "setsid sleep 63 & sleep 64 & kill -STOP $!; echo begun; wait"
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            await use(ExecTool(), lambda _: begun.set(), command=command, env={"MARK": "of-cancel"})

        nursery.start_soon(call)
        await begun.wait()
        assert len(processes_with("MARK=of-cancel")) == 3
        nursery.cancel_scope.cancel()
    assert processes_with("MARK=of-cancel") == []


@pytest.mark.process
async def test_what_a_process_starts_while_it_is_being_stopped_is_stopped_too() -> None:
    # It has left the session, its parent ends at SIGTERM, and only then it forks: nothing ties the child to the shell.
    stubborn = "trap 'sleep 67 & wait' TERM; echo ready; while :; do sleep 68 & wait; done"
    with pytest.raises(ToolError, match="timed out"):
        await use(
            ExecTool(),
            command=f'(setsid bash -c "{stubborn}") & sleep 69',
            timeout=0.3,
            env={"MARK": "of-late-fork"},
        )
    assert processes_with("MARK=of-late-fork") == []


@pytest.mark.process
async def test_nothing_outlives_a_foreground_command_that_has_ended() -> None:
    assert await use(ExecTool(), command="sleep 65 & echo done", env={"MARK": "of-end"}) == "done\n"
    assert processes_with("MARK=of-end") == []


async def test_a_command_that_closes_its_output_is_waited_for() -> None:
    assert "code 4" in await use(ExecTool(), command="exec >&- 2>&-; exit 4")


# --- truncation -----------------------------------------------------------------------------------------------------


def test_characters_cut_between_two_reads_are_put_together() -> None:
    buffer = TailBuffer()
    for byte in "aé€😀".encode():
        buffer.feed(bytes([byte]))
    buffer.feed(b"\xff", final=True)
    assert buffer.text() == "aé€😀\ufffd"


def test_one_endless_line_is_cut_too() -> None:
    buffer = TailBuffer()
    for _ in range(100):
        buffer.feed(b"x" * 10_000)
    assert buffer.text() == f"[the first {1_000_000 - MAX_BYTES} bytes of the output were cut]\n" + "x" * MAX_BYTES
