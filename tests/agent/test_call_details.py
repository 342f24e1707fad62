"""What events tell of the command that a call is about: its name, where it runs, how it ended."""

from typing import Any

import pytest

from tests.agent.calling import Bench, FakeTool, Input
from tests.agent.inprocess import worker


async def details_of(command: str, phase: str, **given: Any) -> dict[str, Any]:
    fields = "".join(f',"{name}":{value}' for name, value in given.items())
    async with worker("--no-session") as client:
        await client.prompt(f'TOOL:exec {{"command":"{command}"{fields}}}')
        (found,) = [event["details"] for event in client.events("tool") if event["phase"] == phase]
        assert isinstance(found, dict)
        return found


@pytest.mark.parametrize(
    ("command", "given", "phase", "facts"),
    [
        ("exit 3", {}, "end", {"status": "completed", "exit_code": 3}),
        ("no-such-command", {}, "error", {"status": "failed", "exit_code": 127}),
        ("kill -9 $$", {}, "error", {"status": "failed", "exit_signal": "SIGKILL"}),
        ("read x", {"timeout": 0.01}, "error", {"status": "failed", "timed_out": True}),
        ("read x", {"background": "true"}, "end", {"status": "running"}),
        ("echo so far; read x", {"timeout": 1}, "update", {"status": "running"}),
    ],
)
async def test_how_a_command_stands_is_told(command: str, given: Any, phase: str, facts: dict[str, Any]) -> None:
    details = await details_of(command, phase, **given)
    assert facts.items() <= details.items()
    assert details["session_id"]
    assert details["pid"] > 0
    assert "tail" not in details


async def test_other_details_are_not_told() -> None:
    async def talk(_arguments: Input, _context: object) -> str:
        return "said"

    def changed(_call: object, _result: object) -> dict[str, Any]:
        return {"ok": True, "data": "said", "details": {"pid": "no number"}}

    bench = Bench(FakeTool("talk", talk), hooks={"tool_result_persist": changed})
    await bench.run(("talk", {}))
    assert [data for name, data in bench.events if name == "tool" and "details" in data] == []
