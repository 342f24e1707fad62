"""A worker with all its parts: hooks at their moments, files that change, commands in the background, what it tells."""

from pathlib import Path
from typing import Any

import pytest

from tests.agent.inprocess import Client, worker

HOOKS = """
from pathlib import Path
from agent.hooks import Deny, SystemPrompt
def _log(*words):
    with Path("hooks.log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
def session_start(info): _log("session_start", info.reason)
def session_end(info): _log("session_end", info.reason)
def agent_end(end): _log("agent_end", end.stop_reason, [m["role"] for m in end.messages][-1])
def before_compaction(info): _log("before_compaction", info.messages)
def after_compaction(info): _log("after_compaction", info.summary.splitlines()[1])
async def before_agent_start(start):
    _log("before_agent_start", start.text, len(start.messages))
    return SystemPrompt("from a hook") if "SYSTEM" in start.text else "Mind the gap."
def before_tool_call(call):
    return Deny("not today") if call.name == "exec" else None
"""


async def test_hooks_are_called_at_their_moments(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text(HOOKS)
    async with worker("--no-session", "--hooks", "../hooks.py") as client:
        assert (await client.prompt("ECHO:hi")).text == "hi"
        assert (await client.prompt("SYSTEM")).text == "from a hook"
        await client.prompt('TOOL:exec {"command":"touch ran"}')
        assert (await client.call("compact"))["compacted"] is True
        assert [result["note"] for result in await client.results()] == ["not today"]
        messages = (await client.call("get_messages"))["messages"]
        await client.call("new_session")
    assert messages[0]["content"][0]["text"].splitlines()[1] == "user: Mind the gap. ECHO:hi"
    assert not (workspace / "ran").exists()
    assert (workspace / "hooks.log").read_text().splitlines() == [
        "session_start start",
        *("before_agent_start ECHO:hi 0", "agent_end stop assistant"),
        *("before_agent_start SYSTEM 2", "agent_end stop assistant"),
        *('before_agent_start TOOL:exec {"command":"touch ran"} 4', "agent_end stop assistant"),
        *("before_compaction 8", "after_compaction user: Mind the gap. ECHO:hi"),
        *("session_end new", "session_start new", "session_end shutdown"),
    ]


async def test_the_status_tells_where_it_stands() -> None:
    async def status(client: Client) -> tuple[Any, ...]:
        found = (await client.call("get_state"))["status"]
        kind = (found["bookmark"] or {}).get("kind")
        return found["state"], found["breakpoint"], found["step_count"], kind, found["last_safe_index"]

    async with worker("--no-session", "--require-approval", "write") as client:
        assert await status(client) == ("READY", "READY", 0, None, -1)
        prompt = await client.send("prompt", text='TOOL:write {"path":"a","content":"b"}\nHANG')
        call = (await client.event("permission_required"))["call"]["id"]
        assert await status(client) == ("PAUSED", "AWAITING_APPROVAL", 1, "assistant", 0)
        await client.call("decide", call_id=call, decision="allow")
        await client.event("tool", phase="end")
        while (stands := await status(client))[2] == 1:
            pass  # the worker goes on by itself
        assert stands == ("WORKING", "PRE_MODEL", 2, "tool", 2)
        found = (await client.call("get_state"))["status"]
        assert found["bookmark"]["seq"] <= found["cursor"]
        await client.call("abort")
        assert (await client.answer(prompt))["result"]["step"] == 2
        assert (await client.event("done"))["step"] == 2
        assert (await status(client))[:2] == ("READY", "READY")


async def test_a_file_that_someone_else_changed_is_told_before_the_next_model_call(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one")
    async with worker("--no-session") as client:
        await client.prompt('TOOL:read {"path":"a.txt"}')
        (workspace / "a.txt").write_text("another")
        await client.prompt("hello")
        assert [event["path"] for event in client.events("file_changed")] == [str(workspace / "a.txt")]
        await client.call("new_session")
        (workspace / "a.txt").write_text("a third")
        await client.prompt("hello")
        assert len(client.events("file_changed")) == 1


async def test_a_command_in_the_background_is_counted_followed_up_and_its_end_told(workspace: Path) -> None:
    async with worker("--no-session") as client:
        result = await client.prompt('TOOL:exec {"command":"echo up; sleep 60","background":true}')
        assert result.stop_reason == "stop"
        await client.event("background", running=1)
        state = await client.call("get_state")
        assert (state["background"], state["is_streaming"]) == (1, False)
        (session,) = (await client.call("process", action="list"))["sessions"]
        poll = await client.send("process", action="poll", session_id=session["session_id"], timeout=30)
        assert (await client.prompt("hello")).stop_reason == "stop"  # nobody waits for a poll
        assert await client.refused("process", action="poll", session_id="no-such") == "not_found"
        await client.call("process", action="kill", session_id=session["session_id"])
        assert (await client.answer(poll))["result"]["status"] == "failed"
        await client.event("background", running=0)
        assert client.events("exec_exit") == []  # it was the user's own wish
        await client.prompt('TOOL:exec {"command":"sleep 0.2; echo done","background":true}')
        notice = await client.event("exec_exit")
        assert (notice["session_key"], notice["exit_code"]) == (state["session_id"], 0)
        assert notice["summary"].endswith(":: done")
        await client.prompt('TOOL:exec {"command":"sleep 60","background":true}')
        await client.call("new_session")
        assert (await client.call("process", action="list"))["sessions"] == []  # the last one's are not this one's
        assert (await client.call("get_state"))["background"] == 1


@pytest.mark.parametrize("flags", [("--no-background",), ("--tools", "exec")])
async def test_without_the_tool_process_nothing_goes_to_the_background(flags: tuple[str, ...]) -> None:
    async with worker("--no-session", *flags) as client:
        result = await client.prompt('TOOL:exec {"command":"echo x","background":true} TELL')
        assert result.text.startswith("Warning: nothing may go to the background")
        assert (result.text.endswith("x\n"), client.events("background")) == (True, [])


@pytest.mark.parametrize(
    ("command", "given", "phase", "facts"),
    [
        ("exit 3", "", "end", {"status": "completed", "exit_code": 3}),
        ("no-such-command", "", "error", {"status": "failed", "exit_code": 127}),
        ("read x", ',"timeout":0.01', "error", {"status": "failed", "timed_out": True}),
        ("echo so far; read x", ',"timeout":1', "update", {"status": "running"}),
    ],
)
async def test_how_a_command_stands_is_told(command: str, given: str, phase: str, facts: dict[str, Any]) -> None:
    async with worker("--no-session") as client:
        await client.prompt(f'TOOL:exec {{"command":"{command}"{given}}}')
        (details,) = [event["details"] for event in client.events("tool") if event["phase"] == phase]
    assert facts.items() <= details.items()
    assert (bool(details["session_id"]), details["pid"] > 0, "tail" in details) == (True, True, False)


async def test_the_list_of_things_to_do_is_told_and_goes_on_in_another_worker(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        await client.prompt('TOOL:todo {"todos":[{"id":"1","text":"sew"}]}')
        assert client.events("todo_changed")[0]["todos"] == [{"id": "1", "text": "sew", "status": "pending"}]
        path = (await client.call("get_state"))["session_file"]
    async with worker("--session-dir", sessions) as client:
        assert (await client.prompt("TOOL:todo {} TELL")).text == "The list is empty."
        await client.call("switch_session", session_file=path)
        assert (await client.prompt("TOOL:todo {} TELL")).text == "[ ] 1: sew"


async def test_a_prompt_may_come_from_another_session_and_may_show_the_model_only_the_last_turns() -> None:
    async with worker("--no-session") as client:
        result = await client.prompt("one", from_session="main")
        message = (await client.call("get_messages"))["messages"][0]
        assert result.text == 'You said: "[Message from another session: main]\none". (turn 1)'
        assert message == {"role": "user", "content": [{"type": "text", "text": "one"}], "from_session": "main"}
        await client.prompt("two")
        assert (await client.prompt("RECALL", history_turns=2)).text == 'Earlier you said: ["two"]'
        assert (await client.prompt("RECALL")).text.endswith('"two","RECALL"]')


async def test_an_image_that_a_prompt_names_is_loaded_and_one_outside_is_noted(workspace: Path) -> None:
    for path in (workspace / "a.png", workspace.parent / "b.png"):
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    async with worker("--no-session") as client:
        result = await client.prompt("compare a.png with ../b.png")
        message = (await client.call("get_messages"))["messages"][0]
    assert "with 1 image(s)" in result.text
    assert "[../b.png was not loaded: it lies outside the workspace]" in result.text
    assert [block["type"] for block in message["content"]] == ["text", "image"]
