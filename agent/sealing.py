"""Results for tool calls that a former worker left open: exactly one each, and a true one.

A call whose end is on record keeps its result: only the message with the results was lost. Any other is sealed with an
error that says how far it had come.
"""

from collections.abc import Mapping, Sequence

import msgspec

from agent.results import CallResult, failure
from agent.tool_call import is_final, new_record, with_result
from wire.entries import CallRecord, CallState, ToolResultBlock, ToolUseBlock, TranscriptMessage


class SealingPlan(msgspec.Struct, frozen=True):
    """What to write: ``records``, then ``message`` with all results in call order.

    ``sealed`` and ``restored``: ids of calls that were cut short, and of those that had ended.
    """

    records: list[CallRecord]
    message: TranscriptMessage
    sealed: list[str]
    restored: list[str]


def open_calls(messages: Sequence[TranscriptMessage]) -> list[ToolUseBlock]:
    """Tool calls without a result, in call order."""
    calls = {call.id: call for message in messages for call in message.calls}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                calls.pop(block.tool_use_id, None)
    return list(calls.values())


def is_client_call(record: CallRecord | None) -> bool:
    """Whether the client carries out the call: its next prompt brings the result."""
    return record is not None and record.client and not is_final(record.state)


def plan_sealing(
    messages: Sequence[TranscriptMessage], records: Mapping[str, CallRecord], now: float
) -> SealingPlan | None:
    """What to write when a conversation is resumed; None when no call is open.

    ``records`` are the last ones by call id; a call without one had not begun. ``now`` is Unix time. The
    client's calls stay open.
    """
    calls = [call for call in open_calls(messages) if not is_client_call(records.get(call.id))]
    if not calls:
        return None
    found = [_normalized(records.get(call.id)) or new_record(call, now) for call in calls]
    ends = [record if is_final(record.state) else _sealed(record, now) for record in found]
    results = [ToolResultBlock(end.id, end.result, is_error=end.error is not None, images=end.images) for end in ends]
    return SealingPlan(
        records=[end for end, record in zip(ends, found, strict=True) if end is not record],
        message=TranscriptMessage("user", [*results], origin="tool"),
        sealed=[end.id for end in ends if end.state is CallState.SEALED],
        restored=[end.id for end in ends if end.state is not CallState.SEALED],
    )


def _normalized(record: CallRecord | None) -> CallRecord | None:
    """The record; a final one without a result counts as running."""
    if record is not None and is_final(record.state) and not isinstance(record.result, dict):
        return msgspec.structs.replace(record, state=CallState.RUNNING)
    return record


def _sealed(record: CallRecord, now: float) -> CallRecord:
    return with_result(record, CallState.SEALED, now, _sealed_result(record), note="the session was resumed")


def _sealed_result(record: CallRecord) -> CallResult:
    again = "It had no effects: call it again if it is still needed"
    approval = record.approval
    match record.state, approval and approval.decision:
        case CallState.RUNNING, _:
            advice = "Check for side effects before calling it again: it may have run in part or to its end."
            return _sealed_failure(record, "was running when", advice)
        case CallState.AWAITING_APPROVAL, "allow":
            return _sealed_failure(record, "was approved and had not begun when", f"{again}.")
        case CallState.AWAITING_APPROVAL, "deny":
            return _sealed_failure(record, "was denied by the user, and then", "Do not repeat the call as it is.")
        case CallState.AWAITING_APPROVAL, _:
            return _sealed_failure(record, "was awaiting approval when", f"{again}; a person will be asked again.")
        case _:
            return _sealed_failure(record, "had not begun when", f"{again}.")


def _sealed_failure(record: CallRecord, how: str, advice: str) -> CallResult:
    approval = record.approval
    denied = approval is not None and approval.decision == "deny"
    return failure(
        f"The call of {record.name} {how} the session was interrupted; sealed automatically.",
        "denied" if denied else "aborted",
        retryable=not denied,
        note=approval.note if approval is not None else None,
        recommendations=[advice],
        _autoSealed=True,
    )
