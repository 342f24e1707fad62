"""Runs of a real worker: interrupted at any moment, steered, followed up, and what it says of itself meanwhile."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conformance.processes import RealAgent, agent, calls, results_of, tell, tool

pytestmark = pytest.mark.process

HANG = tool("exec", command="echo begun; exec cat pipe")


class Gate:
    """What a command waits at that reads from ``pipe``."""

    def __init__(self, workspace: Path) -> None:
        self._pipe = workspace / "pipe"
        os.mkfifo(self._pipe)

    def open(self) -> None:
        self._pipe.write_text("\n")


@pytest.fixture
def gate(workspace: Path) -> Gate:
    return Gate(workspace)


async def state_of(client: RealAgent) -> dict[str, Any]:
    status: dict[str, Any] = (await client.call("get_state"))["status"]
    return status


# --- interrupts -------------------------------------------------------------------------------------------------------

MOMENTS = {
    "while-streaming": ("PIECES=100000 DELAY=20", "assistant_message", 0),
    "while-a-model-is-silent": ("HANG", "run_start", 0),
    "while-tools-run-and-others-wait": (f"PARALLEL {' '.join([HANG] * 5)}", "tool_update", 5),
    "while-a-person-is-asked": (tool("write", path="x", content=""), "permission_required", 1),
    "while-some-run-and-some-are-asked-about": (
        f"PARALLEL {HANG} {tool('write', path='x', content='')} {tool('write', path='y', content='')}",
        "permission_required",
        3,
    ),
}


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize(("text", "moment", "results"), MOMENTS.values(), ids=MOMENTS)
async def test_an_interrupt_leaves_one_result_each_one_end_and_a_worker_that_goes_on(
    text: str, moment: str, results: int, workspace: Path, sessions: str
) -> None:
    async with agent("--session-dir", sessions, "--require-approval", "write") as client:
        prompt = await client.send("prompt", text=text)
        await client.line(lambda line: moment_of(line) == moment)
        assert (await client.call("abort"))["aborted"] is True
        result = (await client.answer(prompt))["result"]
        assert result["stop_reason"] == "aborted"
        assert tell(client.lines, "done", "stop_reason") == ["aborted"]
        blocks = await client.blocks()
        assert len(calls(blocks)) == results
        assert [block["tool_use_id"] for block in results_of(blocks)] == calls(blocks)
        assert {block["content"]["error_type"] for block in results_of(blocks)} <= {"aborted"}
        assert (await state_of(client))["state"] == "READY"
        assert (await state_of(client))["pending_permissions"] == []
        assert (await client.prompt("ECHO:the next one works")).text == "the next one works"
    assert not (workspace / "x").exists()


def moment_of(line: dict[str, Any]) -> str | None:
    if line.get("event") == "tool":
        return f"tool_{line['data']['phase']}"
    return line.get("event")


async def test_to_interrupt_an_idle_worker_is_harmless() -> None:
    async with agent("--no-session") as client:
        assert await client.call("abort") == {"aborted": False, "cleared": 0}
        assert (await client.prompt("ECHO:one")).text == "one"
        assert await client.call("abort") == {"aborted": False, "cleared": 0}
        assert (await client.prompt("ECHO:two")).text == "two"
        assert tell(client.lines, "done", "stop_reason") == ["stop", "stop"]


async def test_an_interrupt_in_the_very_breath_of_its_prompt_ends_it_once() -> None:
    async with agent("--no-session") as client:
        for _ in range(20):
            prompt, abort = await client.send("prompt", text="PIECES=100000 DELAY=20"), await client.send("abort")
            assert (await client.answer(abort))["result"]["aborted"] is True
            assert (await client.answer(prompt))["result"]["stop_reason"] == "aborted"
        assert tell(client.lines, "done", "stop_reason") == ["aborted"] * 20
        assert (await client.prompt("ECHO:on")).text == "on"


# --- what comes in while it runs --------------------------------------------------------------------------------------


async def test_a_steer_reaches_the_model_as_an_interrupt_before_its_next_call(gate: Gate) -> None:
    async with agent("--no-session") as client:
        prompt = await client.send("prompt", text=tool("exec", command="echo begun; cat pipe"))
        await client.line(lambda line: moment_of(line) == "tool_update")
        assert await client.call("steer", text="look left") == {"queued": "steer"}
        gate.open()
        assert "[INTERRUPT] New message from user: look left" in (await client.answer(prompt))["result"]["text"]
        kinds = [
            [block["type"] for block in each["content"]] for each in (await client.call("get_messages"))["messages"]
        ]
        assert kinds == [["text"], ["tool_use"], ["tool_result"], ["text"], ["text"]]


async def test_a_follow_up_extends_the_run_that_would_have_ended(gate: Gate) -> None:
    async with agent("--no-session") as client:
        prompt = await client.send("prompt", text=tool("exec", command="echo begun; cat pipe"))
        await client.line(lambda line: moment_of(line) == "tool_update")
        assert await client.call("follow_up", text="and then") == {"queued": "follow_up"}
        gate.open()
        assert '"and then"' in (await client.answer(prompt))["result"]["text"]
        assert tell(client.lines, "done", "stop_reason") == ["stop"]
        assert (await state_of(client))["step_count"] == 3


@pytest.mark.parametrize("moment", ["run_start", "assistant_message", "tool_start", "tool_end", "token_usage", "done"])
async def test_whatever_is_accepted_at_whatever_moment_is_read_exactly_once(moment: str) -> None:
    async with agent("--no-session") as client:
        asked: list[str] = []

        def send_at(line: dict[str, Any]) -> None:
            if moment_of(line) == moment and not asked:
                asked.append("sent")
                client.soon("prompt", text="LATE", streaming_behavior="steer")

        client.on_line = send_at
        await client.prompt(tool("exec", command="true") + " PIECES=3")
        late = await client.answer("2")
        recalled = (await client.prompt("RECALL")).text
        # Accepted as a steer, refused, or, when the run was over already, a prompt of its own.
        assert "error" not in late or late["error"]["code"] == "not_running"
        assert recalled.count("LATE") == int("error" not in late)


# --- what it says of itself -------------------------------------------------------------------------------------------


async def test_its_state_is_ready_working_paused_and_ready_again(gate: Gate) -> None:
    async with agent("--no-session", "--require-approval", "write") as client:
        assert (await state_of(client))["state"] == "READY"
        words = tool("exec", command="echo begun; cat pipe"), tool("write", path="x", content="")
        prompt = await client.send("prompt", text=" ".join(words))
        await client.line(lambda line: moment_of(line) == "tool_update")
        assert (await state_of(client))["state"] == "WORKING"
        gate.open()
        call_id = (await client.event("permission_required"))["call"]["id"]
        paused = await state_of(client)
        assert (paused["state"], paused["pending_permissions"]) == ("PAUSED", [call_id])
        await client.call("decide", call_id=call_id, decision="allow")
        await client.answer(prompt)
        ready = await state_of(client)
        assert (ready["state"], ready["pending_permissions"], ready["last_safe_index"]) == ("READY", [], 5)
        assert tell(client.lines, "state_changed", "state") == ["processing", "idle"]


async def test_a_changed_list_and_a_file_that_someone_changed_are_told_once(workspace: Path, gate: Gate) -> None:
    (workspace / "a.txt").write_text("one")
    words = [
        tool("todo", todos=[{"id": "1", "text": "first"}]),
        tool("read", path="a.txt"),
        tool("exec", command="echo begun; cat pipe"),
        tool("read", path="a.txt"),
        tool("write", path="b.txt", content="mine"),
        tool("read", path="b.txt"),
    ]
    async with agent("--no-session") as client:
        prompt = await client.send("prompt", text=" ".join(words))
        await client.line(lambda line: moment_of(line) == "tool_update")
        (workspace / "a.txt").write_text("two")
        gate.open()
        await client.answer(prompt)
        (told,) = client.events("todo_changed")
        assert [todo["text"] for todo in told["todos"]] == ["first"]
        assert [Path(path).name for path in tell(client.lines, "file_changed", "path")] == ["a.txt"]
