"""Runs: steps, steers, follow-ups, aborts, and all the ways in which a run can end."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agent.hook_runner import Hooks
from agent.step_loop import StepLoop
from tests.agent.inprocess import SMALL, Line, worker
from wire.messages import PromptResult

SLEEP = 'TOOL:exec {"command":"echo begun; sleep 60"}'
WRITE = 'TOOL:write {"path":"x","content":""}'


def result_of(answer: dict[str, object]) -> PromptResult:
    return msgspec.convert(answer["result"], PromptResult)


MOMENTS = {
    "while-streaming": ("PIECES=100000 DELAY=20", "assistant_message", 0),
    "while-a-model-is-silent": ("HANG", "run_start", 0),
    "while-tools-run-and-others-wait": (f"PARALLEL {' '.join([SLEEP] * 5)}", "tool:update", 5),
    "while-a-person-is-asked": (WRITE, "permission_required", 1),
    "while-some-run-and-some-are-asked-about": (f"PARALLEL {SLEEP} {WRITE} {WRITE}", "permission_required", 3),
}


@pytest.mark.parametrize(("text", "moment", "results"), MOMENTS.values(), ids=MOMENTS)
async def test_an_interrupt_leaves_one_result_each_one_end_and_a_worker_that_goes_on(
    text: str, moment: str, results: int, workspace: Path
) -> None:
    async with worker("--no-session", "--require-approval", "write") as client:
        prompt = await client.send("prompt", text=text)
        await client.line(lambda line: moment_of(line) == moment)
        assert await client.call("ping") == {}
        assert (await client.call("get_state"))["is_streaming"] is True
        assert (await client.call("abort"))["aborted"] is True
        assert result_of(await client.answer(prompt)).stop_reason == "aborted"
        assert [event["stop_reason"] for event in client.events("done")] == ["aborted"]
        assert [each["error_type"] for each in await client.results()] == ["aborted"] * results
        assert [moment_of(line) for line in client.lines].count("tool:end") == results
        state = await client.call("get_state")
        assert (state["is_streaming"], state["status"]["state"]) == (False, "READY")
        assert state["status"]["pending_permissions"] == []
        assert await client.call("abort") == {"aborted": False, "cleared": 0}  # harmless when idle
        shown = "".join(event["partial"] for event in client.events("assistant_message"))
        last = (await client.call("get_messages"))["messages"][-1]
        assert not shown or last["content"][0]["text"] == shown  # the half answer that was seen is kept
        assert (await client.prompt("ECHO:the next one works")).text == "the next one works"
    assert not (workspace / "x").exists()


def moment_of(line: Line) -> str | None:
    return f"tool:{line['data']['phase']}" if line.get("event") == "tool" else line.get("event")


async def test_a_second_prompt_is_refused_as_busy_unless_it_says_what_it_is() -> None:
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text="HANG")
        assert await client.refused("prompt", text="second") == "busy"
        for method, params in (("new_session", {}), ("switch_session", {"session_file": "x"}), ("compact", {})):
            assert await client.refused(method, **params) == "busy"
        assert await client.call("prompt", text="s", streaming_behavior="steer") == {"queued": "steer"}
        assert await client.call("prompt", text="f", streaming_behavior="follow_up") == {"queued": "follow_up"}
        assert (await client.call("get_state"))["pending"] == 2
        for _ in range(1, SMALL.queued_inputs):
            await client.call("steer", text="x")
        assert await client.refused("steer", text="x") == "queue_full"
        assert await client.call("abort") == {"aborted": True, "cleared": SMALL.queued_inputs + 1}
        assert result_of(await client.answer(prompt)).stop_reason == "aborted"


async def test_a_prompt_after_an_abort_waits_for_the_end_of_the_aborted_run() -> None:
    async with worker("--no-session") as client:
        first = await client.send("prompt", text="HANG")
        await client.send("abort")
        second = await client.send("prompt", text="HANG")
        assert await client.refused("prompt", text="third") == "busy"
        await client.send("abort")
        third = await client.send("prompt", text="hello")
        answers = [result_of(await client.answer(request_id)) for request_id in (first, second, third)]
        assert [answer.stop_reason for answer in answers] == ["aborted", "aborted", "stop"]


async def test_a_steer_is_inserted_before_the_next_model_call() -> None:
    os.mkfifo("gate")  # nobody opens it: the command waits until it is aborted
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text='TOOL:exec {"command":"read line < gate"}')
        await client.event("tool", phase="start")
        await client.call("steer", text="turn left")
        await client.event("queue_update", steers=1)
        await client.call("abort", keep_queue=True)
        await client.answer(prompt)
        result = await client.prompt("go on")
        texts = [message["content"][0].get("text") for message in (await client.call("get_messages"))["messages"]]
        assert texts[-4:-1] == [None, "go on", "[INTERRUPT] New message from user: turn left"]
    assert '"go on" and then "[INTERRUPT] New message from user: turn left"' in result.text


@pytest.mark.parametrize("text", ["PIECES=5 DELAY=1000", "DELAY=1000 LENGTH"], ids=["last", "cut-off"])
async def test_a_steer_during_the_last_answer_gets_an_answer_of_its_own(
    text: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text=text)
        await client.event("run_start")
        await client.call("steer", text="and now?")
        assert "and now?" in result_of(await client.answer(prompt)).text


async def test_a_follow_up_starts_another_step_when_the_run_would_have_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text="DELAY=1000 one")
        await client.call("follow_up", text="ECHO:two")
        await client.call("follow_up", text="RECALL")
        result = result_of(await client.answer(prompt))
        assert (await client.call("get_state"))["pending"] == 0
    assert result.text == 'Earlier you said: ["DELAY=1000 one","ECHO:two"]'


@pytest.mark.parametrize("moment", ["run_start", "assistant_message", "tool:start", "tool:end", "token_usage", "done"])
async def test_whatever_is_accepted_at_whatever_moment_is_read_exactly_once(moment: str, nursery: trio.Nursery) -> None:
    async with worker("--no-session") as client:
        steer = partial(client.send, "prompt", text="LATE", streaming_behavior="steer")
        sent: list[str] = []

        def send_at(line: Line) -> None:
            if moment_of(line) == moment and not sent:
                sent.append(moment)
                nursery.start_soon(steer)

        client.on_line = send_at
        await client.prompt('TOOL:exec {"command":"true"} PIECES=3')
        late = await client.answer("2")
        recalled = (await client.prompt("RECALL")).text
        # Accepted as a steer, refused, or, when the run was over already, a prompt of its own.
        assert "error" not in late or late["error"]["code"] == "not_running"
        assert recalled.count("LATE") == int("error" not in late)


@pytest.mark.parametrize("ending", ["abort", "error", "max_steps"])
async def test_no_steer_outlives_the_run_it_was_for(ending: str, autojump_clock: trio.testing.MockClock) -> None:
    prompts = {"abort": "HANG", "error": "DELAY=1000 ERROR", "max_steps": "DELAY=1000" + ' TOOL:nothing {"a":1}' * 8}
    async with worker("--no-session") as client:
        prompt = await client.send("prompt", text=prompts[ending])
        await client.call("follow_up", text="for the old run")
        if ending == "abort":
            await client.call("abort")
        await client.answer(prompt)
        assert (await client.call("get_state"))["pending"] == 0
        assert "for the old run" not in (await client.prompt("RECALL")).text


async def test_a_run_that_is_ending_accepts_no_steer_and_the_next_prompt_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending, go_on = trio.Event(), trio.Event()

    async def linger(_hooks: Hooks, name: str, _info: Any) -> None:
        if name == "agent_end":
            ending.set()
            await go_on.wait()

    async def has(_hooks: Hooks, name: str) -> bool:
        return name == "agent_end"

    monkeypatch.setattr(Hooks, "notify", linger)
    monkeypatch.setattr(Hooks, "has", has)
    async with worker("--no-session") as client:
        first = await client.send("prompt", text="one")
        await ending.wait()
        assert await client.refused("steer", text="too late") == "not_running"
        assert await client.refused("follow_up", text="too late") == "not_running"
        second = await client.send("prompt", text="RECALL")
        await client.event("state_changed", reason="run_replaced")
        go_on.set()
        assert result_of(await client.answer(first)).text == 'You said: "one". (turn 1)'
        assert result_of(await client.answer(second)).text == 'Earlier you said: ["one"]'


async def test_a_kept_steer_does_not_follow_into_another_conversation() -> None:
    async with worker("--no-session") as client:
        await client.send("prompt", text="HANG")
        await client.call("steer", text="a secret")
        await client.call("abort", keep_queue=True)
        await client.call("new_session")
        assert (await client.prompt("hello")).text == 'You said: "hello". (turn 1)'


async def test_a_failing_model_a_defect_and_a_run_that_could_not_begin_end_as_any_other_run_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(_steps: StepLoop, _prompt: str) -> str:
        raise ExceptionGroup("of a nursery", [LookupError("no such thing")])

    async with worker("--no-session") as client:
        failed = await client.prompt("ERROR")
        with monkeypatch.context() as patched:
            patched.setattr(StepLoop, "run", broken)
            defect = await client.prompt("hello")
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "agent.run_executor", None)  # its import fails
            assert await client.refused("prompt", text="hello") == "internal"
        assert (failed.stop_reason, failed.error) == ("error", "the scripted model was asked to fail")
        assert client.events("error")[0]["message"] == failed.error
        assert (defect.stop_reason, defect.error) == ("error", "internal error: LookupError: no such thing")
        assert [event["stop_reason"] for event in client.events("done")] == ["error"] * 2
        assert (await client.prompt("hello")).stop_reason == "stop"
    assert "agent: internal error: LookupError: no such thing\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("TOOL:fly {}", "there is no tool 'fly'"),
        ('TOOL:read {"path":7,"colour":"red"}', "colour"),
        ("TOOL:exec {}", "command is missing"),
        ('TOOL:read {"path": "a"', "it must be an object"),
        ('TOOL:read {"path":"\\udc00"}', "it must be an object"),
    ],
    ids=["unknown-tool", "wrong-fields", "missing-field", "broken-json", "half-a-character"],
)
async def test_a_call_that_makes_no_sense_ends_with_a_validation_error_and_the_model_goes_on(
    call: str, why: str, sessions: str
) -> None:
    async with worker("--session-dir", sessions) as client:
        result = await client.prompt(f"{call}\nTELL")
        (only,) = await client.results()
    assert (result.stop_reason, result.text) == ("stop", only["error"])
    assert only["error_type"] == "validation"
    assert why in only["error"]
    assert [event["phase"] for event in client.events("tool")] == ["start", "error", "end"]


async def test_a_run_ends_after_its_maximum_of_steps() -> None:
    async with worker("--no-session", limits=msgspec.structs.replace(SMALL, recorded_events=5)) as client:
        result = await client.prompt(" ".join(["TOOL:nothing {}"] * 20))
    assert result.stop_reason == "max_steps"
    assert [event["phase"] for event in client.events("tool")].count("end") == SMALL.max_steps
    assert [event["event"] for event in result.events[4:]] == ["tool", "left_out"]  # what is kept is bounded


async def test_a_run_that_takes_too_long_is_ended(autojump_clock: trio.testing.MockClock) -> None:
    async with worker("--no-session") as client:
        client.patience = 1000
        result = await client.prompt("HANG")
    assert (result.stop_reason, result.error) == ("timeout", "the run took longer than 600 s")


async def test_settings_hold_from_the_next_model_call_on_garbage_breaks_no_line_and_images_are_kept() -> None:
    async with worker("--no-session") as client:
        changed = await client.call("set_model", provider="scripted", model="scripted-large")
        assert changed == {"provider": "scripted", "model": "scripted-large"}
        await client.call("set_thinking", level="high")
        assert (await client.prompt("WHOAMI")).text == "model scripted/scripted-large, thinking high"
        assert (await client.prompt("GARBAGE=7")).stop_reason == "stop"
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        assert "with 1 image(s)" in (await client.prompt("look", images=[image])).text
        assert (await client.call("get_messages"))["messages"][-2]["content"][1]["data"] == "aGk="
    assert len(client.events("garbage")) == 7
