"""What was said, read from transcripts: only the latest, whatever state the file is in."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from errors import UsageError
from gateway.sessions import history
from gateway.sessions.history import read_history
from wire.entries import STEER_PREFIX


def written(path: Path, *texts: str, more: bytes = b"") -> str:
    """A transcript with a header, these messages, and whatever follows."""
    lines = [{"type": "session", "id": "x"}, *({"type": "message", "message": {"text": text}} for text in texts)]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + more)
    return str(path)


async def test_the_latest_messages_come_oldest_first_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    torn = b'[1]\n{"type":"message"}\n{"type":"message","message":{"te'
    transcript = written(tmp_path / "t", "a", "b", "c", more=torn)
    assert await read_history(transcript, 2) == [{"text": "b"}, {"text": "c"}]
    assert await read_history(transcript, 9) == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert await read_history(str(tmp_path / "none"), 9) == []


async def test_a_journal_under_the_name_of_another_conversation_shows_nothing_of_it(tmp_path: Path) -> None:
    header = {"type": "session", "id": "other", "agent_session": "a"}
    transcript = tmp_path / "mine.jsonl"
    transcript.write_bytes(b"\n".join(map(msgspec.json.encode, (header, {"type": "message", "message": {}}))))
    with pytest.raises(UsageError, match="it is the journal of another conversation, other"):
        await read_history(str(transcript), 9)


async def test_the_message_with_which_an_agent_was_fed_the_conversation_again_says_so(tmp_path: Path) -> None:
    def session(own: str) -> dict[str, str]:
        return {"type": "session", "id": "t", "agent_session": own}

    lines: list[dict[str, Any]] = [
        session("a"),
        session("b"),
        {"type": "message", "message": {"text": "one"}},
        session("c"),
    ]
    lines += [{"type": "message", "message": {"text": text}} for text in ("two", "three")]
    (tmp_path / "t").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert await read_history(str(tmp_path / "t"), 9) == [
        {"text": "one"},
        {"text": "two", "strategy": "refed"},
        {"text": "three"},
    ]


async def test_what_came_into_a_running_turn_reads_as_it_was_written(tmp_path: Path) -> None:
    def message(text: str, **more: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": text}], **more}

    lines = [message(f"{STEER_PREFIX}turn left", origin="steer"), message(f"{STEER_PREFIX}quoted")]
    raw = b"".join(msgspec.json.encode({"type": "message", "message": line}) + b"\n" for line in lines)
    shown = await read_history(written(tmp_path / "t", more=raw), 9)
    assert shown == [message("turn left", origin="steer"), message(f"{STEER_PREFIX}quoted")]


async def test_a_file_that_cannot_be_read_is_named_and_keeps_no_reader_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path), "a\0b", str(tmp_path / "pipe")):
        with trio.fail_after(5), pytest.raises(UsageError, match=f"the transcript {name} cannot be read"):
            await read_history(name, 9)


async def test_of_a_long_transcript_only_the_end_is_read_from_a_whole_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = b'what no agent writes {"type":"message","message":{"text":"half a line that reads like one"}}\n'
    last = b'{"type":"message","message":{"text":"last"}}\n'
    transcript = written(tmp_path / "t", "first", more=odd + last)
    monkeypatch.setattr(history, "_MAX_BYTES", len(odd) - odd.index(b"{") + len(last))
    assert await read_history(transcript, 9) == [{"text": "last"}]


async def test_however_many_ask_only_two_transcripts_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = written(tmp_path / "t", "a")
    together = threading.Barrier(3)
    readings = threading.Semaphore(0)

    def read(_path: Path, _limit: int) -> list[dict[str, str]]:
        readings.release()
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.2)
        return []

    monkeypatch.setattr(history, "_read_tail", read)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read_history, transcript, 9)
    assert together.broken  # a third reading would have completed it
    assert all(readings.acquire(blocking=False) for _ in range(3))


async def test_a_mark_stands_for_a_latest_message_that_is_longer_than_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_MAX_BYTES", 100)
    (shown,) = await read_history(written(tmp_path / "t", "x" * 200), 9)
    assert shown["role"] == "assistant"
    assert f"see {tmp_path / 't'}" in shown["content"][0]["text"]
