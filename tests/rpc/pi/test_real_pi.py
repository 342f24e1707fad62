"""The pi dialect, the client and the process, with the real pi and a model that does what the prompt says."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from errors import WorkerExited, WorkerRefused
from rpc.client import RpcClient
from rpc.settings import RpcSettings
from rpc.subscription import WorkerSubscription
from rpc.turn import RpcTurn
from tests.real_pi import RealPi
from tests.rpc.pi.conftest import LIMIT, PiWorker, StartPi
from wire.messages import PromptResult, SessionResult, StateResult
from wire.units import Seconds

pytestmark = [pytest.mark.real_pi, pytest.mark.process]

Version = tuple[int, ...]
DEMO_EXTENSION = """
export default function (pi) {
  pi.registerCommand("ask", { handler: async (_args, ctx) => {
    ctx.ui.notify(`answer: ${await ctx.ui.confirm("Sure?", "Really?")}`, "info");
  }});
  pi.registerCommand("go", { handler: async (args, ctx) => {
    pi.sendUserMessage(args);
    await ctx.waitForIdle();
    await new Promise((resolve) => setTimeout(resolve, 200)); // its answer is read long after the end of its run
  }});
  pi.on("tool_call", async (event, ctx) => {
    if (!(await ctx.ui.confirm("Allow?", event.toolName))) return { block: true, reason: "not allowed" };
  });
}
"""


async def prompt(client: RpcClient, text: str) -> PromptResult:
    return await client.request_as(PromptResult, "prompt", {"text": text})


async def state(client: RpcClient) -> StateResult:
    return await client.request_as(StateResult, "get_state")


async def event(events: WorkerSubscription, name: str, **wanted: Any) -> dict[str, Any]:
    """The data of the next such event."""
    async for message in events:
        data = json.loads(bytes(message.data)) if message.event == name else {}
        if message.event == name and wanted.items() <= data.items():
            return dict(data)
    pytest.fail(f"the worker ended without a {name}")


@asynccontextmanager
async def turn_in_background(client: RpcClient, text: str) -> AsyncIterator[list[PromptResult]]:
    """A prompt that runs beside the block; its result is in the list once the block is over."""
    results: list[PromptResult] = []

    async def run() -> None:
        results.append(await prompt(client, text))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield results


# --- one pi that keeps no conversation: what each of its runs owes ---------------------------------------------------


async def a_turn_streams_its_text_and_ends(pi: PiWorker, _version: Version) -> None:
    async with RpcTurn(pi.client, {"text": "CHUNKS=20", "run_id": "mine"}) as turn:
        events = [message async for message in turn]
    pieces = [json.loads(bytes(message.data)) for message in events if message.event == "assistant_message"]
    assert "".join(piece["partial"] for piece in pieces) == turn.result.text
    assert turn.result.text.startswith("word00000 word00001 ")
    assert {piece["run_id"] for piece in pieces} == {"mine"}
    assert turn.result.usage.output_tokens == 20
    assert not pi.client.is_running
    assert (await state(pi.client)).session_file is None


async def a_tool_runs_and_its_output_is_published(pi: PiWorker, _version: Version) -> None:
    phases = []
    async with RpcTurn(pi.client, {"text": "BASH:echo from the tool"}) as turn:
        async for message in turn:
            if message.event == "tool":
                data = json.loads(bytes(message.data))
                phases.append((data["phase"], data.get("result")))
    assert phases[0] == ("start", None)
    assert phases[-1] == ("end", "from the tool\n")
    assert turn.result.text == "after tool: ok"


async def a_text_with_every_awkward_character_comes_back_whole(pi: PiWorker, _version: Version) -> None:
    text = 'null \u2028 \u2029 "quotes" \\ \t \U0001f600 {"type":"abort"}'
    assert (await prompt(pi.client, text)).text == f"echo: {text}"
    assert pi.client.statistics().invalid_lines == 0


async def prompts_that_join_a_run_end_with_it_and_none_is_lost(pi: PiWorker, _version: Version) -> None:
    events = pi.client.subscribe()
    joined: list[PromptResult] = []

    async def join(text: str, behavior: str) -> None:
        params = {"text": text, "streaming_behavior": behavior}
        joined.append(await pi.client.request_as(PromptResult, "prompt", params))

    async with turn_in_background(pi.client, "CHUNKS=20 DELAY_MS=20") as results, trio.open_nursery() as nursery:
        await event(events, "run_start")
        for number in range(3):
            nursery.start_soon(join, f"more {number}", "follow_up" if number else "steer")
        with pytest.raises(WorkerRefused) as refusal:
            await prompt(pi.client, "not now")
        assert refusal.value.details["worker_code"] == "busy"
    events.close()
    assert {result.text for result in (*results, *joined)} == {results[0].text}
    assert results[0].text.startswith("echo: more ")
    recalled = (await prompt(pi.client, "RECALL")).text
    assert recalled.count("more ") == 3
    assert "not now" not in recalled


async def a_steer_that_races_the_end_of_a_run_is_never_left_behind(pi: PiWorker, _version: Version) -> None:
    """It joins the run, continues it, or is refused; it does not ride on the next prompt."""
    for number in range(8):
        expected = f"echo: steer {number}"
        events = pi.client.subscribe()
        async with turn_in_background(pi.client, f"turn {number}") as results:
            await event(events, "token_usage")  # the last thing before the end
            try:
                await pi.client.request("steer", {"text": f"steer {number}"})
            except WorkerRefused as refusal:
                expected = f"echo: turn {number}"
                assert refusal.details["worker_code"] == "idle"  # noqa: PT017 - one of two right outcomes
        events.close()
        assert results[0].text == expected
        assert (await state(pi.client)).pending == 0


async def a_failed_model_call_is_retried_and_the_run_ends_once(pi: PiWorker, _version: Version) -> None:
    async with RpcTurn(pi.client, {"text": f"STATUS=500x1 {time.time()}"}) as turn:
        names = [message.event async for message in turn]
    assert turn.result.stop_reason == "stop"
    assert names.count("run_start") == names.count("done") == 1
    assert names.count("state_changed") == 2
    failed = await prompt(pi.client, "STATUS=500")
    assert failed.stop_reason == "error"
    assert "fake internal error" in (failed.error or "")


async def without_a_transcript_an_abort_says_what_it_leaves(pi: PiWorker, version: Version) -> None:
    left = int(version < (0, 84, 4))  # pi that can clear its queue leaves nothing
    with pi.client.subscribe() as events:
        async with turn_in_background(pi.client, "CHUNKS=500 DELAY_MS=20"):
            await event(events, "assistant_message")
            await pi.client.request("steer", {"text": "left behind"})
            answer = json.loads(bytes(await pi.client.request("abort")))
    assert answer == {"left_in_queue": left}
    assert (await state(pi.client)).pending == left
    await pi.client.request("new_session")
    assert (await state(pi.client)).pending == 0


async def nothing_is_lost_when_stdin_is_closed_after_the_last_answer(pi: PiWorker, _version: Version) -> None:
    result = await prompt(pi.client, "CHUNKS=300")
    status = await pi.process.stop()
    assert result.text.endswith("word00299 ")
    assert str(status) == "exited with code 0"


@pytest.mark.each_pi
async def test_one_pi_keeps_each_promise_of_its_runs(start_pi: StartPi, real_pi: RealPi) -> None:
    async with start_pi("--no-session", settings=RpcSettings(eof_grace=Seconds(20))) as pi:
        for promise in (
            a_turn_streams_its_text_and_ends,
            a_tool_runs_and_its_output_is_published,
            a_text_with_every_awkward_character_comes_back_whole,
            prompts_that_join_a_run_end_with_it_and_none_is_lost,
            a_steer_that_races_the_end_of_a_run_is_never_left_behind,
            a_failed_model_call_is_retried_and_the_run_ends_once,
            without_a_transcript_an_abort_says_what_it_leaves,
            nothing_is_lost_when_stdin_is_closed_after_the_last_answer,
        ):
            await promise(pi, real_pi.version)


# --- one pi that keeps its conversations -----------------------------------------------------------------------------


async def sessions_are_made_left_and_resumed(pi: PiWorker) -> None:
    client = pi.client
    await prompt(client, "ALPHA")
    first = (await state(client)).session_file
    second = await client.request_as(SessionResult, "new_session")
    assert second.session_file != first
    assert (await prompt(client, "RECALL")).text == ""
    resumed = await client.request_as(SessionResult, "switch_session", {"session_file": first})
    assert resumed.session_file == first
    assert (await prompt(client, "RECALL")).text == "ALPHA"
    assert first is not None
    assert Path(first).parent == pi.sessions
    with pytest.raises(WorkerRefused) as refusal:
        await client.request("switch_session", {"session_file": str(pi.sessions / "nope.jsonl")})
    assert refusal.value.details["worker_code"] == "resume_failed"


async def a_session_change_in_a_run_ends_the_run_first(pi: PiWorker) -> None:
    for method in ("new_session", "compact", "switch_session"):
        await prompt(pi.client, "before")
        file = (await state(pi.client)).session_file
        with pi.client.subscribe() as events:
            async with turn_in_background(pi.client, "HANG") as results:
                await event(events, "assistant_message")
                await pi.client.request(method, {"session_file": file} if method == "switch_session" else None)
        assert (results[0].stop_reason, results[0].text) == ("aborted", "before hang ")
        assert not pi.client.is_running
        assert (await prompt(pi.client, "hello")).text == "echo: hello"


async def an_abort_drops_the_queue_and_keeps_the_conversation(pi: PiWorker) -> None:
    await pi.client.request("new_session")
    with pi.client.subscribe() as events:
        async with turn_in_background(pi.client, "CHUNKS=500 DELAY_MS=20") as results:
            await event(events, "assistant_message")
            await pi.client.request("steer", {"text": "left behind"})
            await pi.client.request("follow_up", {"text": "this too"})
            answer = json.loads(bytes(await pi.client.request("abort")))
    assert answer == {"left_in_queue": 0}
    assert results[0].stop_reason == "aborted"
    assert (await state(pi.client)).pending == 0
    assert (await prompt(pi.client, "RECALL")).text == "CHUNKS=500 DELAY_MS=20"


@pytest.mark.each_pi
async def test_one_pi_keeps_each_promise_of_its_sessions(start_pi: StartPi) -> None:
    async with start_pi() as pi:
        await sessions_are_made_left_and_resumed(pi)
        await a_session_change_in_a_run_ends_the_run_first(pi)
        await an_abort_drops_the_queue_and_keeps_the_conversation(pi)


# --- others ----------------------------------------------------------------------------------------------------------


async def test_settings_of_one_worker_stay_its_own_and_outlive_its_sessions(
    start_pi: StartPi, shared_home: Path, real_pi: RealPi
) -> None:
    before = (shared_home / "settings.json").read_text()
    async with start_pi("--model", "fake/fake-1", "--thinking", "off") as pi:
        await pi.client.request("set_model", {"provider": "fake", "model": "fake-think"})
        assert json.loads(bytes(await pi.client.request("set_thinking", {"level": "high"}))) == {"level": "high"}
        await pi.client.request("new_session")
        now = await state(pi.client)
        assert (now.provider, now.model, now.thinking) == ("fake", "fake-think", "high")
        with pytest.raises(WorkerRefused, match="Model not found"):
            await pi.client.request("set_model", {"provider": "fake", "model": "nope"})
        wrote = "fake-think" in (pi.home / "settings.json").read_text()
        assert wrote is (real_pi.version < (0, 74)), "newer releases write other settings, but not these"
    assert (shared_home / "settings.json").read_text() == before
    assert not pi.home.exists()


@pytest.mark.each_pi
async def test_an_extensions_dialogs_are_answered_or_cancelled_and_its_command_may_wait_for_a_run(
    start_pi: StartPi, tmp_path: Path
) -> None:
    extension = tmp_path / "demo.ts"
    extension.write_text(DEMO_EXTENSION)
    async with start_pi("--no-session", "--extension", str(extension)) as pi:
        assert (await prompt(pi.client, "/go hello")).text == "echo: hello", "the run that the command starts"
        assert (await prompt(pi.client, "RECALL")).text == "hello"
        events = pi.client.subscribe()
        await prompt(pi.client, "/ask")
        assert (await event(events, "ui_request", method="notify"))["fields"]["message"] == "answer: false", (
            "nobody there"
        )
        pi.attended.set()
        async with turn_in_background(pi.client, "/ask") as results:
            dialog = await event(events, "ui_request", method="confirm")
            assert pi.client.awaits_person
            await pi.client.request("ui_respond", {"id": dialog["id"], "confirmed": True})
        assert (await event(events, "ui_request", method="notify"))["fields"]["message"] == "answer: true"
        assert results[0] == PromptResult()
        async with turn_in_background(pi.client, "BASH:echo never") as results:
            await event(events, "ui_request", method="confirm")
            await pi.client.request("abort")
        assert results[0].stop_reason == "aborted"
        assert not pi.client.awaits_person


async def test_a_pi_without_a_model_says_so(start_pi: StartPi, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with start_pi("--no-session", source=tmp_path / "empty", ready=False) as pi:
        events = pi.client.subscribe()
        with trio.fail_after(LIMIT):
            failure = await event(events, "start_failed")
        assert "no usable model" in failure["message"]
        assert pi.client.ready is None


async def test_a_pi_that_cannot_start_ends_with_its_reason(start_pi: StartPi) -> None:
    async with start_pi("--frobnicate", ready=False) as pi:
        error = await pi.client.wait_ended()
        assert isinstance(error, WorkerExited)
        assert error.details["exit_code"] == 1
        assert "Unknown option: --frobnicate" in str(error.stderr_tail)
