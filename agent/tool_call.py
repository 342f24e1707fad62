"""The state table of a tool call, and the tracker that writes each move before it takes effect.

The table's functions are pure: each returns a new record, so that a step which cannot be written has not happened.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from agent.approvals import ApprovalVerdict
from agent.results import CallResult, text_of
from wire.entries import (
    CallApproval,
    CallRecord,
    CallState,
    CallTransition,
    ImageBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from wire.messages import CallDetails, ToolCallView
from wire.run_text import excerpt
from wire.states import IllegalTransition, transition

MAX_NOTE_CHARS = 2_000
"""Characters of a note that are kept."""

PENDING = CallState.PENDING
AWAITING_APPROVAL = CallState.AWAITING_APPROVAL
RUNNING = CallState.RUNNING
COMPLETED = CallState.COMPLETED
FAILED = CallState.FAILED
DENIED = CallState.DENIED
SEALED = CallState.SEALED

TRANSITIONS: Mapping[CallState, frozenset[CallState]] = {
    PENDING: frozenset({AWAITING_APPROVAL, RUNNING, COMPLETED, FAILED, DENIED, SEALED}),
    AWAITING_APPROVAL: frozenset({RUNNING, DENIED, FAILED, SEALED}),
    RUNNING: frozenset({COMPLETED, FAILED, SEALED}),
    COMPLETED: frozenset(),
    FAILED: frozenset(),
    DENIED: frozenset(),
    SEALED: frozenset(),
}
"""From each state the states it may move to."""


def is_final(state: CallState) -> bool:
    """Whether a call in this state moves no more."""
    return not TRANSITIONS[state]


def new_record(call: ToolUseBlock, ts: float) -> CallRecord:
    """The record of a new call; ``ts`` is Unix time in seconds, as everywhere here."""
    return CallRecord(call.id, call.name, PENDING, input=call.input, audit=[CallTransition(PENDING, ts)])


def with_state(record: CallRecord, state: CallState, ts: float, note: str | None = None) -> CallRecord:
    """The record after a move that does not end the call. Raises IllegalTransition.

    To AWAITING_APPROVAL the note says why a person is asked; from there to RUNNING only after ``allow``.
    """
    transition(TRANSITIONS, record.state, state)
    if is_final(state):
        raise IllegalTransition(f"call {record.id}: {state} is an end and takes a result")
    more: dict[str, Any] = {}
    if state is AWAITING_APPROVAL:
        more["approval"] = CallApproval(_truncate(note) or "")
    if state is RUNNING:
        _check_allowed(record)
        more["started_at"] = ts
    return msgspec.structs.replace(record, state=state, audit=_extended_audit(record, state, ts, note), **more)


def with_input(record: CallRecord, ts: float, given: dict[str, Any]) -> CallRecord:
    """The record with a hook's input instead of the model's. Raises IllegalTransition unless PENDING."""
    if record.state is not PENDING:
        raise IllegalTransition(f"call {record.id} is {record.state}: its input cannot change any more")
    return msgspec.structs.replace(
        record, changed_input=given, audit=_extended_audit(record, PENDING, ts, "a hook has changed the input")
    )


def with_decision(record: CallRecord, verdict: ApprovalVerdict, ts: float) -> CallRecord:
    """The record with a person's decision; the call moves when that acts.

    Raises IllegalTransition, also for a second decision.
    """
    if record.state is not AWAITING_APPROVAL or record.approval is None or record.approval.decision is not None:
        raise IllegalTransition(f"call {record.id} is {record.state} and awaits no decision")
    decision, note, by = verdict.decision, verdict.note, verdict.by
    approval = CallApproval(record.approval.reason, decision, _truncate(note), _truncate(by), ts, verdict.allows)
    for_session = " for the session" if verdict.allows else ""
    said = f"{decision}{for_session} by {by or 'someone'}" + (f": {note}" if note else "")
    return msgspec.structs.replace(record, approval=approval, audit=_extended_audit(record, record.state, ts, said))


def with_result(
    record: CallRecord,
    state: CallState,
    ts: float,
    result: dict[str, Any],
    *,
    images: list[ImageBlock] | None = None,
    note: str | None = None,
) -> CallRecord:
    """The record after its last move; ``result`` is for the model. Raises IllegalTransition.

    ``duration_ms`` is how long it ran; a call that never ran has none.
    """
    transition(TRANSITIONS, record.state, state)
    if not is_final(state):
        raise IllegalTransition(f"call {record.id}: {state} is no end")
    if record.approval is not None and record.approval.decision == "allow" and state is DENIED:
        raise IllegalTransition(f"call {record.id} was allowed")
    ran = None if record.started_at is None else round(max(0.0, ts - record.started_at) * 1000, 3)
    return msgspec.structs.replace(
        record,
        state=state,
        result=result,
        images=images or [],
        error=None if result["ok"] else _truncate(result["error"]),
        completed_at=ts,
        duration_ms=ran,
        audit=_extended_audit(record, state, ts, note),
    )


def _check_allowed(record: CallRecord) -> None:
    if record.approval is not None and record.approval.decision != "allow":
        raise IllegalTransition(f"call {record.id} was not allowed to run")


def _extended_audit(record: CallRecord, state: CallState, ts: float, note: str | None) -> list[CallTransition]:
    return [*record.audit, CallTransition(state, ts, _truncate(note))]


def _truncate(text: str | None) -> str | None:
    return None if text is None else text[:MAX_NOTE_CHARS]


Emit: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Emits an event of the run."""

EndState: TypeAlias = Literal[CallState.COMPLETED, CallState.FAILED, CallState.DENIED]


class CallLog(Protocol):
    """Where records are kept; a ``Conversation`` is one."""

    def record_call(self, record: CallRecord) -> None:
        """Write a record; it survives the end of this process. Raises TranscriptError: nothing was noted."""
        ...

    def is_allowed(self, key: str) -> bool:
        """Whether an earlier decision of the conversation allows these calls; see ``CallApproval.allows``."""
        ...

    def sync(self) -> Awaitable[None]:
        """Wait until everything noted survives a power cut. Raises TranscriptError."""
        ...


class ToolCallTracker:
    """Its methods are immediate; those that move it raise TranscriptError: then the call stands where it stood.

    PENDING needs no entry of its own: the message that makes the call is that. ``result`` is None until ``end``.
    """

    def __init__(self, call: ToolUseBlock, log: CallLog, emit: Emit) -> None:
        self.call = call
        self.record = new_record(call, time.time())
        self.result: ToolResultBlock | None = None
        self._log = log
        self._emit = emit
        self._start_emitted = False
        self._preview = _input_preview(call.input)

    def start(self) -> None:
        """Emit its start; harmless when repeated."""
        if not self._start_emitted:
            self._start_emitted = True
            self._emit("tool", {"phase": "start", "call": self.view()})

    def change_input(self, given: dict[str, Any]) -> None:
        """Replace the input by a hook's; the record keeps both."""
        self._apply(with_input(self.record, time.time(), given))
        self.call = msgspec.structs.replace(self.call, input=given)
        self._preview = _input_preview(given)

    def await_approval(self, reason: str) -> None:
        """Move to AWAITING_APPROVAL; emits nothing."""
        self._apply(with_state(self.record, CallState.AWAITING_APPROVAL, time.time(), reason))

    def decide(self, verdict: ApprovalVerdict) -> None:
        """Record a person's decision; the call moves when that acts."""
        self._apply(with_decision(self.record, verdict, time.time()))

    def begin(self) -> None:
        """Move to RUNNING. Emits ``running`` after an approval, since ``start`` came before it."""
        self._apply(with_state(self.record, CallState.RUNNING, time.time()))
        if self.record.approval is not None:
            self._emit("tool", {"phase": "running", "call": self.view()})

    def progress(self, report: dict[str, Any]) -> None:
        """Emit progress, an ``agent.tools.base.Report``."""
        if self.result is None:
            facts = {"tail": report["tail"], **_event_details(report)}
            self._emit("tool", {"phase": "update", "call": self.view(), **facts})

    def end(self, state: EndState, result: CallResult, images: list[ImageBlock] | None = None) -> None:
        """End the call with this result for the model."""
        self.start()
        self._apply(with_result(self.record, state, time.time(), result, images=images))
        self.result = ToolResultBlock(self.call.id, result, is_error=not result["ok"], images=images or [])
        view, facts = self.view(), _event_details(result.get("details"))
        if not result["ok"]:
            self._emit("tool", {"phase": "error", "call": view, "error": result["error"], **facts})
        decided = self.record.approval
        approval = {} if decided is None else {"approval": decided}
        self._emit("tool_executed", {"call": view, "ok": result["ok"], **approval})
        self._emit("tool", {"phase": "end", "call": view, "result": excerpt(text_of(result)), **facts})

    def view(self) -> ToolCallView:
        """The call as events show it. ``approval``: required, allow or deny, where a person is asked."""
        approval = self.record.approval
        return ToolCallView(
            self.call.id,
            self.call.name,
            self._preview,
            self.record.state.value,
            self.record.duration_ms,
            None if approval is None else approval.decision or "required",
        )

    def _apply(self, record: CallRecord) -> None:
        self._log.record_call(record)
        self.record = record


def _input_preview(given: Any) -> str:
    return msgspec.json.encode(given)[:200].decode(errors="ignore")


def _event_details(details: Any) -> dict[str, CallDetails]:
    """The details that events carry: those of a command. A hook may have put anything there."""
    try:
        facts = msgspec.convert(details, CallDetails)
    except msgspec.ValidationError:
        return {}
    return {} if facts == CallDetails() else {"details": facts}
