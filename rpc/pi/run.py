"""One run as its waiters will see it: gathered from pi's messages, bounded, turned into a ``PromptResult``."""

from collections import deque
from typing import Any

import msgspec

from rpc.pi.messages import AssistantMessageEnd, text_of
from wire.messages import PromptResult, StopReason, TokenUsage, ToolCallView

__all__ = ["MAX_RUN_EVENTS", "Run"]

MAX_RUN_EVENTS = 1_000
"""Events kept for the result of one run; the oldest go first."""
_MAX_OPEN_TOOLS = 1_000

_STOP_REASONS: dict[str | None, StopReason] = {  # "toolUse" is no end: the run goes on, or is cut off
    "stop": "stop",
    "length": "length",
    "aborted": "aborted",
    "error": "error",
}


class Run:
    """What has been gathered of one run.

    Attributes:
        id: the caller's run id, or one of ours.
        waiting: request ids that are answered with the run's end, in order.
        announced: whether ``run_start`` has gone out.
        aborting: an abort was asked for; the run may not start again.
        keep_queue: that abort leaves pi's queue as it is.
    """

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.waiting: list[str] = []
        self.announced = False
        self.aborting = False
        self.keep_queue = False
        self._text = ""
        self._stop_reason: StopReason | None = None
        self._error: str | None = None
        self._usage = TokenUsage()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_RUN_EVENTS)
        self._tools: dict[str, tuple[ToolCallView, float]] = {}

    @property
    def usage(self) -> TokenUsage:
        """Tokens of the run so far; what the model read from its cache counts as input."""
        return self._usage

    def take_message(self, message: AssistantMessageEnd) -> str:
        """Count an assistant message that has ended; returns its text."""
        text = text_of(message.content)
        self._text = text or self._text
        self._stop_reason = _STOP_REASONS.get(message.stop_reason)
        self._error = message.error_message if self._stop_reason == "error" else None
        used = message.usage
        self._usage = TokenUsage(
            input_tokens=self._usage.input_tokens + used.input + used.cacheRead + used.cacheWrite,
            output_tokens=self._usage.output_tokens + used.output,
        )
        return text

    def keep(self, event: str, data: msgspec.Struct) -> None:
        """Remember an event for the result."""
        self._events.append({"event": event, "data": msgspec.to_builtins(data)})

    def tool_started(self, call: ToolCallView, now: float) -> None:
        """A tool call runs."""
        if len(self._tools) < _MAX_OPEN_TOOLS:
            self._tools[call.id] = (call, now)

    def tool(self, call_id: str, name: str) -> ToolCallView:
        """The call as it was started; made up from the two when its start was never seen."""
        known = self._tools.get(call_id)
        return known[0] if known else ToolCallView(id=call_id, name=name, state="RUNNING")

    def tool_ended(self, call_id: str, name: str, now: float, *, failed: bool) -> ToolCallView:
        """A tool call is over; the view of its end."""
        call = self.tool(call_id, name)
        started = self._tools.pop(call_id, (call, now))[1]
        state = "FAILED" if failed else "COMPLETED"
        return msgspec.structs.replace(call, state=state, duration_ms=round((now - started) * 1000, 3))

    def cut_off(self) -> None:
        """The run was ended from outside and pi will not say so."""
        self._stop_reason, self._error = "aborted", None

    def result(self) -> PromptResult:
        """The run's end, for whoever waits."""
        reason = self._stop_reason
        if self.aborting and reason in (None, "error"):  # a wait before a retry was ended, or a run of tools
            reason = "aborted"
        return PromptResult(
            text=self._text,
            stop_reason=reason or "stop",
            events=list(self._events),
            usage=self._usage,
            error=self._error if reason == "error" else None,
        )
