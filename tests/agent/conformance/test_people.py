"""Who may stop a call of a real worker: a person, once, in words the model hears; and hooks, which only tighten."""

from pathlib import Path

import pytest

from tests.agent.conformance.processes import RealAgent, agent, tool
from tests.agent.inprocess import Line

pytestmark = pytest.mark.process

ASKED = ("--require-approval", "exec")
RUN = tool("exec", command="echo ran >> log")


def ran(workspace: Path) -> int:
    log = workspace / "log"
    return len(log.read_text().split()) if log.exists() else 0


async def asked(client: RealAgent, text: str) -> tuple[str, str]:
    """Send a prompt; its id, and that of the call that a person is asked about."""
    prompt = await client.send("prompt", text=text)
    return prompt, (await client.event("permission_required"))["call"]["id"]


# --- people -----------------------------------------------------------------------------------------------------------


async def test_the_note_of_a_denial_reaches_the_model_and_nothing_runs(workspace: Path) -> None:
    async with agent("--no-session", *ASKED) as client:
        prompt, call_id = await asked(client, f"{RUN} TELL")
        await client.call("decide", call_id=call_id, decision="deny", note="not on a Friday", by="ann")
        assert "denied" in (await client.answer(prompt))["result"]["text"]
        (result,) = await client.results()
        assert (result["error_type"], result["note"]) == ("denied", "not on a Friday")
        assert (await client.event("permission_decided"))["note"] == "not on a Friday"
    assert ran(workspace) == 0


async def test_a_call_is_decided_once_and_a_second_decision_runs_nothing(workspace: Path) -> None:
    async with agent("--no-session", *ASKED) as client:
        prompt, call_id = await asked(client, RUN)
        first = await client.send("decide", call_id=call_id, decision="allow")
        others = [await client.send("decide", call_id=call_id, decision=each) for each in ("allow", "deny", "allow")]
        assert "error" not in await client.answer(first)
        assert {(await client.answer(other))["error"]["code"] for other in others} == {"already_decided"}
        await client.answer(prompt)
        assert await client.refused("decide", call_id=call_id, decision="allow") == "already_decided"
        assert await client.refused("decide", call_id="never-seen", decision="allow") == "nothing_pending"
        assert len(client.events("permission_decided")) == 1
    assert ran(workspace) == 1


async def test_a_sealed_call_cannot_be_decided_any_more(workspace: Path, sessions: str) -> None:
    async with agent("--session-dir", sessions, *ASKED) as client:
        path = await client.session()
        _, call_id = await asked(client, RUN)
        await client.kill()
    async with agent("--session", path, *ASKED) as client:
        assert (await client.event("agent_resumed"))["sealed"] == [call_id]
        assert await client.refused("decide", call_id=call_id, decision="allow") == "sealed"
        assert (await client.prompt("ECHO:on")).text == "on"
    assert ran(workspace) == 0


async def test_decisions_said_while_the_questions_are_still_being_told_are_taken(workspace: Path) -> None:
    async with agent("--no-session", *ASKED) as client:
        decided: list[str] = []

        def decide(line: Line) -> None:
            if line.get("event") == "permission_required":
                decided.append(line["data"]["call"]["id"])
                client.soon("decide", call_id=decided[-1], decision="deny" if len(decided) == 2 else "allow")

        client.on_line = decide
        assert (await client.prompt(f"PARALLEL {RUN} {RUN} {RUN}")).stop_reason == "stop"
        assert [result["ok"] for result in await client.results()] == [True, False, True]
    assert ran(workspace) == 2


# --- hooks ------------------------------------------------------------------------------------------------------------

HOOKS = """
import trio
from agent.hooks import Ask, UseResult

async def before_tool_call(call):
    match call.input.get("command", ""):
        case "raise": raise RuntimeError("no idea")
        case "exit": raise SystemExit(3)
        case "hang": await trio.sleep_forever()
        case "nonsense": return 42

def agent_end(end):
    raise ValueError("at the end")
"""
LAX = """
from agent.hooks import Ask, UseResult

def before_tool_call(call):
    return UseResult("never mind") if "relax" in call.input.values() else None
"""


async def test_a_hook_that_raises_or_hangs_costs_its_call_and_never_the_run(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text(HOOKS)
    words = [tool("exec", command=word) for word in ("raise", "exit", "nonsense", "hang", "echo ran >> log")]
    async with agent("--no-session", "--hooks", "../hooks.py") as client:
        result = await client.prompt(f"PARALLEL {' '.join(words)}")
        assert result.stop_reason == "stop"
        *failed, fine = await client.results()
        assert [each["error_type"] for each in failed] == ["runtime"] * 4
        reasons = ("no idea", "SystemExit", "answered what it may not", "took longer than 5 s")
        assert all(reason in each["error"] for reason, each in zip(reasons, failed, strict=True))
        assert fine["ok"]
        warned = [event["message"] for event in client.events("error") if event["severity"] == "warn"]
        assert len(warned) == 5
        assert "at the end" in warned[-1]
    assert ran(workspace) == 1


async def test_no_hook_can_relax_what_is_denied_or_asked_about(workspace: Path) -> None:
    (workspace.parent / "hooks.py").write_text(LAX)
    flags = ("--deny-tools", "write", "--require-approval", "exec", "--hooks", "../hooks.py")
    words = [tool("write", path="x", content="relax"), tool("exec", command="relax"), tool("read", path="relax")]
    async with agent("--no-session", *flags) as client:
        prompt, call_id = await asked(client, f"PARALLEL {' '.join(words)}")
        await client.call("decide", call_id=call_id, decision="deny")
        await client.answer(prompt)
        denied, asked_about, free = await client.results()
        assert denied["error"] == "The call of write was denied: it is on the deny list."
        assert asked_about["error"] == "The call of exec was denied: the user does not allow it."
        assert free == {"ok": True, "data": "never mind"}  # where the rules have no objection the hook is obeyed
    assert not (workspace / "x").exists()
