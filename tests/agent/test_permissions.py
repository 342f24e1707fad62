"""Approvals and policies as the flags of a worker set them, and what its state says meanwhile."""

import msgspec
import pytest
import trio

from tests.agent.inprocess import Client, worker
from wire.messages import PromptResult

EXEC = 'TOOL:exec {"command":"echo ran >> log"} TELL'
ASKED = ("--no-session", "--require-approval", "exec")


async def asked(client: Client, text: str = EXEC) -> tuple[str, str]:
    """Send the prompt and wait for the question; the ids of the request and of the call."""
    request = await client.send("prompt", text=text)
    question = await client.event("permission_required")
    return request, question["call"]["id"]


async def ran() -> int:
    return len((await trio.Path("log").read_text()).split()) if await trio.Path("log").exists() else 0


async def test_an_allowed_call_runs_once_and_a_second_decision_runs_nothing() -> None:
    async with worker(*ASKED) as client:
        request, call_id = await asked(client)
        state = await client.call("get_state")
        assert state["status"]["state"] == "PAUSED"
        assert state["status"]["pending_permissions"] == [call_id]
        decided = await client.call("decide", call_id=call_id, decision="allow", by="ann")
        assert decided == {"call_id": call_id, "decision": "allow"}
        assert await client.refused("decide", call_id=call_id, decision="deny") == "already_decided"
        assert (await client.answer(request))["result"]["stop_reason"] == "stop"
        assert await ran() == 1
        assert (await client.event("permission_decided"))["by"] == "ann"
        assert (await client.call("get_state"))["status"]["state"] == "READY"


async def test_the_note_of_a_denial_reaches_the_model() -> None:
    async with worker(*ASKED) as client:
        request, call_id = await asked(client)
        await client.call("decide", call_id=call_id, decision="deny", note="not on a Friday")
        await client.answer(request)
        result = (await client.call("get_messages"))["messages"][2]["content"][0]
        assert (result["content"]["error_type"], result["content"]["note"]) == ("denied", "not on a Friday")
        assert await ran() == 0


async def test_a_call_that_waited_when_its_worker_died_is_sealed_and_cannot_be_decided(sessions: str) -> None:
    async with worker("--session-dir", sessions, "--require-approval", "exec") as client:
        _, call_id = await asked(client)
        path = (await client.call("get_state"))["session_file"]
        transcript = await trio.Path(path).read_bytes()
    await trio.Path(path).write_bytes(transcript)  # as it was when it was waiting
    async with worker("--session", path) as client:
        resumed = await client.event("agent_resumed")
        assert (resumed["strategy"], resumed["sealed"]) == ("seal", [call_id])
        assert await client.refused("decide", call_id=call_id, decision="allow") == "sealed"


async def test_the_time_of_a_person_does_not_count_as_the_runs(autojump_clock: trio.testing.MockClock) -> None:
    async with worker(*ASKED, "--timeout", "100") as client:
        client.patience = 100_000
        request, call_id = await asked(client, 'TOOL:exec {"command":"none"} HANG')
        await trio.sleep(5_000)
        await client.call("decide", call_id=call_id, decision="deny")
        result = msgspec.convert((await client.answer(request))["result"], PromptResult)
        assert result.stop_reason == "timeout"
        assert trio.current_time() == pytest.approx(5_100, abs=5)


@pytest.mark.parametrize(
    ("flags", "error_type"),
    [
        (("--permission-mode", "readonly"), "denied"),
        (("--deny-tools", "exec"), "denied"),
        (("--tools", "read,ls"), "validation"),
    ],
)
async def test_what_the_flags_forbid_does_not_run(flags: tuple[str, ...], error_type: str) -> None:
    async with worker("--no-session", *flags) as client:
        await client.prompt(EXEC)
        result = (await client.call("get_messages"))["messages"][2]["content"][0]["content"]
        assert result["error_type"] == error_type
        assert await ran() == 0
