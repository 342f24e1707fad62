"""Commands and files that mean no good, given to a real worker: it goes on, and leaves nobody behind."""

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


async def test_a_command_that_waits_for_input_holds_nobody_up() -> None:
    async with agent("--no-session") as client:
        waiting = await use(client, "exec", command="read line; echo got $line", yield_ms=50)
        assert waiting["details"]["status"] == "running"
        said = f'{{"action":"submit","session_id":"{waiting["details"]["session_id"]}","data":"this"}}'
        poll = said.replace("submit", "poll").replace('"data":"this"', '"timeout":20')
        await client.prompt(f"TOOL:process {said} TOOL:process {poll}")
        assert (await client.results())[-1]["data"].startswith("got this\n")
    async with agent("--no-session", "--no-background") as client:
        assert (await use(client, "exec", command="cat; echo nothing came"))["data"] == "nothing came\n"


async def test_files_that_are_no_text_lead_outside_or_hold_a_text_twice_are_refused_in_words(workspace: Path) -> None:
    (workspace / "binary").write_bytes(bytes(range(256)) * 40)
    (workspace / "twice").write_text("same\nother\nsame\n")
    (workspace.parent / "secret").write_text("secret")
    (workspace / "link").symlink_to(workspace.parent / "secret")
    async with agent("--no-session") as client:
        assert "binary" in (await use(client, "read", path="binary"))["error"]
        for path in ("link", "../secret", str(workspace.parent / "secret")):
            assert "outside the working directory" in (await use(client, "read", path=path))["error"]
            assert "outside the working directory" in (await use(client, "write", path=path, content=""))["error"]
        twice = await use(client, "edit", path="twice", edits=[{"old_text": "same", "new_text": "new"}])
        assert "occurs 2 times, at lines 1, 3" in twice["error"]
    assert (workspace / "twice").read_text() == "same\nother\nsame\n"
    assert (workspace.parent / "secret").read_text() == "secret"


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
