"""One run of pi: what its waiters will see (a bounded ``PromptResult``), and the transition table of its phases.

pi says ``agent_end`` also before a retry and before a compaction that goes on with the run; a prompt is accepted
before it runs, or is handled without a run. The run is over only when the table is back at ``IDLE``.
"""

from collections import deque
from enum import Enum, auto
from typing import Any

import msgspec

from rpc.pi.messages import AssistantMessageEnd, content_text
from wire.messages import PromptResult, StopReason, TokenUsage, ToolCallView

MAX_RUN_EVENTS = 1_000
"""Events kept for the result of one run; the oldest go first."""
_MAX_OPEN_TOOLS = 1_000

_STOP_REASONS: dict[str | None, StopReason] = {  # "toolUse" is no end: the run goes on, or is cut off
    "stop": "stop",
    "length": "length",
    "aborted": "aborted",
    "error": "error",
}


class PiRun:
    """What has been gathered of one run.

    Attributes:
        id: the caller's run id, or one of ours.
        waiting: request ids that are answered with the run's end, in order.
        announced: whether ``run_start`` has gone out.
        aborting: an abort was asked for; the run may not start again.
        keep_queue: that abort leaves pi's queue as it is.
        usage: tokens of the run so far; what the model read from its cache counts as input. Its cost, where pi knows
            a price.
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
        self.usage = TokenUsage()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_RUN_EVENTS)
        self._tools: dict[str, tuple[ToolCallView, float]] = {}

    def record_message(self, message: AssistantMessageEnd) -> str:
        """Count an assistant message that has ended; returns its text."""
        text = content_text(message.content)
        self._text = text or self._text
        self._stop_reason = _STOP_REASONS.get(message.stop_reason)
        self._error = message.error_message if self._stop_reason == "error" else None
        used = message.usage
        cost = used.cost.total if used.cost is not None else 0.0
        self.usage = self.usage.plus(
            TokenUsage(used.input + used.cacheRead + used.cacheWrite, used.output, cost or msgspec.UNSET)
        )
        return text

    def record_event(self, event: str, data: msgspec.Struct) -> None:
        """Remember an event for the result."""
        self._events.append({"event": event, "data": msgspec.to_builtins(data)})

    def tool_started(self, call: ToolCallView, now: float) -> None:
        """A tool call runs."""
        if len(self._tools) < _MAX_OPEN_TOOLS:
            self._tools[call.id] = (call, now)

    def tool_call(self, call_id: str, name: str) -> ToolCallView:
        """The call as it was started; made up from the two when its start was never seen."""
        known = self._tools.get(call_id)
        return known[0] if known else ToolCallView(id=call_id, name=name, state="RUNNING")

    def tool_ended(self, call_id: str, name: str, now: float, *, failed: bool) -> ToolCallView:
        """A tool call is over; the view of its end."""
        call = self.tool_call(call_id, name)
        started = self._tools.pop(call_id, (call, now))[1]
        state = "FAILED" if failed else "COMPLETED"
        return msgspec.structs.replace(call, state=state, duration_ms=round((now - started) * 1000, 3))

    def mark_aborted(self) -> None:
        """The run was ended from outside and pi will not say so."""
        self._stop_reason, self._error = "aborted", None

    def result(self) -> PromptResult:
        """The run's result."""
        reason = self._stop_reason
        if self.aborting and reason in (None, "error"):  # a wait before a retry was ended, or a run of tools
            reason = "aborted"
        return PromptResult(
            text=self._text,
            stop_reason=reason or "stop",
            events=list(self._events),
            usage=self.usage,
            error=self._error if reason == "error" else None,
        )


class PiRunPhase(Enum):
    """Where the run is."""

    IDLE = auto()
    """No run."""
    STARTING = auto()
    """A prompt is on its way, or accepted, and no ``agent_start`` has come."""
    RUNNING = auto()
    """Between ``agent_start`` and ``agent_end``."""
    ENDING = auto()
    """After ``agent_end``; a question is out whose answer comes after anything that would continue the run."""
    RESTARTING = auto()
    """pi waits before a retry, or is about to continue after a compaction; ``agent_start`` will come."""
    COMPACTING = auto()
    """pi shortens the conversation after the run and may continue it."""
    DRAINING = auto()
    """The aborted run has left messages in pi's queue, which are being dropped before the run counts as over."""


class PhaseEvent(Enum):
    """What pi or we did that moves the run."""

    PROMPT = auto()
    AGENT_START = auto()
    AGENT_END = auto()
    RETRY = auto()
    RETRY_GIVEN_UP = auto()
    COMPACTION_START = auto()
    COMPACTION_END = auto()
    COMPACTION_CONTINUES = auto()
    DRAIN = auto()
    OVER = auto()


_TRANSITIONS: dict[PiRunPhase, dict[PhaseEvent, PiRunPhase]] = {
    PiRunPhase.IDLE: {PhaseEvent.PROMPT: PiRunPhase.STARTING, PhaseEvent.AGENT_START: PiRunPhase.RUNNING},
    PiRunPhase.STARTING: {PhaseEvent.AGENT_START: PiRunPhase.RUNNING, PhaseEvent.DRAIN: PiRunPhase.DRAINING},
    PiRunPhase.RUNNING: {PhaseEvent.AGENT_END: PiRunPhase.ENDING},
    PiRunPhase.ENDING: {
        PhaseEvent.PROMPT: PiRunPhase.STARTING,
        PhaseEvent.AGENT_START: PiRunPhase.RUNNING,
        PhaseEvent.RETRY: PiRunPhase.RESTARTING,
        PhaseEvent.RETRY_GIVEN_UP: PiRunPhase.ENDING,
        PhaseEvent.COMPACTION_START: PiRunPhase.COMPACTING,
        PhaseEvent.DRAIN: PiRunPhase.DRAINING,
    },
    PiRunPhase.RESTARTING: {
        PhaseEvent.PROMPT: PiRunPhase.STARTING,
        PhaseEvent.AGENT_START: PiRunPhase.RUNNING,
        PhaseEvent.DRAIN: PiRunPhase.DRAINING,
        PhaseEvent.RETRY_GIVEN_UP: PiRunPhase.ENDING,
    },
    PiRunPhase.COMPACTING: {
        PhaseEvent.AGENT_START: PiRunPhase.RUNNING,
        PhaseEvent.COMPACTION_END: PiRunPhase.ENDING,
        PhaseEvent.COMPACTION_CONTINUES: PiRunPhase.RESTARTING,
    },
    PiRunPhase.DRAINING: {},
}


def next_phase(phase: PiRunPhase, sign: PhaseEvent) -> PiRunPhase:
    """The next phase. A sign that has no place in a phase changes nothing: a worker's output is not to be trusted."""
    if sign is PhaseEvent.OVER:
        return PiRunPhase.IDLE
    return _TRANSITIONS[phase].get(sign, phase)
