"""What a run's tools did, as far as its reply cares: a line each, the last failure, texts that a tool has delivered."""

from collections.abc import Mapping

import msgspec

from wire.messages import ToolCallView

__all__ = ["MESSAGING_TOOLS", "ToolNotes"]

MESSAGING_TOOLS = frozenset({"message", "send_message", "reply"})
"""Tools that deliver a text themselves; the agent should not be heard twice."""

_MOST_NOTES = 50
_LONGEST_NOTE = 160
_LONGEST_ERROR = 200
_MOST_FAILED_CALLS = 64
_FAILED: Mapping[str, str] = {
    "FAILED": "no reason was given",
    "DENIED": "it was not allowed",
    "SEALED": "it was interrupted",
}
"""States in which a call may end without an error of its own, in words."""
_NO_ADDRESS = frozenset({"text", "message", "content", "action"})


class ToolNotes:
    """Fed with the end of every tool call of a run.

    Attributes:
        failure: a short text that a tool failed, while it is true: the same tool has not succeeded since; else empty.
        has_spoken: whether a messaging tool has delivered a text, in this conversation as far as is known.
    """

    def __init__(self) -> None:
        self.failure = ""
        self.has_spoken = False
        self._failed_tool: str | None = None
        self._failed_calls: dict[str, None] = {}
        """Ids of calls whose failure was told and whose end was not; the latest last."""
        self._notes: list[str] = []
        self._left_out = 0

    def ended(self, call: ToolCallView, error: str | None, *, keep_note: bool) -> str | None:
        """A call has ended; returns the text that it has delivered to a person, where it did and the event tells it.

        A failed call may be told twice, as an error and as an end; the second time adds nothing.
        """
        name = call.name or "a tool"
        if error is None and call.id in self._failed_calls:
            del self._failed_calls[call.id]
            return None
        if error is not None:
            self._expect_end(call.id)
        else:
            error = _FAILED.get(call.state)
        self._judge(name, error)
        if keep_note:
            self._note(_note_of(call, name, error))
        if error is not None or name not in MESSAGING_TOOLS:
            return None
        self.has_spoken = self.has_spoken or not _goes_elsewhere(call)
        return _delivered(call)

    def take(self) -> list[str]:
        """The lines so far, which are not told again; at the end how many more there were."""
        notes, left_out = self._notes, self._left_out
        self._notes, self._left_out = [], 0
        text = "\n".join([*notes, f"[and {left_out} more tool calls]"] if left_out else notes)
        return [text] if text else []

    def _expect_end(self, call_id: str) -> None:
        self._failed_calls[call_id] = None
        if len(self._failed_calls) > _MOST_FAILED_CALLS:
            del self._failed_calls[next(iter(self._failed_calls))]

    def _judge(self, name: str, error: str | None) -> None:
        if error is not None:
            self._failed_tool, self.failure = name, f"{name} failed: {_line(error, _LONGEST_ERROR)}"
        elif self._failed_tool == name:
            self._failed_tool, self.failure = None, ""

    def _note(self, note: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(note)
        else:
            self._left_out += 1


def _note_of(call: ToolCallView, name: str, error: str | None) -> str:
    took = "" if call.duration_ms is None else f" ({call.duration_ms / 1000:.1f} s)"
    what = f"{name} {call.input_preview}".strip()
    return _line(f"[{what}]{took}" if error is None else f"[{what}]{took} failed: {error}", _LONGEST_NOTE)


def _line(text: str, most: int) -> str:
    """One line of at most ``most`` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _goes_elsewhere(call: ToolCallView) -> bool:
    """Whether the call's input names an address; False for an input that was cut off."""
    try:
        given = msgspec.json.decode(call.input_preview)
    except msgspec.DecodeError:
        return False
    return isinstance(given, dict) and not given.keys() <= _NO_ADDRESS


def _delivered(call: ToolCallView) -> str | None:
    """The text in the call's input, where it can only have gone to this conversation.

    A preview that was cut off tells none, nor does an input that says more, such as to whom: better to be heard twice
    than not at all.
    """
    try:
        given = msgspec.json.decode(call.input_preview)
    except msgspec.DecodeError:
        return None
    if not isinstance(given, dict) or not given.keys() <= _NO_ADDRESS:
        return None
    texts = (given.get(name) for name in ("text", "message", "content"))
    return next((text for text in texts if isinstance(text, str)), None)
