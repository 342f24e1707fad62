"""Calls on a real transcript: wherever it is cut, the resumed session tells the truth about each of them."""

from pathlib import Path
from typing import Any

import msgspec

from agent.conversation import Conversation, SessionStore
from agent.output import WorkerOutput
from agent.policy import Policy
from agent.sealing import open_calls, plan_sealing
from tests.agent.calling import Bench, FakeTool, subject
from wire.entries import TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

NAMES = ["work", "fail", "asked", "refused", "nothing"]
CALLS = [ToolUseBlock(f"c{number}", name, {}) for number, name in enumerate(NAMES)]


def store(directory: Path) -> SessionStore:
    return SessionStore(directory, str(directory), WorkerOutput())


async def whole_transcript(directory: Path) -> list[bytes]:
    """The lines of a conversation in which calls were made, decided and answered."""
    conversation = store(directory).create()
    bench = Bench(policy=Policy(require_approval=frozenset({"asked", "refused"})))
    bench.tools |= {name: FakeTool(name) for name in ("asked", "refused")}
    bench.journal = conversation  # type: ignore[assignment]  # both are journals

    def react(name: str, data: dict[str, Any]) -> None:
        if name == "permission_required":
            bench.approvals.decide(subject(data), "allow" if subject(data) == "c2" else "deny", "my note")

    bench.react = react
    conversation.add(TranscriptMessage("user", [TextBlock("go")]))
    conversation.add(TranscriptMessage("assistant", [*CALLS]))
    runner = bench.runner(*((call.name, call.input) for call in CALLS))
    await runner.run(1)
    assert set(conversation.records) == {call.id for call in CALLS}
    conversation.add(TranscriptMessage("user", [*runner.results()], origin="tool"))
    await conversation.sync()
    assert conversation.records == {}
    conversation.close()
    assert conversation.path is not None
    return conversation.path.read_bytes().splitlines(keepends=True)


def resumed(directory: Path, lines: list[bytes]) -> Conversation:
    path = directory / "cut.jsonl"
    path.write_bytes(b"".join(lines))
    return store(directory).open(str(path))


def seal(conversation: Conversation) -> list[ToolResultBlock]:
    plan = plan_sealing(conversation.messages, conversation.records, 9.0)
    if plan is None:
        return []
    for record in plan.records:
        conversation.record_call(record)
    conversation.add(plan.message)
    return [block for block in plan.message.content if isinstance(block, ToolResultBlock)]


async def test_wherever_the_transcript_ends_every_call_has_one_result_that_says_how_far_it_had_come(
    tmp_path: Path,
) -> None:
    lines = await whole_transcript(tmp_path / "whole")
    entries = [msgspec.json.decode(line) for line in lines]
    assert [entry["seq"] for entry in entries[1:]] == sorted({entry["seq"] for entry in entries[1:]})
    for count in range(3, len(lines)):
        reached = {entry["record"]["id"]: entry["record"] for entry in entries[:count] if entry["type"] == "call"}
        conversation = resumed(tmp_path, lines[:count])
        results = seal(conversation)
        conversation.close()
        assert [result.tool_use_id for result in results] == [call.id for call in CALLS]
        for result in results:
            record = reached.get(result.tool_use_id, {"state": "PENDING"})
            if "result" in record:
                assert result.content == record["result"]
            else:
                assert result.content["_autoSealed"] is True
                assert ("was running" in result.content["error"]) == (record["state"] == "RUNNING")
    assert seal(resumed(tmp_path, lines)) == []


async def test_a_sealing_that_was_cut_itself_is_finished_by_the_next_worker(tmp_path: Path) -> None:
    lines = (await whole_transcript(tmp_path / "whole"))[:6]
    conversation = resumed(tmp_path, lines)
    first = seal(conversation)
    conversation.close()
    assert conversation.path is not None
    whole = conversation.path.read_bytes().splitlines(keepends=True)
    for count in range(len(lines), len(whole) + 1):
        again = resumed(tmp_path, whole[:count])
        second = seal(again)
        assert second == (first if count < len(whole) else [])
        assert open_calls(again.messages) == []
        again.close()


async def test_what_is_written_of_a_call_does_not_repeat_its_input(tmp_path: Path) -> None:
    lines = await whole_transcript(tmp_path)
    assert not any(b'"input"' in line for line in lines if b'"type":"call"' in line)
