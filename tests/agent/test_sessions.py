"""Sessions: a conversation survives the worker that held it, and never reaches another one."""

import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agent.assembly import StartupError
from agent.conversation import SessionStore
from agent.output import WorkerOutput
from tests.agent.inprocess import worker
from wire.entries import TextBlock, TranscriptMessage
from wire.transcript import TranscriptWriter


async def one_session(sessions: str, *texts: str) -> str:
    """Say these texts in a new session; its file."""
    async with worker("--session-dir", sessions) as client:
        path: str = (await client.call("new_session"))["session_file"]
        for text in texts:
            await client.prompt(text)
    return path


def lines_of(path: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in Path(path).read_bytes().splitlines()]


async def test_another_worker_remembers_after_switch_session(sessions: str) -> None:
    path = await one_session(sessions, "alpha", "beta")
    async with worker("--session-dir", sessions) as client:
        switched = await client.call("switch_session", session_file=path)
        state = await client.call("get_state")
        assert switched == {"session_id": state["session_id"], "session_file": path}
        assert (state["session_file"], state["message_count"]) == (path, 4)
        assert (await client.prompt("RECALL")).text == 'Earlier you said: ["alpha","beta"]'


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_session_gets_its_file_with_its_first_message(sessions: str, *, is_first: bool) -> None:
    async with worker("--session-dir", sessions) as client:
        begun = await client.call(*(("get_state",) if is_first else ("new_session",)))
        path = begun["session_file"]
        assert not await trio.Path(sessions).exists()
        assert await client.call("switch_session", session_file=path) == {
            "session_id": begun["session_id"],
            "session_file": path,
        }
        await client.prompt("a secret")
        assert (await client.call("get_state"))["session_file"] == path
        assert [line["type"] for line in lines_of(path)] == ["session", "message", "message"]
        fresh = await client.call("new_session", parent_session="p1")
        assert (await client.prompt("RECALL")).text == "Earlier you said: []"
        assert await trio.Path(path).exists()
    assert lines_of(fresh["session_file"])[0]["parent"] == "p1"


async def test_a_session_without_a_message_leaves_nothing(sessions: str) -> None:
    path = await one_session(sessions)
    assert not await trio.Path(sessions).exists()
    async with worker("--session-dir", sessions) as client:
        assert await client.refused("switch_session", session_file=path) == "transcript_missing"


async def test_without_sessions_nothing_is_written(sessions: str) -> None:
    async with worker("--no-session", "--session-dir", sessions) as client:
        assert (await client.call("new_session"))["session_file"] is None
        await client.prompt("alpha")
    assert not await trio.Path(sessions).exists()


@pytest.mark.parametrize("switched", [False, True])
async def test_seqs_rise_across_the_workers_of_one_session(sessions: str, *, switched: bool) -> None:
    path = await one_session(sessions, "PIECES=500")
    highest = max(line["seq"] for line in lines_of(path)[1:])
    async with worker("--session-dir", sessions, *([] if switched else ["--session", path])) as client:
        if switched:
            await client.call("switch_session", session_file=path)
        await client.prompt("beta")
        assert (await client.event("run_start"))["seq"] > highest > 500
    seqs = [line["seq"] for line in lines_of(path)[1:]]
    assert seqs == sorted(set(seqs))


async def test_who_is_cancelled_while_waiting_for_the_disk_goes_on_only_when_it_is_safe(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, told = threading.Event(), list[str]()
    sync = TranscriptWriter.sync

    def slow_sync(writer: TranscriptWriter) -> None:
        assert go_on.wait(10)
        sync(writer)
        told.append("safe")

    monkeypatch.setattr(TranscriptWriter, "sync", slow_sync)
    conversation = SessionStore(Path(sessions), sessions, WorkerOutput()).create()

    async def wait() -> None:
        conversation.add(TranscriptMessage("user", [TextBlock("hi")]))
        try:
            await conversation.sync()
        finally:
            told.append("over")

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        assert told == []
        go_on.set()
    conversation.close()
    assert (told[0], told.count("safe"), told[-1]) == ("safe", 2, "over")  # the second sync may overtake the first task


async def test_the_model_speaks_while_the_disk_works_and_is_done_when_both_messages_are_on_it(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, synced = threading.Event(), list[int]()
    sync = TranscriptWriter.sync

    def slow_sync(writer: TranscriptWriter) -> None:
        assert go_on.wait(10)
        synced.append(len(lines_of(str(writer.path))))
        sync(writer)

    monkeypatch.setattr(TranscriptWriter, "sync", slow_sync)
    async with worker("--session-dir", sessions) as client:
        prompt = await client.send("prompt", text="THINK ECHO:well", run_id="r")
        await client.event("assistant_message", partial="well")
        await client.call("ping")
        assert not any(line.get("id") == prompt or line.get("event") == "done" for line in client.lines)
        go_on.set()
        await client.answer(prompt)
    assert synced == [3]  # the header, the prompt and the answer: one wait for all


async def test_a_session_held_by_another_worker_is_refused_and_the_own_one_kept(sessions: str) -> None:
    async with worker("--session-dir", sessions) as first, worker("--session-dir", sessions) as second:
        await first.prompt("mine")
        path = (await first.call("get_state"))["session_file"]
        await second.prompt("yours")
        assert await second.refused("switch_session", session_file=path) == "transcript_locked"
        assert (await second.prompt("RECALL")).text == 'Earlier you said: ["yours"]'
        await first.call("new_session")
        await second.call("switch_session", session_file=path)
        assert (await second.prompt("RECALL")).text == 'Earlier you said: ["mine"]'


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "transcript_missing"), (b"", "transcript_damaged"), (b"garbage\n", "transcript_damaged")],
)
async def test_what_is_no_session_is_refused_and_never_overwritten(
    tmp_path: Path, sessions: str, content: bytes | None, code: str
) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_bytes(content)
    async with worker("--session-dir", sessions) as client:
        assert await client.refused("switch_session", session_file=str(path)) == code
        assert (await client.prompt("hello")).stop_reason == "stop"
    assert (path.read_bytes() if content is not None else None) == content
    with pytest.raises(StartupError, match="cannot go on with the session"):
        async with worker("--session", str(path)):
            pass


async def test_a_compaction_keeps_the_last_turns_and_survives_a_resume(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        await client.prompt("one")
        assert (await client.call("compact"))["compacted"] is False
        for text in ("two TOOL:nothing {}", "three", "four"):
            await client.prompt(text)
        compacted = await client.call("compact", instructions="briefly")
        assert (compacted["compacted"], "user: one" in compacted["summary"]) == (True, True)
        before = (await client.call("get_messages"))["messages"]
        path = (await client.call("get_state"))["session_file"]
        assert [event["phase"] for event in client.events("compaction")] == ["start", "end"]
    async with worker("--session", path) as client:
        assert (await client.call("get_messages"))["messages"] == before
        text = (await client.prompt("RECALL")).text
        assert ("user: two" in text, text.endswith('"three","four"]')) == (True, True)
        assert (await client.call("compact"))["compacted"] is True


async def test_continue_takes_the_latest_session_of_this_directory_and_an_id_may_be_cut_short(
    sessions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = await one_session(sessions, "older"), await one_session(sessions, "newer")
    os.utime(older, (1, 1))
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        await one_session(sessions, "of another directory")
    (Path(sessions) / "garbage.jsonl").write_text("garbage")
    async with worker("--session-dir", sessions, "--continue") as client:
        assert (await client.call("get_state"))["session_file"] == newer
    session_id = lines_of(older)[0]["id"]
    async with worker("--session-dir", sessions, "--session", session_id[:13]) as client:
        assert (await client.call("get_state"))["session_id"] == session_id
    with pytest.raises(StartupError, match="no session"):
        async with worker("--session-dir", sessions, "--session", "zzz"):
            pass


async def test_a_transcript_that_cannot_be_written_ends_the_run_and_not_the_worker(
    sessions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    async with worker("--session-dir", sessions) as client:
        await client.prompt("alpha")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            result = await client.prompt("lost")
        assert (result.stop_reason, "No space left" in (result.error or "")) == ("error", True)
        assert (await client.prompt("RECALL")).text == 'Earlier you said: ["alpha"]'


async def test_what_a_command_said_at_the_end_of_its_worker_is_told_by_the_next_one(sessions: str) -> None:
    async with worker("--session-dir", sessions) as client:
        await client.prompt('TOOL:exec {"command": "echo begun; sleep 60", "yield_ms": 100} TELL')
        await client.event("background", running=1)
        path = (await client.call("get_state"))["session_file"]
    async with worker("--session-dir", sessions) as client:
        await client.call("switch_session", session_file=path)
        (command,) = (await client.call("process", action="list"))["sessions"]
        assert (command["exit_signal"], command["tail"]) == ("SIGTERM", "begun\n")
        await client.call("process", action="clear", session_id=command["session_id"])
        await client.call("new_session")
        await client.call("switch_session", session_file=path)
        assert (await client.call("process", action="list"))["sessions"] == []
