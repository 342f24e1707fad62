"""Commands that a real worker leaves running: they outlive an abort, and their end is told once, to who must hear."""

import os
from pathlib import Path

import pytest

from tests.agent.conformance.processes import RealAgent, agent, tell, tool

pytestmark = pytest.mark.process


async def leave_running(client: RealAgent, command: str) -> str:
    """Start a command in the background; its session's id."""
    await client.prompt(tool("exec", command=command, background=True))
    return str((await client.results())[-1]["details"]["session_id"])


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_command_in_the_background_survives_an_abort_and_not_its_worker(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    async with agent("--no-session") as client:
        name = await leave_running(client, "echo $$ > pid; echo up > pipe; sleep 600")
        (workspace / "pipe").read_text()
        pid = int((workspace / "pid").read_text())
        prompt = await client.send("prompt", text=tool("exec", command="echo begun; sleep 600"))
        await client.line(lambda line: line.get("event") == "tool" and line["data"]["phase"] == "update")
        await client.call("abort")
        assert (await client.answer(prompt))["result"]["stop_reason"] == "aborted"
        assert is_alive(pid)
        assert (await client.call("get_state"))["background"] == 1
        assert "still runs" in (await client.call("process", action="poll", session_id=name))["text"]
        assert client.events("exec_exit") == []
    assert not is_alive(pid)


async def test_the_end_of_a_command_is_told_once_unless_a_front_end_has_caused_it(
    workspace: Path,
) -> None:
    for pipe in ("polled", "own"):
        os.mkfifo(workspace / pipe)
    async with agent("--no-session") as client:
        killed = await leave_running(client, "sleep 600")
        await client.call("process", action="kill", session_id=killed)
        polled = await leave_running(client, "cat polled")
        poll = await client.send("process", action="poll", session_id=polled, timeout=20)
        (workspace / "polled").write_text("seen")
        assert "seen" in (await client.answer(poll))["result"]["text"]
        assert (await client.event("exec_exit"))["session_id"] == polled
        await client.prompt(tool("exec", command="echo in the foreground"))
        own = await leave_running(client, "cat own; exit 3")
        (workspace / "own").write_text("the  last\nwords")
        exit_ = await client.event("exec_exit", session_id=own)
        assert exit_["exit_code"] == 3
        assert exit_["summary"] == f"Exec completed ({own}, code 3) :: the last words"
        assert (await client.call("process", action="poll", session_id=own))["exit_code"] == 3
        assert tell(client.lines, "exec_exit", "session_id") == [polled, own]
        assert tell(client.lines, "background", "running") == [1, 0] * 3
