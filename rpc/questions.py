"""Which questions of a worker wait for a person: approvals of tool calls and dialogs of extensions."""

import msgspec

from wire.framing import DECODE_ERRORS
from wire.messages import Message

__all__ = ["QUESTION_EVENTS", "OpenQuestions"]

QUESTION_EVENTS = frozenset({"permission_required", "permission_decided", "ui_request", "ui_resolved", "done"})
_DIALOGS = frozenset({"select", "confirm", "input", "editor"})
_MOST_OPEN = 256


class _Call(msgspec.Struct):
    id: str = ""


class _Question(msgspec.Struct):
    """The members that name a question, in whichever of the events."""

    id: str = ""
    method: str = ""
    call_id: str = ""
    call: _Call = msgspec.field(default_factory=_Call)


class OpenQuestions:
    """Learns from ``QUESTION_EVENTS``; a question is open until it is decided, answered, or its run is done."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._decoder = msgspec.json.Decoder(_Question)

    def __bool__(self) -> bool:
        return bool(self._open)

    def note(self, event: Message) -> None:
        """Take one of ``QUESTION_EVENTS``; one whose data names no question changes nothing."""
        if event.event == "done":
            self._open.clear()
            return
        question = self._read(event.data)
        match event.event:
            case "permission_required":
                self._ask(question.call.id or question.call_id)
            case "permission_decided":
                self._open.discard(question.call_id or question.call.id)
            case "ui_request" if question.method in _DIALOGS:
                self._ask(question.id)
            case "ui_resolved":
                self._open.discard(question.id)

    def answered(self, params: msgspec.Raw) -> None:
        """We have sent ``ui_respond`` with these parameters."""
        self._open.discard(self._read(params).id)

    def _ask(self, key: str) -> None:
        if key and len(self._open) < _MOST_OPEN:
            self._open.add(key)

    def _read(self, data: msgspec.Raw) -> _Question:
        try:
            return self._decoder.decode(data)
        except DECODE_ERRORS:
            return _Question()
