"""Hostile commands and files against a real worker: it stays up and leaves no process behind."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.agent.conformance.processes import RealAgent, agent, tool
from tests.agent.processes.helpers import processes_with

pytestmark = pytest.mark.process


async def use(client: RealAgent, name: str, **arguments: Any) -> dict[str, Any]:
    """The result of one call."""
    await client.prompt(tool(name, **arguments))
    result: dict[str, Any] = (await client.results())[-1]
    return result


async def test_commands_that_misbehave_end_with_their_worker_whatever_they_do(workspace: Path) -> None:
    for pipe in ("first", "second"):
        os.mkfifo(workspace / pipe)
    commands = [
        "trap '' TERM; echo > first; while :; do sleep 600; done",
        "(trap '' TERM; setsid setsid sleep 600 </dev/null >/dev/null 2>&1 &); echo > second; sleep 600",
        "setsid yes & yes >&2",
        "cat",
    ]
    async with agent("--no-session") as client:
        words = [tool("exec", command=command, background=True, env={"MARK": str(workspace)}) for command in commands]
        await client.prompt(f"PARALLEL {' '.join(words)}")
        assert [result["details"]["status"] for result in await client.results()] == ["running"] * 4
        for pipe in ("first", "second"):
            (workspace / pipe).read_text()  # it has got as far as it is to get
        assert len(processes_with(f"MARK={workspace}")) >= 5
    assert processes_with(f"MARK={workspace}") == []


async def test_a_flood_of_any_bytes_is_bounded_and_text() -> None:
    async with agent("--no-session") as client:
        begun = trio.current_time()
        result = await use(client, "exec", command="head -c 3000000 /dev/urandom; printf '\\nlast \\377 word\\n'")
        elapsed = trio.current_time() - begun
        assert result["data"].endswith("last \ufffd word\n")
        assert len(result["data"]) < 60_000
        assert max(len(event.get("tail", "")) for event in client.events("tool")) <= 2_000
        updates = [event for event in client.events("tool") if event["phase"] == "update"]
        assert len(updates) <= elapsed * 20 + 2
        assert len(client.raw) < 200_000 + 12_000 * len(updates)  # a character takes six bytes at most
        assert (await use(client, "exec", command="yes | head -c 50000000"))["ok"]


async def test_a_link_that_is_swapped_all_the_time_never_leads_outside(workspace: Path) -> None:
    (workspace.parent / "out").mkdir()
    (workspace.parent / "out/file").write_text("secret")
    (workspace / "in").mkdir()
    (workspace / "in/file").write_text("mine")
    swap = "while :; do ln -sfn in here; ln -sfn ../out here; done"
    async with agent("--no-session") as client:
        await use(client, "exec", command=f"ln -s in here; {swap}", background=True)
        looks = [tool("read", path="here/file"), tool("grep", pattern="secret", path="here")] * 60
        shown: list[str] = []
        with trio.fail_after(20):
            while not any("mine" in text for text in shown):  # whoever swaps it may pause while it leads outside
                await client.prompt(f"PARALLEL {' '.join(looks)}")
                told = [str(result.get("data", "")) for result in (await client.results())[1 + len(shown) :]]
                assert len(told) == 120
                shown += told
        assert not any("secret" in text for text in shown)
        for number in range(3):
            await client.prompt(f"PARALLEL {' '.join([tool('write', path=f'here/{number}', content='x')] * 20)}")
    assert [path.name for path in (workspace.parent / "out").iterdir()] == ["file"]
