"""One tool call, state table.

Where a tool call stands: a literal table of moves, and the pure steps that change a call's record.

Nothing here waits, writes or knows a clock. Every step returns a new record; the old one stays what it was, so that a
step which cannot be written to the disk has not happened.

One tool call on its way: its record, written before each move takes effect, and the events that tell of it.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from agent.approvals import Decided
from agent.results import Result, text_of
from wire.entries import (
    CallApproval,
    CallMove,
    CallRecord,
    CallState,
    Decision,
    ImageBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from wire.messages import CallDetails, ToolCallView
from wire.texts import excerpt

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


_PREVIEW_BYTES = 200
_NO_FACTS = CallDetails()

Say: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Tells an event of the run."""

End: TypeAlias = Literal[CallState.COMPLETED, CallState.FAILED, CallState.DENIED]


class Journal(Protocol):
    """Where records are kept; a ``Conversation`` is one."""

    def note(self, record: CallRecord) -> None:
        """Write a record; it survives the end of this process. Raises TranscriptError: nothing was noted."""
        ...

    def sync(self) -> Awaitable[None]:
        """Wait until everything noted survives a power cut. Raises TranscriptError."""
        ...


class LiveCall:
    """Its methods are immediate; those that move it raise TranscriptError: then the call stands where it stood.

    PENDING needs no entry of its own: the message that makes the call is that. ``result`` is None until ``end``.
    """

    def __init__(self, call: ToolUseBlock, journal: Journal, say: Say) -> None:
        self.call = call
        self.record = new_record(call, time.time())
        self.result: ToolResultBlock | None = None
        self._journal = journal
        self._say = say
        self._told = False
        self._preview = _preview_of(call.input)

    def start(self) -> None:
        """Tell that it is there; harmless when told already."""
        if not self._told:
            self._told = True
            self._say("tool", {"phase": "start", "call": self.view()})

    def change(self, given: dict[str, Any]) -> None:
        """Replace the input by a hook's; the record keeps both."""
        self._take(changed(self.record, time.time(), given))
        self.call = msgspec.structs.replace(self.call, input=given)
        self._preview = _preview_of(given)

    def await_approval(self, reason: str) -> None:
        """A person will be asked; telling them is not done here."""
        self._take(moved(self.record, CallState.AWAITING_APPROVAL, time.time(), reason))

    def decide(self, decided_: Decided) -> None:
        """A person has decided; the call moves when that acts."""
        self._take(decided(self.record, decided_.decision, time.time(), decided_.note, decided_.by))

    def begin(self) -> None:
        """Its tool is about to run. Emits ``running`` after an approval, since ``start`` came before it."""
        self._take(moved(self.record, CallState.RUNNING, time.time()))
        if self.record.approval is not None:
            self._say("tool", {"phase": "running", "call": self.view()})

    def progress(self, report: dict[str, Any]) -> None:
        """Its tool shows the end of its output so far; see ``agent.tools.base.Report``."""
        if self.result is None:
            facts = {"tail": report["tail"], **_facts(report)}
            self._say("tool", {"phase": "update", "call": self.view(), **facts})

    def end(self, state: End, result: Result, images: list[ImageBlock] | None = None) -> None:
        """It is over; this is what the model is told."""
        self.start()
        self._take(ended(self.record, state, time.time(), result, images=images))
        self.result = ToolResultBlock(self.call.id, result, is_error=not result["ok"], images=images or [])
        view, facts = self.view(), _facts(result.get("details"))
        if not result["ok"]:
            self._say("tool", {"phase": "error", "call": view, "error": result["error"], **facts})
        decided = self.record.approval
        approval = {} if decided is None else {"approval": decided}
        self._say("tool_executed", {"call": view, "ok": result["ok"], **approval})
        self._say("tool", {"phase": "end", "call": view, "result": excerpt(text_of(result)), **facts})

    def view(self) -> ToolCallView:
        """It, as events show it. ``approval``: required, allow or deny, where a person is asked."""
        approval = self.record.approval
        return ToolCallView(
            self.call.id,
            self.call.name,
            self._preview,
            self.record.state.value,
            self.record.duration_ms,
            None if approval is None else approval.decision or "required",
        )

    def _take(self, record: CallRecord) -> None:
        self._journal.note(record)
        self.record = record


def _preview_of(given: Any) -> str:
    return msgspec.json.encode(given)[:_PREVIEW_BYTES].decode(errors="ignore")


def _facts(details: Any) -> dict[str, CallDetails]:
    """What events tell of a call's details: those of a command. A hook may have put anything there."""
    try:
        facts = msgspec.convert(details, CallDetails)
    except msgspec.ValidationError:
        return {}
    return {} if facts == _NO_FACTS else {"details": facts}
