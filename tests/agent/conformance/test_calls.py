"""Tool calls of a real worker: one result each, in order, written down before they act, whatever is wrong with them."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conformance.processes import agent, calls, records_of, results_of, tool
from tests.agent.inprocess import Line
from wire.entries import CallState, MessageEntry
from wire.transcript import read_entries

pytestmark = pytest.mark.process


async def test_one_result_for_every_call_whatever_becomes_of_it(sessions: str, workspace: Path) -> None:
    words = [
        tool("exec", command="echo fine"),
        tool("exec", command="exit 3"),
        tool("exec", command="kill -9 $$"),
        tool("read", path="absent"),
        tool("read", wrong=1),
        tool("nothing"),
        "TOOL:read {broken",
    ]
    async with agent("--session-dir", sessions, "--deny-tools", "write") as client:
        path = await client.session()
        first = await client.prompt(f"PARALLEL {tool('write', path='x', content='')} {' '.join(words)}")
        assert first.stop_reason == "stop"
        blocks = await client.blocks()
        assert len(calls(blocks)) == len(words) + 1
        assert [result["tool_use_id"] for result in results_of(blocks)] == calls(blocks)
        assert [result["ok"] for result in await client.results()] == [False, True, True, *[False] * 5]
    messages = [entry.message for entry in read_entries(path) if isinstance(entry, MessageEntry)]
    (of_tools,) = [message for message in messages if message.origin == "tool"]
    assert len(of_tools.content) == len(words) + 1
    assert not (workspace / "x").exists()


async def test_results_stand_in_the_order_of_the_calls_though_the_last_is_done_first(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    async with agent("--no-session") as client:
        slow, quick = tool("exec", command="cat pipe"), tool("exec", command="echo quick")
        prompt = await client.send("prompt", text=f"PARALLEL {slow} {quick}")
        ended = await client.line(lambda line: line.get("event") == "tool" and line["data"]["phase"] == "end")
        assert ended["data"]["call"]["input_preview"] == '{"command":"echo quick"}'
        (workspace / "pipe").write_text("slow\n")  # only now can the first one end
        await client.answer(prompt)
        assert [result["data"] for result in await client.results()] == ["slow\n", "quick\n"]
        blocks = await client.blocks()
        assert [result["tool_use_id"] for result in results_of(blocks)] == calls(blocks)


async def test_every_move_of_a_call_is_on_the_disk_before_it_takes_effect(sessions: str) -> None:
    async with agent("--session-dir", sessions, "--require-approval", "exec") as client:
        path = await client.session()
        too_early: list[Line] = []
        client.on_line = lambda line: None if is_written(path, line) else too_early.append(line)
        prompt = await client.send("prompt", text=tool("exec", command=f"cp '{path}' seen"))
        question = await client.event("permission_required")
        await client.call("decide", call_id=question["call"]["id"], decision="allow", by="ann")
        await client.answer(prompt)
        assert too_early == []
        # What the command itself found on the disk: that it was allowed, and that it runs.
        (*_, record) = records_of("seen", question["call"]["id"])
        assert (record.state, record.approval and record.approval.decision) == (CallState.RUNNING, "allow")
        states = [record.state for record in records_of(path, question["call"]["id"])]
        assert states == ["AWAITING_APPROVAL", "AWAITING_APPROVAL", "RUNNING", "COMPLETED"]


def is_written(path: str, line: Line) -> bool:
    """Whether what an event says of a call stands in the transcript already."""
    told: dict[str, Any] = line.get("data", {})
    if line.get("event") == "permission_decided":
        approvals = [record.approval for record in records_of(path, told["call_id"])]
        return any(approval is not None and approval.decision == told["decision"] for approval in approvals)
    state = told.get("call", {}).get("state", "PENDING")  # which needs no entry of its own: the message is that
    return state == "PENDING" or state in {record.state for record in records_of(path, told["call"]["id"])}


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (tool("fly", to="the moon"), "there is no tool 'fly'"),
        (tool("read", path=7, colour="red"), "colour"),
        (tool("exec"), "command"),
        ('TOOL:read {"path": "a"', "path"),
    ],
    ids=["unknown-tool", "wrong-fields", "missing-field", "broken-json"],
)
async def test_a_call_that_makes_no_sense_ends_with_a_validation_error_and_the_model_goes_on(
    word: str, why: str, sessions: str
) -> None:
    async with agent("--session-dir", sessions) as client:
        path = await client.session()
        result = await client.prompt(f"{word}\nTELL")
        (only,) = await client.results()
        assert (only["ok"], only["error_type"]) == (False, "validation")
        assert why in only["error"]
        assert result.text == only["error"]
        (call_id,) = calls(await client.blocks())
        phases = [line["data"]["phase"] for line in client.lines if line.get("event") == "tool"]
        assert phases == ["start", "error", "end"]
        assert {record.state for record in records_of(path, call_id)} == {CallState.FAILED}


async def test_a_model_that_never_stops_calling_tools_is_stopped_after_its_steps(workspace: Path) -> None:
    async with agent("--no-session", "--max-steps", "4") as client:
        result = await client.prompt(f"FOREVER {tool('exec', command='echo again >> log')}")
        assert result.stop_reason == "max_steps"
        assert (workspace / "log").read_text() == "again\n" * 4
        assert len(await client.results()) == 4
        assert (await client.prompt("ECHO:and now this")).text == "and now this"


CLIENT_TOOLS = [{"name": "ask_user", "description": "ask", "parameters": {"type": "object"}}]


async def test_a_run_ends_with_the_calls_of_the_clients_own_tools_and_the_next_prompt_brings_their_results(
    sessions: str,
) -> None:
    text = f"PARALLEL {tool('ask_user', question='why?')} {tool('exec', command='echo ours')}"
    async with agent("--session-dir", sessions) as client:
        path = await client.session()
        result = await client.prompt(text, client_tools=CLIENT_TOOLS)
        assert result.stop_reason == "tool_calls"
        (call,) = result.calls
        assert (call["name"], call["input"]) == ("ask_user", {"question": "why?"})
        assert [given["data"] for given in await client.results()] == ["ours\n"]
        await client.kill()  # whoever takes the conversation up still knows whose call it is
    async with agent("--session", path) as client:
        brought: list[dict[str, Any]] = [{"tool_use_id": call["id"], "content": "because"}]
        assert (await client.prompt("", tool_results=brought)).stop_reason == "stop"
        assert client.events("agent_resumed") == []
        blocks = await client.blocks()
        assert sorted(result["tool_use_id"] for result in results_of(blocks)) == sorted(calls(blocks))
        assert "because" in await client.results()


async def test_what_a_call_sets_holds_for_its_own_process_and_nowhere_else(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "skill").mkdir()
    (workspace / "skill" / "SKILL.md").write_text("---\nname: paint\ndescription: x\nenv:\n  SHADE: dark\n---\n")
    show = 'pwd; echo "[$COLOUR] [$SHADE]"'
    async with agent("--no-session", "--skill", "skill") as client:
        started_in, started_with = place_of(client.process.pid)
        both = tool("exec", command=show, workdir="sub", env={"COLOUR": "blue"}), tool("exec", command=show)
        await client.prompt(f"PARALLEL {' '.join(both)}")
        await client.prompt(tool("exec", command="cd sub; umask 777; ulimit -n 10; export COLOUR=red"))
        await client.prompt(tool("exec", command=show))
        shown = [result["data"] for result in await client.results()]
        plain = f"{started_in}\n[] [dark]\n"
        assert shown == [f"{started_in}/sub\n[blue] [dark]\n", plain, "(no output)", plain]
        assert place_of(client.process.pid) == (started_in, started_with)
    assert b"COLOUR" not in started_with
    assert b"SHADE" not in started_with


def place_of(pid: int) -> tuple[str, bytes]:
    """Where a process is, and what the kernel knows of its environment."""
    return str(Path(f"/proc/{pid}/cwd").readlink()), Path(f"/proc/{pid}/environ").read_bytes()
