"""The tool process: hearing, talking to and ending what runs in the background, also from another worker."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from agent.processes.exec_session import TAIL_CHARS, ProcessInput
from agent.processes.output import OutputLimits
from agent.processes.registry import RegistryLimits
from agent.tools.base import ToolOutput
from agent.tools.exec import ExecTool
from agent.tools.process import ProcessTool, perform_action
from tests.agent.processes.helpers import Bench, bench_of, processes_with
from wire.entries import ExecRecord

pytestmark = pytest.mark.process

EXEC, PROCESS = ExecTool(), ProcessTool()
ECHOING = "while read line; do echo got $line; done; echo over"


async def started(bench: Bench, command: str, **arguments: Any) -> str:
    """The id of a command in the background."""
    output = await bench.use(EXEC, command=command, background=True, **arguments)
    return str(output.details["session_id"])


async def ended(bench: Bench, command: str) -> str:
    """The id of a background command that has ended."""
    session_id = await started(bench, command)
    await bench.ended(session_id)
    return session_id


async def said(bench: Bench, session_id: str, text: str) -> None:
    """Wait until the command has said this."""
    session = bench.registry.get(session_id, "mine")
    assert session is not None
    with trio.fail_after(10):
        while text not in session.output.text():
            session.has_output = trio.Event()
            await session.has_output.wait()


async def act(bench: Bench, action: str, session_id: str, **more: Any) -> ToolOutput:
    return await bench.use(PROCESS, action=action, session_id=session_id, **more)


async def poll(bench: Bench, session_id: str, timeout: float = 10) -> str:  # noqa: ASYNC109 - the tool's own
    return (await act(bench, "poll", session_id, timeout=timeout)).text


async def observe(bench: Bench, session_id: str, **more: float) -> str:
    """What a poll of a front end beside the agent answers."""
    with trio.fail_after(20):
        request = msgspec.convert({"action": "poll", "session_id": session_id, **more}, ProcessInput)
        return (await perform_action(request, bench.registry, "mine", bench.outputs, observes=True)).text


async def test_a_list_shows_what_runs_and_what_has_ended_newest_first(bench: Bench) -> None:
    assert "Nothing runs" in await bench.text(PROCESS, action="list")
    first = await ended(bench, "exit 3")
    second = await started(bench, "sleep 60;\n\techo " + "x" * 200)
    output = await bench.use(PROCESS, action="list")
    lines = output.text.split("\n")
    assert lines[0].startswith(f"{second}  running  pid ")
    assert lines[0].endswith("sleep 60; echo " + "x" * 62 + "...")
    assert lines[1].startswith(f"{first}  code 3  pid ")
    assert [session["status"] for session in output.details["sessions"]] == ["running", "completed"]


async def test_a_poll_tells_what_is_new_in_the_order_it_came_and_a_front_ends_takes_nothing_of_it(bench: Bench) -> None:
    session_id = await started(bench, "echo one; echo two >&2; read x; echo three; read x; exit 4")
    await said(bench, session_id, "two\n")
    assert (await observe(bench, session_id)).startswith("one\ntwo\n\n")
    assert (await observe(bench, session_id)).startswith("(no new output)")
    first = await act(bench, "poll", session_id, timeout=0)
    assert (first.text, first.details["status"]) == (f"one\ntwo\n\n(Session {session_id} still runs.)", "running")
    assert (await poll(bench, session_id, timeout=0)).startswith("(no new output)\n")
    await act(bench, "submit", session_id)
    await said(bench, session_id, "three\n")
    assert (await observe(bench, session_id)).startswith("three\n\n")
    await act(bench, "submit", session_id)
    last = await act(bench, "poll", session_id, timeout=10)
    assert last.text == f"three\n\n(Session {session_id} has ended: completed, code 4.)"
    assert (last.details["status"], last.details["exit_code"]) == ("completed", 4)


async def test_what_a_command_says_during_a_poll_is_told_before_its_end(bench: Bench) -> None:
    os.mkfifo("gate")
    session_id = await started(bench, "read x; echo begun; read x < gate; echo done")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(poll, bench, session_id, timeout=20))
        await act(bench, "submit", session_id)
        await bench.shown_something.wait()
        assert bench.shown == ["begun\n"]
        await trio.to_thread.run_sync(Path("gate").write_text, "go\n")
    assert bench.shown[-1] == "begun\ndone\n"


@pytest.mark.parametrize("before_the_end", [True, False])
async def test_a_front_ends_poll_leaves_the_notice_to_the_agent(bench: Bench, *, before_the_end: bool) -> None:
    session_id = await started(bench, "read; exit 3")
    async with trio.open_nursery() as nursery:
        if before_the_end:
            nursery.start_soon(partial(observe, bench, session_id, timeout=20))
            await trio.testing.wait_all_tasks_blocked()
        await act(bench, "submit", session_id)
    await bench.ended(session_id)
    assert "code 3" in await observe(bench, session_id)
    assert [notice.summary for notice in bench.notices] == [f"Exec completed ({session_id}, code 3)"]


async def test_a_poll_that_missed_much_says_so(bench: Bench) -> None:
    session_id = await ended(bench, "seq 1 100000")
    for text in (await observe(bench, session_id), await poll(bench, session_id)):
        assert text.startswith("[cut: ")
        assert "; the last " in text.partition("\n")[0]
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
    session_id = await ended(bench, "seq 500")
    assert (await act(bench, "log", session_id, **window)).text == "\n".join([*map(str, lines), note])


async def test_what_is_written_arrives_and_the_end_of_input_too(bench: Bench) -> None:
    session_id = await started(bench, ECHOING)
    text = (await act(bench, "write", session_id, data="a\nb")).text
    assert text == f"Wrote 3 bytes to session {session_id}."
    await act(bench, "submit", session_id, data="c")
    await act(bench, "paste", session_id, data="d\n")
    assert (await act(bench, "write", session_id, eof=True)).text.endswith(", and ended its input.")
    assert (await poll(bench, session_id)).startswith("got a\ngot bc\ngot d\nover\n")


async def test_a_command_that_does_not_read_takes_what_fits_and_no_call_waits_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.processes.exec_session._WRITE_TIMEOUT", 0.2)
    session_id = await started(bench, "sleep 60")
    output = await act(bench, "write", session_id, data="x" * 1_000_000)
    assert output.details["status"] == "failed"
    assert "it took 65536 of 1000000 bytes" in output.text
    session_id = await started(bench, "exec <&-; echo closed; sleep 60")
    await said(bench, session_id, "closed")
    for more in ({"data": "x"}, {"eof": True}):
        output = await act(bench, "write", session_id, **more)
        assert output.text == "Failed: the command has closed its input."


async def test_a_terminal_takes_keys_lines_and_an_end(bench: Bench) -> None:
    session_id = await started(bench, f"trap 'echo interrupted' INT; echo up; {ECHOING}", pty=True)
    await said(bench, session_id, "up")
    await act(bench, "send_keys", session_id, keys=["C-c"])
    await said(bench, session_id, "interrupted")
    await act(bench, "submit", session_id, data="line")
    await said(bench, session_id, "got line")
    await act(bench, "send_keys", session_id, keys=["h", "i", "Enter"])
    await said(bench, session_id, "got hi")
    await act(bench, "write", session_id, eof=True)
    assert "over" in await poll(bench, session_id)


@pytest.mark.parametrize(
    ("keys", "pty", "why"), [(["Enter"], False, "no terminal"), (["Hyper"], True, "no key 'Hyper'")]
)
async def test_keys_that_cannot_be_sent_are_a_failure(bench: Bench, keys: list[str], *, pty: bool, why: str) -> None:
    output = await act(bench, "send_keys", await started(bench, "sleep 60", pty=pty), keys=keys)
    assert (output.details["status"], why in output.text) == ("failed", True)


async def test_a_kill_ends_the_tree_tells_nobody_and_leaves_the_output(bench: Bench) -> None:
    session_id = await started(bench, "echo said; (setsid sleep 61 &); sleep 62", env={"MARK": bench.mark})
    await said(bench, session_id, "said")
    output = await act(bench, "kill", session_id)
    assert (output.text, output.details["exit_signal"]) == (f"Killed session {session_id}.", "SIGTERM")
    assert (processes_with(f"MARK={bench.mark}"), bench.changes, bench.notices) == ([], [1, 0], [])
    assert "said" in (await act(bench, "log", session_id)).text
    assert (await act(bench, "kill", session_id)).text == f"Failed: session {session_id} has ended already."


async def test_clear_forgets_what_has_ended_and_remove_ends_what_runs(bench: Bench) -> None:
    running, over, _ = await started(bench, "sleep 60"), await ended(bench, "true"), await ended(bench, "true")
    refused = (await act(bench, "clear", running)).text
    assert refused == f"Failed: session {running} still runs; kill or remove it."
    assert (await act(bench, "clear", over)).text == f"Cleared session {over}."
    assert await bench.text(PROCESS, action="clear") == "Cleared 1 sessions that had ended."
    assert [session.id for session in bench.registry.sessions("mine")] == [running]
    over = await ended(bench, "true")
    assert (await act(bench, "remove", running)).text == f"Killed and removed session {running}."
    assert (await act(bench, "remove", over)).text == f"Cleared session {over}."
    assert bench.registry.sessions("mine") == []


@pytest.mark.parametrize("action", [name for name in ProcessInput.__annotations__["action"].__args__ if name != "list"])
async def test_nobody_reaches_the_commands_of_another_scope(bench: Bench, action: str) -> None:
    session_id = await started(bench, "sleep 60")
    output = await bench.use(PROCESS, scope="other", action=action, session_id=session_id)
    assert output.text == f"Failed: there is no session {session_id!r}; the action list shows those that there are."
    assert output.details == {"status": "failed", "error": output.text.removeprefix("Failed: ").removesuffix(".")}
    assert "Nothing runs" in await bench.text(PROCESS, scope="other", action="list")
    assert "Cleared 0" in await bench.text(PROCESS, scope="other", action="clear")
    assert len(bench.registry.background_ids()) == 1


def test_an_unknown_action_or_too_many_keys_are_refused() -> None:
    for wrong in ({"action": "fly"}, {"action": "send_keys", "keys": ["x"] * 1001}, {"action": "poll", "timeout": -1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, ProcessInput)


class Kept(dict[str, ExecRecord]):
    """The latest record of each command of the scope ``mine``, as a transcript has them."""

    def __call__(self, scope: str, record: ExecRecord) -> None:
        assert scope == "mine"
        self[record.id] = record

    def restore(self, bench: Bench) -> None:
        bench.registry.restore(self.values(), scope_key="mine")


async def test_another_registry_tells_the_same_of_a_command_that_has_ended(bench: Bench) -> None:
    kept = bench.registry.save_record = Kept()
    name = await ended(bench, "echo one; echo two >&2; exit 3")
    log, listed = (await act(bench, "log", name)).text, await bench.text(PROCESS, action="list")
    async with bench_of() as second:
        kept.restore(second)
        assert await second.text(PROCESS, action="list") == listed
        assert (await act(second, "log", name)).text == log == "one\ntwo\n[lines 1 to 2 of 2]"
        assert await poll(second, name) == f"one\ntwo\n\n(Session {name} has ended: completed, code 3.)"
        assert second.notices == []
        assert (await act(second, "write", name, data="x")).text == "Failed: the command has ended."
        await act(second, "clear", name)
    name = await ended(bench, "seq 3000")
    kept.restore(bench)  # what is known already is not restored
    assert (await act(bench, "log", name)).text.endswith("[lines 2801 to 3000 of 3000]")
    await act(bench, "clear", name)
    assert (kept[name].cleared, kept[name].tail) == (True, "")


async def test_what_a_poll_has_shown_is_not_new_in_another_registry(bench: Bench) -> None:
    kept = bench.registry.save_record = Kept()
    async with bench_of() as second, bench_of() as third:
        second.registry.save_record = kept
        name = await started(bench, "echo one; read x; echo two")
        await said(bench, name, "one")
        assert (await poll(bench, name, timeout=0)).startswith("one\n\n")
        await act(bench, "submit", name)
        await bench.ended(name)
        kept.restore(second)
        assert (await poll(second, name)).startswith("two\n\n")
        kept.restore(third)
        assert (await poll(third, name)).startswith("(no new output)\n\n")


async def test_of_a_long_output_the_end_is_left_and_it_is_said_that_there_was_more(workspace: object) -> None:
    kept = Kept()
    async with bench_of(limits=RegistryLimits(output=OutputLimits(kept=5_000))) as first, bench_of() as second:
        first.registry.save_record = kept
        name = await ended(first, "seq 3000")
        assert len(kept[name].tail) == TAIL_CHARS
        kept.restore(second)
        assert (await poll(second, name)).startswith("[the beginning is no longer kept]\n")
        log = (await act(second, "log", name)).text
        assert log.endswith("\n3000\n[lines 201 to 400 of 400] [the beginning of the output is no longer kept]")


async def test_a_command_that_died_with_its_worker_is_lost_and_stays_so(bench: Bench) -> None:
    kept = bench.registry.save_record = Kept()
    async with bench_of() as second, bench_of() as third:
        second.registry.save_record = kept
        name = await started(bench, "sleep 60")
        kept.restore(second)
        end = f"(Session {name} has ended: failed, lost with its worker.)"
        assert await poll(second, name) == f"(no new output)\n\n{end}"
        assert kept[name].lost
        kept.restore(third)
        assert (await poll(third, name)).endswith(end)
        assert third.registry.get(name, "mine").ended_at == second.registry.get(name, "mine").ended_at  # type: ignore[union-attr]
