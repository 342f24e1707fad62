"""One turn: what has been gathered for its result, the tool calls that are open, its phases as a transition table."""

from collections import deque
from enum import Enum, auto
from typing import Any

import msgspec

from rpc.acp.bounds import TurnText
from rpc.acp.loss import loss_of
from rpc.acp.messages import AUTH_REQUIRED, AcpAnswer, AcpError, text_of
from rpc.acp.updates import used_tokens
from rpc.run_events import MAX_MESSAGE_CHARS, RecordedMessage
from wire.messages import PromptResult, StopReason, TokenUsage

_MAX_RUN_EVENTS = 1_000
"""Events kept for the result of one turn; the oldest go first."""

_STOP_REASONS: dict[str | None, StopReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "max_turn_requests": "max_steps",
    "cancelled": "aborted",
    "refusal": "error",
}


class AcpPhase(Enum):
    """Where the turn is."""

    IDLE = auto()
    """No turn."""
    RUNNING = auto()
    """``session/prompt`` is written and not answered."""
    CANCELLING = auto()
    """The same, and ``session/cancel`` is written: every permission is answered ``cancelled``."""


class AcpPhaseEvent(Enum):
    """What moves the turn."""

    PROMPT = auto()
    CANCEL = auto()
    ANSWER = auto()
    GIVE_UP = auto()


_TRANSITIONS: dict[tuple[AcpPhase, AcpPhaseEvent], AcpPhase] = {
    (AcpPhase.IDLE, AcpPhaseEvent.PROMPT): AcpPhase.RUNNING,
    (AcpPhase.RUNNING, AcpPhaseEvent.CANCEL): AcpPhase.CANCELLING,
    (AcpPhase.RUNNING, AcpPhaseEvent.ANSWER): AcpPhase.IDLE,
    (AcpPhase.CANCELLING, AcpPhaseEvent.ANSWER): AcpPhase.IDLE,
    (AcpPhase.CANCELLING, AcpPhaseEvent.GIVE_UP): AcpPhase.IDLE,
}


def next_acp_phase(phase: AcpPhase, event: AcpPhaseEvent) -> AcpPhase:
    """The next phase; raises KeyError for a move that does not exist, which is a defect of ours."""
    return _TRANSITIONS[phase, event]


class AcpRun:
    """What has been gathered of one turn.

    Attributes:
        id: the caller's run id, or one of ours.
        waiting: request ids that are answered with the turn's end, in order.
        aborts: request ids of aborts, answered after them.
        wire_id: the id of its ``session/prompt``.
        denied: a person or a rule has denied a call.
        did_something: the agent said something or called a tool.
        is_refed: its prompt began with earlier talk, which the agent had lost.
        outcome: its result, once it has ended.
    """

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.waiting: list[str] = []
        self.aborts: list[str] = []
        self.wire_id = 0
        self.denied = False
        self.did_something = False
        self.is_refed = False
        self.outcome: PromptResult | None = None
        self.cost: float | msgspec.UnsetType = msgspec.UNSET
        self._text = TurnText()
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_RUN_EVENTS)

    def add_text(self, text: str) -> None:
        """A piece of the answer."""
        self.did_something = True
        self._text.add(text)

    def break_text(self) -> None:
        """A tool call: what the agent says next is another message."""
        self.did_something = True
        self._text.begin_message()

    def record_event(self, event: str, data: msgspec.Struct) -> None:
        """Remember an event for the result."""
        self._events.append({"event": event, "data": msgspec.to_builtins(data)})

    @property
    def messages(self) -> list[str]:
        """What the agent has said, message by message; of very much text a part."""
        return self._text.messages

    def result(self, answer: AcpAnswer | None, *, cancelled: bool) -> PromptResult:
        """The turn's result; ``answer`` None: it never came. ``cancelled``: by us."""
        said = self.messages
        reason, error = self._end(answer, cancelled=cancelled)
        if said:
            text = said[-1][:MAX_MESSAGE_CHARS]
            self.record_event("assistant_message", RecordedMessage(text=text, stop_reason=reason))
        used = None if answer is None else used_tokens(answer.result)
        return PromptResult(
            text=said[-1] if said else "",
            stop_reason=reason,
            events=list(self._events),
            usage=TokenUsage(*(used or (0, 0)), self.cost),
            error=error,
            strategy="refed" if self.is_refed else msgspec.UNSET,
        )

    def _end(self, answer: AcpAnswer | None, *, cancelled: bool) -> tuple[StopReason, str | None]:
        if answer is None:
            return "aborted", "the agent did not answer the cancelled prompt"
        if answer.error is not None:
            if cancelled:
                return "aborted", None
            return "error", _refusal_text(answer.error)
        reason = _STOP_REASONS.get(text_of(answer.result.get("stopReason")), "stop")
        if reason == "error":
            return "error", "refusal"
        if reason != "aborted" or cancelled:
            return reason, None
        return "aborted", "a call was denied" if self.denied else "the agent has cancelled the turn by itself"


def _refusal_text(error: AcpError) -> str:
    """Why a prompt failed, in the agent's words behind ours."""
    if error.code == AUTH_REQUIRED:
        return f"the agent wants a login: {error.text}"
    if loss_of(error.code, error.text) is not None:
        return f"the agent has lost the conversation, which the next message takes up again: {error.text}"
    return error.text
