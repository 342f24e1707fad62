"""The tool process: hearing, talking to and ending what runs in the background; failures are results."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from agent.processes.session import ProcessInput
from agent.tools.base import ToolOutput
from agent.tools.exec import ExecTool
from agent.tools.process import ProcessTool, perform_action
from tests.agent.processes.helpers import Bench, processes_with

pytestmark = pytest.mark.process

EXEC, PROCESS = ExecTool(), ProcessTool()
ECHOING = "while read line; do echo got $line; done; echo over"


async def started(bench: Bench, command: str, **arguments: Any) -> str:
    """The id of a command in the background."""
    output = await bench.use(EXEC, command=command, background=True, **arguments)
    session_id: str = output.details["session_id"]
    return session_id


async def said(bench: Bench, session_id: str, text: str) -> None:
    """Wait until the command has said this."""
    session = bench.registry.get(session_id, "mine")
    assert session is not None
    with trio.fail_after(10):
        while text not in session.output.text():
            session.has_output = trio.Event()
            await session.has_output.wait()


async def poll(bench: Bench, session_id: str, timeout: float = 10) -> ToolOutput:  # noqa: ASYNC109 - the tool's own
    return await bench.use(PROCESS, action="poll", session_id=session_id, timeout=timeout)


# --- looking ----------------------------------------------------------------------------------------------------------


async def test_a_list_shows_what_runs_and_what_has_ended_newest_first(bench: Bench) -> None:
    assert "Nothing runs" in await bench.text(PROCESS, action="list")
    first = await started(bench, "exit 3")
    second = await started(bench, "sleep 60;\n\techo " + "x" * 200)
    await bench.ended(first)
    output = await bench.use(PROCESS, action="list")
    lines = output.text.split("\n")
    assert lines[0].startswith(f"{second}  running  pid ")
    assert lines[0].endswith("sleep 60; echo " + "x" * 62 + "...")
    assert lines[1].startswith(f"{first}  code 3  pid ")
    assert [session["status"] for session in output.details["sessions"]] == ["running", "completed"]


async def test_a_poll_tells_what_is_new_in_the_order_it_came(bench: Bench) -> None:
    session_id = await started(bench, "echo one; echo two >&2; read x; echo three; exit 4")
    await said(bench, session_id, "two\n")
    first = await poll(bench, session_id, timeout=0)
    assert first.text == f"one\ntwo\n\n(Session {session_id} still runs.)"
    assert first.details["status"] == "running"
    assert (await poll(bench, session_id, timeout=0)).text.startswith("(no new output)\n")
    await bench.use(PROCESS, action="submit", session_id=session_id)
    last = await poll(bench, session_id)
    assert last.text == f"three\n\n(Session {session_id} has ended: completed, code 4.)"
    assert (last.details["status"], last.details["exit_code"]) == ("completed", 4)


async def test_a_poll_waits_for_the_end_and_no_longer_than_it_says(bench: Bench) -> None:
    session_id = await started(bench, "sleep 60")
    start = trio.current_time()
    assert "still runs" in (await poll(bench, session_id, timeout=0.2)).text
    assert trio.current_time() - start >= 0.2


async def test_what_a_command_says_during_a_poll_is_told_before_its_end(bench: Bench) -> None:
    os.mkfifo("gate")
    session_id = await started(bench, "read x; echo begun; read x < gate; echo done")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(poll, bench, session_id, timeout=20))
        await bench.use(PROCESS, action="submit", session_id=session_id)
        await bench.shown_something.wait()
        assert bench.shown == ["begun\n"]
        await trio.to_thread.run_sync(Path("gate").write_text, "go\n")
    assert bench.shown[-1] == "begun\ndone\n"


# --- a front end beside the agent -------------------------------------------------------------------------------------


async def observe(bench: Bench, session_id: str, **more: float) -> str:
    """What a poll of a front end answers."""
    with trio.fail_after(20):
        request = msgspec.convert({"action": "poll", "session_id": session_id, **more}, ProcessInput)
        return (await perform_action(request, bench.registry, "mine", bench.outputs, observes=True)).text


async def test_a_front_ends_poll_leaves_the_output_to_the_agent(bench: Bench) -> None:
    session_id = await started(bench, "echo one; read; echo two; read")
    await said(bench, session_id, "one")
    assert (await observe(bench, session_id)).startswith("one\n\n")
    assert (await observe(bench, session_id)).startswith("(no new output)")
    await bench.use(PROCESS, action="submit", session_id=session_id)
    await said(bench, session_id, "two")
    assert (await observe(bench, session_id)).startswith("two\n\n")
    assert (await poll(bench, session_id, timeout=0)).text.startswith("one\ntwo\n\n")
    assert (await poll(bench, session_id, timeout=0)).text.startswith("(no new output)")


@pytest.mark.parametrize("before_the_end", [True, False])
async def test_a_front_ends_poll_leaves_the_notice_to_the_agent(bench: Bench, before_the_end: bool) -> None:  # noqa: FBT001 - a parameter of the test
    session_id = await started(bench, "read; exit 3")
    async with trio.open_nursery() as nursery:
        if before_the_end:
            nursery.start_soon(partial(observe, bench, session_id, timeout=20))
            await trio.testing.wait_all_tasks_blocked()
        await bench.use(PROCESS, action="submit", session_id=session_id)
    await bench.ended(session_id)
    assert "code 3" in await observe(bench, session_id)
    assert [notice.summary for notice in bench.notices] == [f"Exec completed ({session_id}, code 3)"]


async def test_a_front_end_that_missed_much_is_told_so_and_the_agent_sees_as_much(bench: Bench) -> None:
    session_id = await started(bench, "seq 1 100000")
    await bench.ended(session_id)
    text = await observe(bench, session_id)
    assert "\n99999\n100000\n\n(Session" in text
    assert text.startswith("[")
    assert "\n99999\n100000\n\n(Session" in (await poll(bench, session_id)).text


async def test_a_poll_that_missed_much_says_so(bench: Bench) -> None:
    session_id = await started(bench, "seq 1 100000")
    await bench.ended(session_id)
    text = (await poll(bench, session_id)).text
    assert text.startswith("[")
    assert "the last 30,000 characters" in text.partition("\n")[0] or "no longer kept" in text.partition("\n")[0]
    assert "\n99999\n100000\n\n(Session" in text


@pytest.mark.parametrize(
    ("window", "lines", "note"),
    [
        ({}, range(301, 501), "[lines 301 to 500 of 500]"),
        ({"offset": 10, "limit": 2}, range(11, 13), "[lines 11 to 12 of 500]"),
        ({"offset": 497}, range(498, 501), "[lines 498 to 500 of 500]"),
        ({"limit": 3}, range(498, 501), "[lines 498 to 500 of 500]"),
        ({"offset": 600}, range(0), "[none of 500 lines]"),
    ],
)
async def test_the_log_shows_a_window_of_lines(bench: Bench, window: dict[str, int], lines: range, note: str) -> None:
    session_id = await started(bench, "seq 500")
    await bench.ended(session_id)
    text = await bench.text(PROCESS, action="log", session_id=session_id, **window)
    assert text == "\n".join([*map(str, lines), note])


# --- talking ----------------------------------------------------------------------------------------------------------


async def test_what_is_written_arrives_and_the_end_of_input_too(bench: Bench) -> None:
    session_id = await started(bench, ECHOING)
    text = await bench.text(PROCESS, action="write", session_id=session_id, data="a\nb")
    assert text == f"Wrote 3 bytes to session {session_id}."
    await bench.use(PROCESS, action="submit", session_id=session_id, data="c")
    await bench.use(PROCESS, action="paste", session_id=session_id, data="d\n")
    text = await bench.text(PROCESS, action="write", session_id=session_id, eof=True)
    assert text.endswith(", and ended its input.")
    assert (await poll(bench, session_id)).text.startswith("got a\ngot bc\ngot d\nover\n")


async def test_a_command_that_does_not_read_takes_what_fits_and_no_call_waits_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.processes.session._WRITE_TIMEOUT", 0.2)
    session_id = await started(bench, "sleep 60")
    output = await bench.use(PROCESS, action="write", session_id=session_id, data="x" * 1_000_000)
    assert output.details["status"] == "failed"
    assert "it took 65536 of 1000000 bytes" in output.text


async def test_a_command_that_closed_its_input_says_so(bench: Bench) -> None:
    session_id = await started(bench, "exec <&-; echo closed; sleep 60")
    await said(bench, session_id, "closed")
    output = await bench.use(PROCESS, action="write", session_id=session_id, data="x")
    assert output.text == "Failed: the command has closed its input."
    again = await bench.use(PROCESS, action="write", session_id=session_id, eof=True)
    assert again.text == "Failed: the command has closed its input."


async def test_a_terminal_takes_keys_lines_and_an_end(bench: Bench) -> None:
    session_id = await started(bench, f"trap 'echo interrupted' INT; echo up; {ECHOING}", pty=True)
    await said(bench, session_id, "up")
    await bench.use(PROCESS, action="send_keys", session_id=session_id, keys=["C-c"])
    await said(bench, session_id, "interrupted")
    await bench.use(PROCESS, action="submit", session_id=session_id, data="line")
    await said(bench, session_id, "got line")
    await bench.use(PROCESS, action="send_keys", session_id=session_id, keys=["h", "i", "Enter"])
    await said(bench, session_id, "got hi")
    await bench.use(PROCESS, action="write", session_id=session_id, eof=True)
    assert "over" in (await poll(bench, session_id)).text


@pytest.mark.parametrize(
    ("keys", "pty", "why"), [(["Enter"], False, "no terminal"), (["Hyper"], True, "no key 'Hyper'")]
)
async def test_keys_that_cannot_be_sent_are_a_failure(bench: Bench, keys: list[str], pty: bool, why: str) -> None:  # noqa: FBT001 - a parameter of the test
    session_id = await started(bench, "sleep 60", pty=pty)
    output = await bench.use(PROCESS, action="send_keys", session_id=session_id, keys=keys)
    assert output.details["status"] == "failed"
    assert why in output.text


# --- ending -----------------------------------------------------------------------------------------------------------


async def test_a_kill_ends_the_tree_tells_nobody_and_leaves_the_output(bench: Bench) -> None:
    session_id = await started(bench, "echo said; (setsid sleep 61 &); sleep 62", env={"MARK": bench.mark})
    await said(bench, session_id, "said")
    output = await bench.use(PROCESS, action="kill", session_id=session_id)
    assert output.text == f"Killed session {session_id}."
    assert output.details["exit_signal"] == "SIGTERM"
    assert processes_with(f"MARK={bench.mark}") == []
    assert (bench.changes, bench.notices) == ([1, 0], [])
    assert "said" in await bench.text(PROCESS, action="log", session_id=session_id)
    again = await bench.use(PROCESS, action="kill", session_id=session_id)
    assert again.text == f"Failed: session {session_id} has ended already."


async def test_clear_forgets_what_has_ended_and_nothing_else(bench: Bench) -> None:
    running, ended, other = [await started(bench, command) for command in ("sleep 60", "true", "true")]
    await bench.ended(ended)
    await bench.ended(other)
    refused = await bench.text(PROCESS, action="clear", session_id=running)
    assert refused == f"Failed: session {running} still runs; kill or remove it."
    assert await bench.text(PROCESS, action="clear", session_id=ended) == f"Cleared session {ended}."
    assert await bench.text(PROCESS, action="clear") == "Cleared 1 sessions that had ended."
    assert [session.id for session in bench.registry.sessions("mine")] == [running]


async def test_remove_ends_what_runs_and_forgets_it(bench: Bench) -> None:
    running, ended = [await started(bench, command) for command in ("sleep 60", "true")]
    await bench.ended(ended)
    assert await bench.text(PROCESS, action="remove", session_id=running) == f"Killed and removed session {running}."
    assert await bench.text(PROCESS, action="remove", session_id=ended) == f"Cleared session {ended}."
    assert bench.registry.sessions("mine") == []


# --- whose ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [name for name in ProcessInput.__annotations__["action"].__args__ if name != "list"])
async def test_nobody_reaches_the_commands_of_another_scope(bench: Bench, action: str) -> None:
    session_id = await started(bench, "sleep 60")
    output = await bench.use(PROCESS, scope="other", action=action, session_id=session_id)
    assert output.text == f"Failed: there is no session {session_id!r}; the action list shows those that there are."
    assert output.details == {"status": "failed", "error": output.text.removeprefix("Failed: ").removesuffix(".")}
    assert "Nothing runs" in await bench.text(PROCESS, scope="other", action="list")
    assert "Cleared 0" in await bench.text(PROCESS, scope="other", action="clear")
    assert bench.registry.background_count == 1


def test_an_unknown_action_or_too_many_keys_are_refused() -> None:
    for wrong in ({"action": "fly"}, {"action": "send_keys", "keys": ["x"] * 1001}, {"action": "poll", "timeout": -1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, ProcessInput)
