"""A front end names a conversation by key, path or id: it gets that one, or a sentence, and never an empty one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from errors import UsageError
from gateway.front_ends.lookup import IdPattern, find_transcripts, looks_like_id
from tests.gateway.front_ends.front_end import attached
from tests.gateway.world import World

ID = "019a3f00-1111-7abc-8def-0123456789ab"


def write_transcript(directory: Path, conversation: str, *, cwd: str = "/", name: str | None = None) -> Path:
    """One with a line before its header, as some programs write it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (name or f"2026-01-01T00-00-00Z_{conversation}.jsonl")
    header = {"type": "session", "id": conversation, "cwd": cwd}
    path.write_text(f'{{"type": "title"}}\n{json.dumps(header)}\n')
    return path


def keep(world: World, path: Path, *texts: str) -> None:
    """Have the workers know the conversation."""
    world.launcher.transcripts[str(path)] = list(texts)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["019a3f00", "019a3f00-", "019a3f00-1111-7", ID], True),
        (["carol", "019a3f0", "019a3f000", "123456789", "019A3F00", f"{ID}0", "agent:main:dm:7"], False),
    ],
)
def test_eight_digits_of_a_uuid_look_like_an_id(texts: list[str], *, expected: bool) -> None:
    assert [looks_like_id(text) for text in texts] == [expected] * len(texts)


def test_the_conversation_changed_last_comes_first_and_other_files_are_passed_over(tmp_path: Path) -> None:
    old, new = (write_transcript(tmp_path, ID[:-1] + digit) for digit in "ab")
    os.utime(old, (1, 1))
    renamed = write_transcript(tmp_path, "ffffffff-0", name="renamed.jsonl")
    (tmp_path / f"x_{ID}.jsonl").write_text("garbage")
    os.mkfifo(tmp_path / f"pipe_{ID}.jsonl")
    places = [tmp_path, tmp_path / "none"]
    assert [found.path for found in find_transcripts(IdPattern(ID[:8]), places)] == [str(new), str(old)]
    assert [found.path for found in find_transcripts(IdPattern(ID, exact=True), places)] == [str(new)]
    assert [found.path for found in find_transcripts(IdPattern("ffffffff"), places)] == [str(renamed)]


@pytest.mark.parametrize("wanted", [ID, ID[:8], ID[:13]])
async def test_an_id_or_its_beginning_finds_a_conversation_on_disk(world: World, tmp_path: Path, wanted: str) -> None:
    keep(world, write_transcript(tmp_path / "sessions" / "main", ID), "before")
    async with attached(world, wanted) as front:
        await front.prompt("after")
        assert front.answer(1)["result"]["text"] == "before|after"
        assert front.view["session"].startswith("attach-")


async def test_an_id_finds_the_session_that_has_the_conversation(world: World, tmp_path: Path) -> None:
    path = write_transcript(tmp_path / "elsewhere", ID)
    keep(world, path, "before")
    async with attached(world, str(path)) as front:
        session = front.view["session"]
        async with attached(world, ID[:8]) as other:
            assert other.view["session"] == session
        async with attached(world, None, arguments=["--session-id", ID]) as other:
            assert other.view["session"] == session


async def test_a_directory_for_transcripts_is_looked_into(world: World, tmp_path: Path) -> None:
    keep(world, write_transcript(tmp_path / "own", ID), "before")
    async with attached(world, ID[:8], arguments=["--session-dir", str(tmp_path / "own")]) as front:
        await front.prompt("after")
        assert front.answer(1)["result"]["text"] == "before|after"


@pytest.mark.parametrize(
    ("session", "arguments", "words"),
    [
        (ID[:8], [], "no conversation has an id that begins with '019a3f00'"),
        (None, ["--session-id", ID], "cannot begin one under an id of your choice"),
        (None, ["--session-id", ID[:8]], "no conversation has the id '019a3f00'"),
        ("alice", ["--session-id", ID], "give one of them"),
        ("/no/such.jsonl", [], "there is no transcript /no/such.jsonl"),
        ("such.jsonl", [], "there is no transcript /such.jsonl"),
        (None, ["--fork", ID], "send the request fork or clone"),
        (None, ["--name", "mine"], "have no names"),
        (None, ["--name", " "], "not blank"),
    ],
)
async def test_what_cannot_be_had_is_refused_and_begins_nothing(
    world: World, session: str | None, arguments: list[str], words: str
) -> None:
    params = {"arguments": arguments, "cwd": "/"} | ({"session": session} if session else {})
    with pytest.raises(UsageError, match=words):
        await world.call("attach.open", **params)
    assert list(world.gateway.sessions) == []


async def test_a_transcript_of_another_data_directory_is_opened_by_no_name(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    path = write_transcript(other / "sessions" / "main", ID)
    (other / "supervisor.lock").touch()
    for named in ({"session": str(path)}, {"session": ID[:8], "arguments": ["--session-dir", str(path.parent)]}):
        with pytest.raises(UsageError, match=f"belongs to the data directory {other}"):
            await world.call("attach.open", cwd="/", **{"arguments": [], **named})
    async with attached(world, None) as front:
        await front.request("switch_session", 1, session_file=str(path))
        assert f"belongs to the data directory {other}" in front.answer(1)["error"]["message"]


async def test_a_key_that_is_known_is_that_session_though_it_looks_like_an_id(world: World) -> None:
    await world.ask("mine", "deadbeef")
    async with attached(world, "deadbeef") as front:
        await front.prompt("too")
        assert front.answer(1)["result"]["text"] == "mine|too"


async def test_a_conversation_that_an_earlier_front_end_has_left_goes_on_in_another_session(world: World) -> None:
    async with attached(world, None) as first:
        await first.prompt("one")
    left = first.view["session"]
    async with attached(world, None) as second:
        await second.request("switch_session", 1, session_file="/t/0")
        assert "error" not in second.answer(1)
        await second.prompt("two", 2)
        assert second.answer(2)["result"]["text"] == "one|two"
        keys = [entry.key for entry in world.gateway.sessions]
        assert left not in keys
    assert world.gateway.pool.owner_of("/t/0") == second.view["session"]


async def test_a_conversation_of_an_attached_front_end_or_with_work_in_it_is_left_where_it_is(world: World) -> None:
    async with attached(world, None) as second:

        async def take(number: int, file: str) -> dict[str, Any]:
            await second.request("switch_session", number, session_file=file)
            return second.answer(number)

        async with attached(world, None) as first:
            await first.prompt("hang")
            answers = [await take(1, "/t/1")]
        answers.append(await take(2, "/t/1"))
        world.launcher.running("hang").finish()
        await wait_all_tasks_blocked()
        assert all(first.view["session"] in answer["error"]["message"] for answer in answers)
        assert "error" not in await take(3, "/t/1")
        async with attached(world, None) as third:
            await third.prompt("background")
        await wait_all_tasks_blocked()
        file = (await world.call("sessions.get", session=third.view["session"]))["transcript"]
        assert third.view["session"] in (await take(4, file))["error"]["message"]
