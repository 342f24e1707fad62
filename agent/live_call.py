"""One tool call on its way: its record, written before each move takes effect, and the events that tell of it."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from agent.approvals import Decided
from agent.call_states import changed, decided, ended, moved, new_record
from agent.results import Result, text_of
from wire.entries import CallRecord, CallState, ImageBlock, ToolResultBlock, ToolUseBlock
from wire.excerpts import excerpt
from wire.messages import CallDetails, ToolCallView

__all__ = ["End", "Journal", "LiveCall", "Say"]

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
