"""Tool calls of a chat: one line each when they end, and their input and output on request. Pure."""

from collections import deque

import msgspec

from commands.chat.effects import Effect, Line
from commands.event_text import ToolData
from wire.messages import ToolCallView
from wire.run_view import FAILED_STATES, CallEnd, describe_call, describe_end, describe_error

MAX_KEPT = 50
"""Ended calls whose output can be shown."""
MAX_OUTPUT_CHARS = 20_000


class _EndedCall(msgspec.Struct, frozen=True):
    call: ToolCallView
    end: CallEnd
    output: str


class _RunningCall(msgspec.Struct):
    call: ToolCallView
    tail: str = ""


class ChatCalls:
    """The calls of the session since the chat began."""

    def __init__(self) -> None:
        self._running: dict[str, _RunningCall] = {}
        self._ended: deque[_EndedCall] = deque(maxlen=MAX_KEPT)

    @property
    def running(self) -> list[tuple[str, str]]:
        """Of each call that runs what it is, and the end of its output."""
        return [(describe_call(one.call.name, one.call.input_preview), one.tail) for one in self._running.values()]

    def event(self, type_: str, tool: ToolData) -> list[Effect]:
        """The line of a call that has ended; nothing for one that goes on."""
        match type_:
            case "tool:start" | "tool:running":
                self._running.setdefault(tool.call.id, _RunningCall(tool.call))
            case "tool:update":
                self._running.setdefault(tool.call.id, _RunningCall(tool.call)).tail = tool.tail
            case "tool:error":
                return self._end(tool, describe_error(tool.call, tool.error, tool.details))
            case "tool:end" if tool.call.state not in FAILED_STATES:
                return self._end(tool, describe_end(tool.call, tool.details))
        return []

    def end_all(self) -> list[Effect]:
        """The turn has ended: what still ran has no end that was reported."""
        lines: list[Effect] = [
            Line(f"✗ {describe_call(one.call.name, one.call.input_preview)}", "warn", end=": no result")
            for one in self._running.values()
        ]
        self._running.clear()
        return lines

    def show(self, number: int = 1) -> list[Effect]:
        """Input and output of the latest call, or of the one ``number - 1`` before it."""
        if not 1 <= number <= len(self._ended):
            return [Line(f"of {len(self._ended)} tool calls that have ended, there is no such one", "dim")]
        one = self._ended[-number]
        lines = one.output.rstrip("\n").split("\n") if one.output.strip() else ["(no output)"]
        head = f"{one.end.mark} {one.call.name} {one.call.input_preview}"
        return [Line(head, "bold", is_whole=True), *(Line(f"│ {line}", "dim", is_whole=True) for line in lines)]

    def _end(self, tool: ToolData, end: CallEnd) -> list[Effect]:
        running = self._running.pop(tool.call.id, None)
        output = tool.result if isinstance(tool.result, str) else ""
        output = (output or (running.tail if running else "") or str(tool.error or ""))[-MAX_OUTPUT_CHARS:]
        self._ended.append(_EndedCall(tool.call, end, output))
        words = describe_call(tool.call.name, tool.call.input_preview)
        return [Line(f"{end.mark} {words}", "dim" if end.mark in "✓…" else "plain", end=f": {end.text}")]
