"""Compaction in a worker: when it happens, what becomes of the run, and what is told when it does not come about."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import trio

from agent.models.base import ModelError, ModelRequest, Piece, TextPiece
from agent.models.scripted import ScriptedModel
from tests.agent.inprocess import SMALL, Client, worker

NARROW = ("--no-session", "--context-tokens", "20000")
LONG = "ECHO:" + "word " * 2_000


def phases(client: Client) -> list[tuple[str, str]]:
    return [(event["phase"], event["reason"]) for event in client.events("compaction")]


async def said(client: Client, *texts: str) -> list[tuple[str, str | None]]:
    """Say these texts; how the runs ended."""
    results = [await client.prompt(text) for text in texts]
    return [(result.stop_reason, result.error) for result in results]


async def test_a_conversation_near_the_end_of_the_window_is_compacted_before_it_is_sent() -> None:
    async with worker(*NARROW) as client:
        assert await said(client, LONG, LONG, LONG, "RECALL") == [("stop", None)] * 4
        messages = (await client.call("get_messages"))["messages"]
    assert phases(client)[:2] == [("start", "threshold"), ("end", "threshold")]
    assert (messages[0]["origin"], messages[-2]["content"][0]["text"]) == ("summary", "RECALL")


async def test_a_model_that_finds_the_conversation_too_long_is_asked_once_more_after_a_compaction() -> None:
    async with worker("--no-session") as client:
        # With nothing to compact, the run ends with the model's words.
        ended = ("error", "the scripted model was asked to find the conversation too long")
        assert await said(client, "OVERFLOW") == [ended]
        assert client.events("compaction") == []
        await client.call("new_session")
        assert await said(client, "one", "two", "OVERFLOW three") == [("stop", None)] * 3
    assert phases(client) == [("start", "overflow"), ("end", "overflow")]


async def test_what_was_shown_is_not_said_again_though_the_model_finds_it_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def half_an_answer(_model: ScriptedModel, _request: ModelRequest) -> AsyncGenerator[Piece, None]:
        yield TextPiece(["half of it"])
        raise ModelError("too long after all", overflow=True)

    async with worker("--no-session") as client:
        await said(client, "one", "two", "three")
        monkeypatch.setattr(ScriptedModel, "stream", half_an_answer)
        result = await client.prompt("four")
    assert (result.stop_reason, result.text, result.error) == ("error", "half of it", "too long after all")
    assert client.events("compaction") == []


async def test_a_compaction_that_fails_is_told_and_changes_nothing() -> None:
    async with worker("--no-session") as client:
        await said(client, "SUMMARY_ERROR", "two", "three")
        before = await client.call("get_messages")
        assert await client.refused("compact") == "compaction_failed"
        assert await client.call("get_messages") == before
        assert (await client.call("get_state"))["is_compacting"] is False
        ((_, error),) = await said(client, "OVERFLOW")
    why = client.events("compaction")[1]["error"]
    assert (why.endswith("the scripted model was asked to fail at the summary"), error) == (True, why)


async def test_before_the_window_is_full_a_failed_compaction_is_only_a_warning() -> None:
    async with worker(*NARROW) as client:
        assert await said(client, "SUMMARY_ERROR", LONG, LONG, LONG) == [("stop", None)] * 4
    warning = client.events("error")[0]
    assert (warning["severity"], warning["phase"]) == ("warn", "model")


async def test_a_summary_that_does_not_come_is_given_up_in_its_own_time_or_the_runs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with worker("--no-session") as client:
        client.patience = 1_000
        await said(client, "SUMMARY_HANG", "two", "three")
        assert await client.refused("compact") == "compaction_failed"
        assert trio.current_time() == pytest.approx(SMALL.compaction_timeout, abs=1)
    assert "within 120 s" in client.events("compaction")[1]["error"]
    async with worker("--no-session", "--timeout", "60") as client:
        client.patience = 1_000
        assert (await said(client, "SUMMARY_HANG", "two", "OVERFLOW", "HANG"))[2:] == [
            ("timeout", "the run took longer than 60 s while the conversation was being compacted"),
            ("timeout", "the run took longer than 60 s"),
        ]
    assert client.events("compaction")[1]["aborted"] is True


async def test_an_abort_ends_a_compaction_too() -> None:
    async with worker("--no-session") as client:
        await said(client, "SUMMARY_HANG", "two")
        prompt = await client.send("prompt", text="OVERFLOW")
        await client.event("compaction", phase="start")
        assert (await client.call("get_state"))["is_compacting"] is True
        await client.call("abort")
        ended: dict[str, Any] = (await client.answer(prompt))["result"]
        assert ended["stop_reason"] == "aborted"
        assert await said(client, "next") == [("stop", None)]


async def test_that_a_model_has_seen_the_conversation_is_noted_after_all_that_may_change_it(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.models.scripted.ScriptedModel.keeps_cache", True)
    async with worker("--session-dir", sessions, "--timeout", "1") as client:
        await said(client, "one SUMMARY_HANG", "two", "OVERFLOW", "ERROR")
        path = (await client.call("get_state"))["session_file"]
    kinds = [msgspec.json.decode(line)["type"] for line in (await trio.Path(path).read_bytes()).splitlines()]
    assert kinds == ["session", *("message", "message", "cache-ttl") * 2, "message", "message"]
