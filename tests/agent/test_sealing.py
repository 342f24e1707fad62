"""Resuming: each open call gets one result, its own if it had ended, else one in words that fit how far it had come."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.approvals import ApprovalVerdict
from agent.conversation import Conversation, SessionStore
from agent.output import WorkerOutput
from agent.policy import Policy
from agent.tool_call import is_final, new_record, with_decision, with_result, with_state
from agent.worker import SealingPlan, plan_sealing
from tests.agent.calling import Bench, FakeTool, answer
from wire.entries import CallRecord, CallState, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

CALL = ToolUseBlock("c", "exec", {"command": "ls"})
PENDING = new_record(CALL, 1.0)
WAITING = with_state(PENDING, CallState.AWAITING_APPROVAL, 2.0, "listed")
ALLOWED = with_decision(WAITING, ApprovalVerdict("allow", by="ann"), 3.0)
REFUSED = with_decision(WAITING, ApprovalVerdict("deny", "not on a Friday", "ann"), 3.0)


def sealed(record: CallRecord | None) -> SealingPlan:
    plan = plan_sealing([CALL], {} if record is None else {"c": written(record)}, 9.0)
    assert plan is not None
    return plan


def written(record: CallRecord) -> CallRecord:
    """As it is read back from a transcript: without its input."""
    line = msgspec.json.encode(msgspec.structs.replace(record, input=msgspec.UNSET))
    return msgspec.json.decode(line, type=CallRecord)


def result_of(plan: SealingPlan) -> dict[str, Any]:
    (block,) = plan.message.content
    assert isinstance(block, ToolResultBlock)
    assert block.tool_use_id == "c"
    content: dict[str, Any] = block.content
    return content


@pytest.mark.parametrize(
    ("record", "words", "advice"),
    [
        (None, "had not begun", "had no effects"),
        (PENDING, "had not begun", "had no effects"),
        (WAITING, "was waiting for approval", "asked again"),
        (ALLOWED, "was approved and had not begun", "had no effects"),
        (REFUSED, "was denied by the user", "Do not repeat"),
        (with_state(PENDING, CallState.RUNNING, 2.0), "was running", "side effects"),
        (with_state(ALLOWED, CallState.RUNNING, 4.0), "was running", "side effects"),
    ],
)
def test_a_sealed_result_is_worded_by_the_state_the_call_was_in(
    record: CallRecord | None, words: str, advice: str
) -> None:
    plan = sealed(record)
    result = result_of(plan)
    assert words in result["error"]
    assert "the session was interrupted; sealed automatically." in result["error"]
    assert advice in result["recommendations"][0]
    assert (result["ok"], result["_autoSealed"], plan.sealed) == (False, True, ["c"])
    assert [(end.state, end.result) for end in plan.records] == [(CallState.SEALED, result)]
    if record is REFUSED:
        assert (result["note"], result["error_type"], result["retryable"]) == ("not on a Friday", "denied", False)


@pytest.mark.parametrize("ok", [True, False])
def test_a_call_that_had_ended_keeps_its_own_result(*, ok: bool) -> None:
    own, image = {"ok": ok, "data" if ok else "error": "42"}, ImageBlock("AAAA")
    state = CallState.COMPLETED if ok else CallState.FAILED
    plan = sealed(with_result(with_state(PENDING, CallState.RUNNING, 2.0), state, 3.0, own, images=[image]))
    assert plan.message.content == [ToolResultBlock("c", own, is_error=not ok, images=[image])]
    assert (plan.records, plan.sealed) == ([], [])


def test_a_seal_is_made_once_an_end_without_result_is_not_believed_and_nothing_open_is_nothing_to_seal() -> None:
    first = sealed(WAITING)
    second = sealed(first.records[0])  # its message was lost
    assert (second.message, second.records, second.sealed) == (first.message, [], ["c"])
    broken = msgspec.structs.replace(PENDING, state=CallState.COMPLETED)
    assert "was running" in result_of(sealed(broken))["error"]
    assert plan_sealing([], {"c": written(WAITING)}, 9.0) is None


@given(st.lists(st.sampled_from([None, PENDING, WAITING, ALLOWED, REFUSED, "ended"]), max_size=8))
def test_after_sealing_every_call_has_exactly_one_result_in_call_order(stages: list[Any]) -> None:
    calls = [ToolUseBlock(f"c{number}", "exec", {}) for number in range(len(stages))]
    records: dict[str, CallRecord] = {}
    for call, stage in zip(calls, stages, strict=True):
        if isinstance(stage, CallRecord):
            records[call.id] = msgspec.structs.replace(stage, id=call.id)
        elif stage == "ended":
            running = with_state(new_record(call, 1.0), CallState.RUNNING, 2.0)
            records[call.id] = with_result(running, CallState.COMPLETED, 3.0, {"ok": True, "data": ""})
    plan = plan_sealing(calls, records, 9.0)
    if plan is None:
        assert calls == []
        return
    blocks = [block for block in plan.message.content if isinstance(block, ToolResultBlock)]
    assert [block.tool_use_id for block in blocks] == [call.id for call in calls]
    assert plan.sealed == [call.id for call, stage in zip(calls, stages, strict=True) if stage != "ended"]
    assert all(is_final(record.state) for record in plan.records)


CALLS = [ToolUseBlock(f"c{n}", name, {}) for n, name in enumerate(["work", "fail", "asked", "refused", "nothing"])]


async def whole_transcript(directory: Path) -> list[bytes]:
    """The lines of a conversation in which calls were made, decided and answered."""
    conversation = SessionStore(directory, str(directory), WorkerOutput()).create()
    bench = Bench(policy=Policy(require_approval=frozenset({"asked", "refused"})))
    bench.tools |= {name: FakeTool(name) for name in ("asked", "refused")}
    bench.journal = conversation  # type: ignore[assignment]  # both are journals
    answer(bench, c2="allow", c3="deny")
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
    return SessionStore(directory, str(directory), WorkerOutput()).open(str(path))


def seal(conversation: Conversation) -> list[ToolResultBlock]:
    plan = plan_sealing(conversation.open_calls.values(), conversation.records, 9.0)
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
    assert not any("input" in entry["record"] for entry in entries if entry["type"] == "call")  # it is in the message
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
        assert seal(again) == (first if count < len(whole) else [])
        assert again.open_calls == {}
        again.close()
