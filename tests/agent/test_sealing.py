"""Resuming: each open call gets one result, its own if it had ended, else one in words that fit how far it had come."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sealing import SealingPlan, open_calls, plan_sealing
from agent.tool_call import is_final, new_record, with_decision, with_result, with_state
from wire.entries import CallRecord, CallState, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, TranscriptMessage

CALL = ToolUseBlock("c", "exec", {"command": "ls"})
ASKED = [TranscriptMessage("user", [TextBlock("go")]), TranscriptMessage("assistant", [CALL])]
PENDING = new_record(CALL, 1.0)
WAITING = with_state(PENDING, CallState.AWAITING_APPROVAL, 2.0, "listed")
ALLOWED = with_decision(WAITING, "allow", 3.0, None, "ann")
REFUSED = with_decision(WAITING, "deny", 3.0, "not on a Friday", "ann")


def sealed(record: CallRecord | None) -> SealingPlan:
    plan = plan_sealing(ASKED, {} if record is None else {"c": written(record)}, 9.0)
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
        (WAITING, "was awaiting approval", "asked again"),
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
    assert (result["ok"], result["_autoSealed"]) == (False, True)
    assert (plan.sealed, plan.restored) == (["c"], [])
    assert [(end.state, end.result) for end in plan.records] == [(CallState.SEALED, result)]


def test_the_note_of_a_denial_reaches_the_model_also_over_a_restart() -> None:
    result = result_of(sealed(REFUSED))
    assert (result["note"], result["error_type"], result["retryable"]) == ("not on a Friday", "denied", False)


@pytest.mark.parametrize("state", [CallState.COMPLETED, CallState.FAILED])
def test_a_call_that_had_ended_keeps_its_own_result(state: CallState) -> None:
    own = {"ok": True, "data": "42"} if state is CallState.COMPLETED else {"ok": False, "error": "no"}
    image = ImageBlock("AAAA")
    plan = sealed(with_result(with_state(PENDING, CallState.RUNNING, 2.0), state, 3.0, own, images=[image]))
    assert plan.message.content == [ToolResultBlock("c", own, is_error=not own["ok"], images=[image])]
    assert (plan.records, plan.sealed, plan.restored) == ([], [], ["c"])


def test_a_seal_whose_message_was_lost_is_not_made_twice() -> None:
    first = sealed(WAITING)
    second = sealed(first.records[0])
    assert second.message == first.message
    assert (second.records, second.sealed) == ([], ["c"])


def test_an_end_without_a_result_is_not_believed() -> None:
    broken = msgspec.structs.replace(PENDING, state=CallState.COMPLETED)
    assert "was running" in result_of(sealed(broken))["error"]


def test_nothing_open_is_nothing_to_seal() -> None:
    answered = [*ASKED, TranscriptMessage("user", [ToolResultBlock("c", {"ok": True})], origin="tool")]
    assert plan_sealing(answered, {"c": written(WAITING)}, 9.0) is None
    assert plan_sealing([], {}, 9.0) is None


@given(st.lists(st.sampled_from([None, PENDING, WAITING, ALLOWED, REFUSED, "answered", "ended"]), max_size=8))
def test_after_sealing_every_call_has_exactly_one_result_in_call_order(stages: list[Any]) -> None:
    calls = [ToolUseBlock(f"c{number}", "exec", {}) for number in range(len(stages))]
    answered = [
        ToolResultBlock(call.id, {"ok": True}) for call, stage in zip(calls, stages, strict=True) if stage == "answered"
    ]
    history = [TranscriptMessage("assistant", [*calls]), TranscriptMessage("user", [*answered], origin="tool")]
    records: dict[str, CallRecord] = {}
    for call, stage in zip(calls, stages, strict=True):
        if isinstance(stage, CallRecord):
            records[call.id] = msgspec.structs.replace(stage, id=call.id)
        elif stage == "ended":
            running = with_state(new_record(call, 1.0), CallState.RUNNING, 2.0)
            records[call.id] = with_result(running, CallState.COMPLETED, 3.0, {"ok": True, "data": ""})
    expected = [call.id for call in open_calls(history)]
    plan = plan_sealing(history, records, 9.0)
    if plan is None:
        assert expected == []
        return
    blocks = [block for block in plan.message.content if isinstance(block, ToolResultBlock)]
    assert [block.tool_use_id for block in blocks] == expected
    assert open_calls([*history, plan.message]) == []
    assert sorted([*plan.sealed, *plan.restored]) == sorted(expected)
    assert all(is_final(record.state) for record in plan.records)
