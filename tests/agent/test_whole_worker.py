"""A worker with all its parts: hooks at their moments, files that change, commands in the background, what it tells."""

from pathlib import Path
from typing import Any

from tests.agent.inprocess import Client, worker

HOOKS = """
from pathlib import Path
from agent.hooks import Deny, SystemPrompt

def _log(*words):
    with Path("hooks.log").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def session_start(info): _log("session_start", info.reason)
def session_end(info): _log("session_end", info.reason)
def agent_end(end): _log("agent_end", end.stop_reason)
def before_compaction(info): _log("before_compaction", info.messages)
def after_compaction(info): _log("after_compaction", info.summary.splitlines()[1])
async def before_agent_start(start):
    _log("before_agent_start", start.text)
    return SystemPrompt("from a hook") if "SYSTEM" in start.text else "Mind the gap."
def before_tool_call(call):
    return Deny("not today") if call.name == "exec" else None
"""


async def test_hooks_about_runs_are_given_the_conversation(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text(
        "def tell(when, messages):\n"
        "    with open('seen', 'a') as log:\n"
        "        print(when, [(m['role'], m['content'][0].get('text')) for m in messages], file=log)\n"
        "def before_agent_start(start):\n"
        "    tell('before', start.messages)\n"
        "def agent_end(end):\n"
        "    tell('after', end.messages)\n"
    )
    async with worker("--no-session", "--hooks", "../hooks.py") as client:
        await client.prompt("ECHO:one")
    assert (workspace / "seen").read_text().splitlines() == [
        "before []",
        "after [('user', 'ECHO:one'), ('assistant', 'one')]",
    ]


async def test_where_a_run_stands_is_told(workspace: Path) -> None:
    async def status(client: Client) -> tuple[Any, ...]:
        found = (await client.call("get_state"))["status"]
        return found["breakpoint"], found["step_count"], (found["bookmark"] or {}).get("kind")

    async with worker("--no-session", "--require-approval", "write") as client:
        client.patience = 20
        assert await status(client) == ("READY", 0, None)
        prompt = await client.send("prompt", text='TOOL:write {"path":"a","content":"b"}\nHANG')
        call = (await client.event("permission_required"))["call"]["id"]
        assert await status(client) == ("AWAITING_APPROVAL", 1, "assistant")
        await client.call("decide", call_id=call, decision="allow")
        await client.event("tool", phase="end")
        while (stands := await status(client))[1] == 1:
            pass  # the worker goes on by itself
        assert stands == ("PRE_MODEL", 2, "tool")
        await client.call("abort")
        answer = await client.answer(prompt)
        assert answer["result"]["step"] == 2
        assert (await client.event("done"))["step"] == 2
        assert (await status(client))[0] == "READY"


async def test_hooks_are_called_at_their_moments(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text(HOOKS)
    async with worker("--no-session", "--hooks", "../hooks.py") as client:
        client.patience = 20
        assert (await client.prompt("ECHO:hi")).text == "hi"
        assert (await client.prompt("SYSTEM")).text == "from a hook"
        await client.prompt('TOOL:exec {"command":"touch ran"}')
        assert (await client.call("compact"))["compacted"] is True
        assert [result["note"] for result in await client.results()] == ["not today"]
        messages = (await client.call("get_messages"))["messages"]
        await client.call("new_session")
    assert messages[0]["content"][0]["text"].splitlines()[1] == "user: Mind the gap. ECHO:hi"
    assert not (workspace / "ran").exists()
    told = (workspace / "hooks.log").read_text().splitlines()
    assert told == [
        "session_start start",
        *("before_agent_start ECHO:hi", "agent_end stop"),
        *("before_agent_start SYSTEM", "agent_end stop"),
        *('before_agent_start TOOL:exec {"command":"touch ran"}', "agent_end stop"),
        *("before_compaction 8", "after_compaction user: Mind the gap. ECHO:hi"),
        *("session_end new", "session_start new", "session_end shutdown"),
    ]


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
        assert await client.refused("process", action="poll", session_id="no-such") == "not_found"
        polled = await client.call("process", action="poll", session_id=session["session_id"])
        assert polled["status"] == "running"
        await client.call("process", action="kill", session_id=session["session_id"])
        await client.event("background", running=0)
        assert client.events("exec_exit") == []  # it was the user's own wish
        await client.prompt('TOOL:exec {"command":"sleep 0.2; echo done","background":true}')
        notice = await client.event("exec_exit")
        assert notice["session_key"] == state["session_id"]
        assert notice["exit_code"] == 0
        assert notice["summary"].endswith(":: done")


async def test_a_poll_that_waits_holds_nobody_up() -> None:
    async with worker("--no-session") as client:
        await client.prompt('TOOL:exec {"command":"sleep 60","background":true}')
        (session,) = (await client.call("process", action="list"))["sessions"]
        poll = await client.send("process", action="poll", session_id=session["session_id"], timeout=30)
        assert (await client.prompt("hello")).stop_reason == "stop"
        assert await client.call("ping") == {}
        await client.call("process", action="remove", session_id=session["session_id"])
        assert (await client.answer(poll))["result"]["status"] == "failed"


async def test_the_next_session_does_not_see_the_commands_of_the_last_one() -> None:
    async with worker("--no-session") as client:
        await client.prompt('TOOL:exec {"command":"sleep 60","background":true}')
        await client.call("new_session")
        assert (await client.call("process", action="list"))["sessions"] == []
        assert (await client.call("get_state"))["background"] == 1


async def test_without_the_tool_process_nothing_goes_to_the_background() -> None:
    for flags in (("--no-background",), ("--tools", "exec")):
        async with worker("--no-session", *flags) as client:
            result = await client.prompt('TOOL:exec {"command":"echo x","background":true} TELL')
            assert result.text.startswith("Warning: nothing may go to the background")
            assert result.text.endswith("x\n")
            assert client.events("background") == []


async def test_the_list_of_things_to_do_is_told_and_goes_on_in_another_worker(sessions: str) -> None:
    todo = 'TOOL:todo {"todos":[{"id":"1","text":"sew"}]}'
    async with worker("--session-dir", sessions) as client:
        await client.prompt(todo)
        assert client.events("todo_changed")[0]["todos"] == [{"id": "1", "text": "sew", "status": "pending"}]
        path = (await client.call("get_state"))["session_file"]
    async with worker("--session-dir", sessions) as client:
        assert (await client.prompt("TOOL:todo {} TELL")).text == "The list is empty."
        await client.call("switch_session", session_file=path)
        assert (await client.prompt("TOOL:todo {} TELL")).text == "[ ] 1: sew"


async def test_the_status_tells_where_it_stands() -> None:
    async with worker("--no-session") as client:
        ready = (await client.call("get_state"))["status"]
        assert (ready["state"], ready["step_count"], ready["last_safe_index"]) == ("READY", 0, -1)
        await client.prompt("TOOL:nothing {} TOOL:nothing {}")
        request = await client.send("prompt", text='TOOL:exec {"command":"echo up; sleep 60"}')
        await client.event("tool", phase="update")
        status = (await client.call("get_state"))["status"]
        assert (status["state"], status["step_count"]) == ("WORKING", 1)
        assert status["last_safe_index"] == 6
        assert status["bookmark"]["seq"] < status["cursor"]
        await client.call("abort")
        await client.answer(request)
        assert (await client.call("get_state"))["status"]["last_safe_index"] == 8


async def test_what_comes_from_another_session_is_marked_for_the_model_alone() -> None:
    async with worker("--no-session") as client:
        result = await client.prompt("hello", from_session="main")
        message = (await client.call("get_messages"))["messages"][0]
    assert result.text == 'You said: "[Message from another session: main]\nhello". (turn 1)'
    assert message == {"role": "user", "content": [{"type": "text", "text": "hello"}], "from_session": "main"}


async def test_a_prompt_may_show_the_model_only_the_last_turns() -> None:
    async with worker("--no-session") as client:
        for text in ("one", "two"):
            await client.prompt(text)
        assert (await client.prompt("RECALL", history_turns=2)).text == 'Earlier you said: ["two"]'
        assert (await client.prompt("RECALL")).text == 'Earlier you said: ["one","two","RECALL"]'


async def test_an_image_that_a_prompt_names_is_loaded_and_one_outside_is_noted(workspace: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(40)
    (workspace / "a.png").write_bytes(png)
    (workspace.parent / "b.png").write_bytes(png)
    async with worker("--no-session") as client:
        result = await client.prompt("compare a.png with ../b.png")
        message = (await client.call("get_messages"))["messages"][0]
    assert "with 1 image(s)" in result.text
    assert "[../b.png was not loaded: it lies outside the workspace]" in result.text
    assert [block["type"] for block in message["content"]] == ["text", "image"]
