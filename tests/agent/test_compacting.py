"""Compaction in a worker: when it happens, what becomes of the run, and what is told when it does not come about."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import trio

from agent.models.base import ModelError, ModelRequest, Piece, TextPiece
from agent.models.scripted import ScriptedModel
from tests.agent.inprocess import SMALL, worker
from wire.messages import PromptResult

NARROW = ("--no-session", "--context-tokens", "20000")
LONG = "ECHO:" + "word " * 2_000


def phases(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["phase"], event["reason"]) for event in events]


async def test_a_conversation_near_the_end_of_the_window_is_compacted_before_it_is_sent() -> None:
    async with worker(*NARROW) as client:
        for _ in range(3):
            assert (await client.prompt(LONG)).stop_reason == "stop"
        result = await client.prompt("RECALL")
        assert result.stop_reason == "stop"
        messages = (await client.call("get_messages"))["messages"]
    assert phases(client.events("compaction"))[:2] == [("start", "threshold"), ("end", "threshold")]
    assert messages[0]["origin"] == "summary"
    assert messages[-2]["content"][0]["text"] == "RECALL"


async def test_a_model_that_finds_the_conversation_too_long_is_asked_once_more_after_a_compaction() -> None:
    async with worker("--no-session") as client:
        await client.prompt("one")
        await client.prompt("two")
        result = await client.prompt("OVERFLOW three")
        assert (result.stop_reason, result.error) == ("stop", None)
    assert phases(client.events("compaction")) == [("start", "overflow"), ("end", "overflow")]


async def test_what_was_shown_is_not_said_again_though_the_model_finds_it_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def half_an_answer(_model: ScriptedModel, _request: ModelRequest) -> AsyncGenerator[Piece, None]:
        yield TextPiece(["half of it"])
        raise ModelError("too long after all", overflow=True)

    async with worker("--no-session") as client:
        for text in ("one", "two", "three"):
            await client.prompt(text)
        monkeypatch.setattr(ScriptedModel, "stream", half_an_answer)
        result = await client.prompt("four")
    assert (result.stop_reason, result.text, result.error) == ("error", "half of it", "too long after all")
    assert client.events("compaction") == []


async def test_what_cannot_be_compacted_ends_the_run_with_the_models_words() -> None:
    async with worker("--no-session") as client:
        result = await client.prompt("OVERFLOW")
    assert (result.stop_reason, result.error) == (
        "error",
        "the scripted model was asked to find the conversation too long",
    )
    assert client.events("compaction") == []


async def test_a_compaction_that_fails_is_told_and_changes_nothing() -> None:
    async with worker("--no-session") as client:
        for text in ("SUMMARY_ERROR", "two", "three"):
            await client.prompt(text)
        before = await client.call("get_messages")
        assert await client.refused("compact") == "compaction_failed"
        assert await client.call("get_messages") == before
        assert (await client.call("get_state"))["is_compacting"] is False
        result = await client.prompt("OVERFLOW")
    assert client.events("compaction")[1]["error"].endswith("the scripted model was asked to fail at the summary")
    assert result.error == client.events("compaction")[1]["error"]


async def test_before_the_window_is_full_a_failed_compaction_is_only_a_warning() -> None:
    async with worker(*NARROW) as client:
        await client.prompt("SUMMARY_ERROR")
        for _ in range(3):
            assert (await client.prompt(LONG)).stop_reason == "stop"
    warning = client.events("error")[0]
    assert (warning["severity"], warning["phase"]) == ("warn", "model")


async def test_a_summary_that_does_not_come_is_given_up_in_its_own_time(autojump_clock: trio.testing.MockClock) -> None:
    async with worker("--no-session") as client:
        client.patience = 1_000
        for text in ("SUMMARY_HANG", "two", "three"):
            await client.prompt(text)
        assert await client.refused("compact") == "compaction_failed"
        assert trio.current_time() == pytest.approx(SMALL.compaction_timeout, abs=1)
    assert "within 120 s" in client.events("compaction")[1]["error"]


async def test_a_run_that_runs_out_of_time_in_a_compaction_says_so(autojump_clock: trio.testing.MockClock) -> None:
    async with worker("--no-session", "--timeout", "60") as client:
        client.patience = 1_000
        for text in ("SUMMARY_HANG", "two"):
            await client.prompt(text)
        result = await client.prompt("OVERFLOW")
        again = await client.prompt("HANG")
    assert result.stop_reason == again.stop_reason == "timeout"
    assert result.error == "the run took longer than 60 s while the conversation was being compacted"
    assert again.error == "the run took longer than 60 s"
    assert client.events("compaction")[1]["aborted"] is True


async def test_an_abort_ends_a_compaction_too() -> None:
    async with worker("--no-session") as client:
        for text in ("SUMMARY_HANG", "two"):
            await client.prompt(text)
        prompt = await client.send("prompt", text="OVERFLOW")
        await client.event("compaction", phase="start")
        assert (await client.call("get_state"))["is_compacting"] is True
        await client.call("abort")
        answer = await client.answer(prompt)
        assert msgspec.convert(answer["result"], PromptResult).stop_reason == "aborted"
        assert (await client.prompt("next")).stop_reason == "stop"


async def test_that_a_model_has_seen_the_conversation_is_noted_after_all_that_may_change_it(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.models.scripted.ScriptedModel.keeps_cache", True)
    async with worker("--session-dir", sessions, "--timeout", "1") as client:
        for text in ("one SUMMARY_HANG", "two", "OVERFLOW", "ERROR"):
            await client.prompt(text)
        path = (await client.call("get_state"))["session_file"]
    kinds = [msgspec.json.decode(line)["type"] for line in (await trio.Path(path).read_bytes()).splitlines()]
    assert kinds == ["session", *("message", "message", "cache-ttl") * 2, "message", "message"]
