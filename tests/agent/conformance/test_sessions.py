"""Conversations of real workers that die: nothing torn, nothing twice, one result each that says how far it came."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conformance.processes import agent, calls, entries_of, results_of, tool
from wire.entries import CallEntry, MessageEntry, UnknownEntry

pytestmark = pytest.mark.process


async def test_numbers_rise_in_a_process_and_over_all_that_was_persisted_before_it(sessions: str) -> None:
    highest = 0
    async with agent("--session-dir", sessions) as client:
        path = await client.session()
    for text in (tool("exec", command="echo one"), "PIECES=5", tool("read", path="none")):
        async with agent("--session", path) as client:
            await client.prompt(text)
            seqs = [line["data"]["seq"] for line in client.lines if "seq" in line.get("data", {})]
            assert seqs == sorted(set(seqs))
            assert min(seqs) > highest
            if text != "PIECES=5":
                await client.kill()
        entries = entries_of(path)
        assert [entry.seq for entry in entries] == sorted({entry.seq for entry in entries})
        highest = entries[-1].seq


WORDS = {
    "running": "was running when the session was interrupted",
    "pending": "had not begun when the session was interrupted",
    "approved": "was approved and had not begun when the session was interrupted",
    "awaiting": "was awaiting approval when the session was interrupted",
}


@pytest.fixture
def pipe(workspace: Path) -> Iterator[None]:
    """Whoever reads it waits, and comes to its end with the test: also what a killed worker has left behind."""
    path = workspace / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    yield
    path.unlink()
    os.close(writer)


@pytest.mark.usefixtures("pipe")
async def test_a_sealed_call_is_told_how_far_it_had_come(sessions: str, workspace: Path) -> None:
    hang, never = tool("exec", command="echo >> begun; cat pipe"), tool("exec", command="touch never")
    write = [tool("write", path=name, content="") for name in ("approved", "awaiting", "denied")]
    states = ["running", "running", "running", "pending", "approved", "awaiting"]
    async with agent("--session-dir", sessions, "--require-approval", "write") as client:
        path = await client.session()
        await client.send("prompt", text=f"PARALLEL {' '.join([hang, hang, hang, never, *write])}")
        await client.line(lambda _line: len(client.events("permission_required")) == 3)
        approved, _, denied = [event["call"]["id"] for event in client.events("permission_required")]
        await client.call("decide", call_id=approved, decision="allow")
        await client.call("decide", call_id=denied, decision="deny", note="never that")
        running = {record.record.id for record in entries_of(path) if isinstance(record, CallEntry)}
        assert len(running) == 6  # all but the one that has not begun
        await client.kill()
    async with agent("--session", path) as client:
        resumed = await client.event("agent_resumed")
        blocks = await client.blocks()
        sealed = [block["id"] for block in blocks if block["type"] == "tool_use"][:6]
        assert (resumed["strategy"], resumed["sealed"]) == ("seal", sealed)
        assert [block["tool_use_id"] for block in results_of(blocks)] == calls(blocks)
        *cut_short, refused = await client.results()
        for state, result in zip(states, cut_short, strict=True):
            assert WORDS[state] in result["error"]
            assert result["error"].endswith("; sealed automatically.")
            assert (result["ok"], result["_autoSealed"], result["error_type"]) == (False, True, "aborted")
            assert ("side effects" in result["recommendations"][0]) == (state == "running")
        assert (refused["error_type"], refused["note"]) == ("denied", "never that")
        assert (await client.prompt("RECALL")).stop_reason == "stop"
        await client.kill()
    async with agent("--session", path) as client:  # nothing is sealed twice
        assert (await client.prompt("ECHO:on")).text == "on"
        assert client.events("agent_resumed") == []
        assert len(results_of(await client.blocks())) == 7
    assert not [name for name in ("never", "approved", "awaiting", "denied") if (workspace / name).exists()]


async def test_of_two_workers_on_one_conversation_the_second_is_refused(sessions: str) -> None:
    async with agent("--session-dir", sessions) as first, agent("--session-dir", sessions) as second:
        path = await first.session()
        await first.prompt("mine")
        own = await second.session()
        await second.prompt("yours")
        assert await second.refused("switch_session", session_file=path) == "transcript_locked"
        assert (await second.call("get_state"))["session_file"] == own
        assert (await second.prompt("RECALL")).text == 'Earlier you said: ["yours"]'
        await first.kill()  # the lock ends with its process
        await second.call("switch_session", session_file=path)
        assert (await second.prompt("RECALL")).text == 'Earlier you said: ["mine"]'


async def test_a_torn_last_line_is_cut_and_kept_aside(sessions: str) -> None:
    async with agent("--session-dir", sessions) as client:
        path = await client.session()
        await client.prompt(tool("exec", command="echo one"))
        await client.kill()
    torn = b'{"type":"message","seq":999,"ts":1.0,"message":{"role":"user","con'
    whole = bytes_of(path)
    append(path, torn)
    async with agent("--session", path) as client:
        assert bytes_of(path) == whole
        assert bytes_of(f"{path}.torn-1") == torn
        assert (await client.prompt("RECALL")).text.startswith("Earlier you said: ")
    entries = entries_of(path)
    assert len([entry for entry in entries if isinstance(entry, MessageEntry)]) == 6
    assert not [entry for entry in entries if isinstance(entry, UnknownEntry)]


def bytes_of(path: str) -> bytes:
    return Path(path).read_bytes()


def append(path: str, more: bytes) -> None:
    with Path(path).open("ab") as file:
        file.write(more)
