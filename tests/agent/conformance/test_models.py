"""A real worker whose model is on the other side of HTTP: ten steps, odd pieces, faults, a window too small."""

import base64
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from fixtures.fake_openai import FakeOpenAI
from tests.agent.conformance.processes import RealAgent, agent, calls, results_of, tell
from tests.agent.models.conftest import until_told

pytestmark = pytest.mark.process

KEY = "sk-very-secret"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def flags(server: FakeOpenAI, model: str = "fake-1") -> tuple[str, ...]:
    return ("--provider", "openai", "--model", model, "--base-url", server.url)


def step(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


def script(*steps: Any) -> str:
    return f"SCRIPT:{json.dumps(steps)}"


def check_pairs(messages: Iterable[dict[str, Any]]) -> None:
    """As servers insist on it: after each message with calls their results, and results nowhere else."""
    waiting: Counter[str] = Counter()
    for message in messages:
        if message["role"] == "tool":
            waiting.subtract([message["tool_call_id"]])
            assert min(waiting.values()) >= 0
        else:
            assert not +waiting
            waiting = Counter(call["id"] for call in message.get("tool_calls", ()))
    assert not +waiting


TEN_STEPS = script(
    step("write", path="a.txt", content="one\ntwo\n"),
    step("read", path="a.txt"),
    step("edit", path="a.txt", edits=[{"old_text": "two", "new_text": "three"}]),
    [step("ls"), step("grep", pattern="three"), step("find", pattern="*.txt")],
    step("exec", command="printf '\\377\\303'; cat a.txt"),
    step("todo", todos=[{"id": "1", "text": "ten steps"}]),
    step("exec", command="sleep 600", background=True),
    step("process", action="list"),
    step("read", path="shot.png"),
    step("nothing"),
    "that was all",
)


async def test_ten_steps_of_tools_whatever_pieces_their_arguments_come_in(server: FakeOpenAI, workspace: Path) -> None:
    (workspace / "shot.png").write_bytes(PNG)
    async with agent(*flags(server), "--no-session", OPENAI_API_KEY=KEY) as client:
        result = await client.prompt(f"ODD_ARGS DRIP=97 CRLF COMMENTS {TEN_STEPS}")
        assert (result.stop_reason, result.text) == ("stop", "that was all")
        assert (await client.call("get_state"))["status"]["step_count"] == 11
        results = await client.results()
        assert [each["ok"] for each in results] == [True] * 11 + [False]
        assert (workspace / "a.txt").read_text() == "one\nthree\n"
        sent = server.seen[-1].body["messages"]
        check_pairs(sent)
        told = [json.loads(message["content"]) for message in sent if message["role"] == "tool"]
        assert [result.pop("details", None) is None for result in results].count(False) >= 2
        assert told == results  # what is for people and programs only was left out
        shown = [part["image_url"]["url"] for part in parts_of(sent) if part["type"] == "image_url"]
        assert shown == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"] * 2  # the prompt's, and the tool's
        assert server.seen[-1].headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() not in client.raw


def parts_of(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for each in messages if isinstance(each.get("content"), list) for part in each["content"]]


def test_one_prompt_in_the_terminal_goes_its_ten_steps_too(server: FakeOpenAI, workspace: Path) -> None:
    (workspace / "shot.png").write_bytes(PNG)
    command = [sys.executable, "-P", "-m", "agent", *flags(server), "--no-session", "-p", TEN_STEPS]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_PROXY": "*"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, "that was all\n")
    sent = server.seen[-1].body["messages"]
    check_pairs(sent)
    assert len([message for message in sent if message["role"] == "tool"]) == 12


# --- faults -----------------------------------------------------------------------------------------------------------


async def check_answered(client: RealAgent, text: str) -> None:
    result = await client.prompt(text)
    assert (result.stop_reason, result.text) == ("stop", f"echo: {text}"), result


async def check_answered_at_once(client: RealAgent, text: str) -> None:
    """At the first attempt: an error would be told, also one that is followed by another attempt."""
    before = client.events("error")
    await check_answered(client, text)
    assert client.events("error") == before


async def test_a_server_that_asks_for_time_gets_it_and_the_run_goes_on(server: FakeOpenAI) -> None:
    async with agent(*flags(server), "--no-session") as client:
        begun = trio.current_time()
        await check_answered(client, "STATUS=429x1 RETRY_AFTER=2.5 hello")
        assert trio.current_time() - begun >= 2.5
        (warning,) = client.events("error")
        assert (warning["severity"], warning["phase"], warning["delay"]) == ("warn", "model", 2.5)
        assert "answered 429" in warning["message"]


@pytest.mark.parametrize(
    ("text", "message", "kept"),
    [
        ("CUT", "in the middle", "partial answer "),
        ("RESET", "broke off", "partial answer "),
        ("BADJSON", "cannot be read", "echo: BADJSON"),
        ("BADUTF8", "cannot be read", "echo: BADUTF8"),
        ("STREAMERROR", "overloaded", "echo: STREAMERROR"),
        ("HTML", "web page: is the base URL right", ""),
        ("STATUS=401", "no key was sent: set OPENAI_API_KEY", ""),
    ],
)
async def test_a_broken_answer_is_an_error_in_clear_words_and_the_next_prompt_works(
    text: str, message: str, kept: str, server: FakeOpenAI
) -> None:
    async with agent(*flags(server), "--no-session") as client:
        result = await client.prompt(text)
        assert result.stop_reason == "error"
        assert message in (result.error or "")
        assert result.text == kept  # what was shown cannot be taken back, so it is part of the conversation
        await check_answered_at_once(client, "and now")
        check_pairs(server.seen[-1].body["messages"])


async def test_a_model_that_falls_silent_can_be_left_and_asked_again(server: FakeOpenAI) -> None:
    async with agent(*flags(server), "--no-session") as client:
        for text in ("HANG now", "HANGHEAD now"):
            prompt = await client.send("prompt", text=text)
            await until_told(server.hanging, text)
            assert (await client.call("ping")) == {}
            await client.call("abort")
            assert (await client.answer(prompt))["result"]["stop_reason"] == "aborted"
            await until_told(server.hung_up, text)
        await check_answered_at_once(client, "and now")
        assert tell(client.lines, "done", "stop_reason") == ["aborted", "aborted", "stop"]


# --- a window that is too small ---------------------------------------------------------------------------------------

LONG = [step("exec", command=f"echo step {number}; seq 300") for number in range(10)]


async def check_kept(client: RealAgent) -> None:
    """After the cut, too, each call stands with its result."""
    blocks = await client.blocks()
    assert calls(blocks)
    assert [result["tool_use_id"] for result in results_of(blocks)] == calls(blocks)


async def test_a_conversation_too_long_for_its_model_is_compacted_and_goes_on(
    server: FakeOpenAI, sessions: str
) -> None:
    async with agent(*flags(server, "fake-window-20000"), "--session-dir", sessions) as client:
        server.seen.clear()
        result = await client.prompt(script(*LONG, "finished"))
        assert (result.stop_reason, result.text) == ("stop", "finished"), result
        told = client.events("compaction")
        assert told[0]["reason"] == "overflow"
        assert [event["phase"] for event in told] == ["start", "end"] * (len(told) // 2)
        for seen in server.seen:
            check_pairs(seen.body["messages"])
        await check_kept(client)
        ran = [call["input_preview"] for call in tell(client.lines, "tool_executed", "call")]
        assert ran == [json.dumps(each["arguments"], separators=(",", ":")) for each in LONG]


async def test_a_conversation_near_its_window_is_compacted_before_and_no_call_loses_its_result(
    server: FakeOpenAI,
) -> None:
    async with agent(*flags(server), "--no-session", "--context-tokens", "24000") as client:
        server.seen.clear()
        result = await client.prompt(script(*LONG, *LONG, "finished"))
        assert (result.stop_reason, result.text) == ("stop", "finished"), result
        assert {event["reason"] for event in client.events("compaction")} == {"threshold"}
        for seen in server.seen:
            check_pairs(seen.body["messages"])
        await check_kept(client)
        assert len(client.events("tool_executed")) == 20


async def test_a_conversation_of_a_large_model_goes_on_with_a_small_one(server: FakeOpenAI) -> None:
    async with agent(*flags(server), "--no-session") as client:
        for number in range(12):
            assert (await client.prompt(f"{number} " + "long " * 780)).stop_reason == "stop"
        await client.call("set_model", provider="openai", model="fake-window-16000")
        result = await client.prompt("and now?")
        assert (result.stop_reason, result.text) == ("stop", "echo: and now?"), result
        assert (await client.prompt("and now?")).text == "echo: and now?"
