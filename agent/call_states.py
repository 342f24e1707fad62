"""Where a tool call stands: a literal table of moves, and the pure steps that change a call's record.

Nothing here waits, writes or knows a clock. Every step returns a new record; the old one stays what it was, so that a
step which cannot be written to the disk has not happened.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from wire.entries import CallApproval, CallMove, CallRecord, CallState, Decision, ImageBlock, ToolUseBlock

__all__ = [
    "MOVES",
    "IllegalMove",
    "changed",
    "decided",
    "ended",
    "is_over",
    "moved",
    "new_record",
]

MOST_NOTE = 2_000
"""Characters of a note that are kept."""

PENDING = CallState.PENDING
AWAITING_APPROVAL = CallState.AWAITING_APPROVAL
RUNNING = CallState.RUNNING
COMPLETED = CallState.COMPLETED
FAILED = CallState.FAILED
DENIED = CallState.DENIED
SEALED = CallState.SEALED

MOVES: Mapping[CallState, frozenset[CallState]] = {
    PENDING: frozenset({AWAITING_APPROVAL, RUNNING, COMPLETED, FAILED, DENIED, SEALED}),
    AWAITING_APPROVAL: frozenset({RUNNING, DENIED, FAILED, SEALED}),
    RUNNING: frozenset({COMPLETED, FAILED, SEALED}),
    COMPLETED: frozenset(),
    FAILED: frozenset(),
    DENIED: frozenset(),
    SEALED: frozenset(),
}
"""From each state the states it may move to."""


class IllegalMove(Exception):
    """A step that the table, or a call's approval, does not allow: a defect of ours."""


def is_over(state: CallState) -> bool:
    """Whether a call in this state moves no more."""
    return not MOVES[state]


def new_record(call: ToolUseBlock, ts: float) -> CallRecord:
    """The record of a call that was just made; ``ts`` is Unix time in seconds, as everywhere here."""
    return CallRecord(call.id, call.name, PENDING, input=call.input, audit=[CallMove(PENDING, ts)])


def moved(record: CallRecord, state: CallState, ts: float, note: str | None = None) -> CallRecord:
    """The record after a move that does not end the call. Raises IllegalMove.

    To AWAITING_APPROVAL the note says why a person is asked; from there to RUNNING only after ``allow``.
    """
    _check(record, state)
    if is_over(state):
        raise IllegalMove(f"call {record.id}: {state} is an end and takes a result")
    more: dict[str, Any] = {}
    if state is AWAITING_APPROVAL:
        more["approval"] = CallApproval(_cut(note) or "")
    if state is RUNNING:
        _check_allowed(record)
        more["started_at"] = ts
    return msgspec.structs.replace(record, state=state, audit=_audit(record, state, ts, note), **more)


def changed(record: CallRecord, ts: float, given: dict[str, Any]) -> CallRecord:
    """The record with the input that a hook puts in place of the model's. Raises IllegalMove unless PENDING."""
    if record.state is not PENDING:
        raise IllegalMove(f"call {record.id} is {record.state}: its input cannot change any more")
    return msgspec.structs.replace(
        record, changed_input=given, audit=_audit(record, PENDING, ts, "a hook has changed the input")
    )


def decided(record: CallRecord, decision: Decision, ts: float, note: str | None, by: str | None) -> CallRecord:
    """The record with the decision about it; it moves when the decision acts. Raises IllegalMove, also the second time.

    ``by`` names who decided.
    """
    if record.state is not AWAITING_APPROVAL or record.approval is None or record.approval.decision is not None:
        raise IllegalMove(f"call {record.id} is {record.state} and awaits no decision")
    approval = CallApproval(record.approval.reason, decision, _cut(note), _cut(by), ts)
    said = f"{decision} by {by or 'someone'}" + (f": {note}" if note else "")
    return msgspec.structs.replace(record, approval=approval, audit=_audit(record, record.state, ts, said))


def ended(
    record: CallRecord,
    state: CallState,
    ts: float,
    result: dict[str, Any],
    *,
    images: list[ImageBlock] | None = None,
    note: str | None = None,
) -> CallRecord:
    """The record after its last move; ``result`` is what the model is told. Raises IllegalMove.

    ``duration_ms`` is how long it ran; a call that never ran has none.
    """
    _check(record, state)
    if not is_over(state):
        raise IllegalMove(f"call {record.id}: {state} is no end")
    if record.approval is not None and record.approval.decision == "allow" and state is DENIED:
        raise IllegalMove(f"call {record.id} was allowed")
    ran = None if record.started_at is None else round(max(0.0, ts - record.started_at) * 1000, 3)
    return msgspec.structs.replace(
        record,
        state=state,
        result=result,
        images=images or [],
        error=None if result["ok"] else _cut(result["error"]),
        completed_at=ts,
        duration_ms=ran,
        audit=_audit(record, state, ts, note),
    )


def _check(record: CallRecord, state: CallState) -> None:
    if state not in MOVES[record.state]:
        raise IllegalMove(f"call {record.id} cannot move from {record.state} to {state}")


def _check_allowed(record: CallRecord) -> None:
    if record.approval is not None and record.approval.decision != "allow":
        raise IllegalMove(f"call {record.id} was not allowed to run")


def _audit(record: CallRecord, state: CallState, ts: float, note: str | None) -> list[CallMove]:
    return [*record.audit, CallMove(state, ts, _cut(note))]


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:MOST_NOTE]
