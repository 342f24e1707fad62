"""A run, from its acceptance to its outcome, and the parameters of its prompt."""

import math
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import trio

from errors import PoolError, PoolSaturated, RunAborted, RunInterrupted
from gateway.lanes.messages import RejectionReason, RejectRun
from gateway.runs.index import RunRecord
from gateway.runs.trace import RunTrace
from gateway.turns.client_tools import ClientTool, ToolResult
from gateway.turns.media import Media
from gateway.turns.replies import Blocks
from pool.stimuli import SpawnPolicy
from router.source import MessageSource
from rpc.passthrough import RawRequest
from store.records import RunKey
from wire.messages import AnswerOptions, ErrorBody, ImageContent, PromptParams, QueueMode, TokenUsage


class RunOrigin(NamedTuple):
    """Where a run comes from: number of delegations, whether an ancestor holds a worker, the delegating session."""

    depth: int = 0
    nested: bool = False
    from_session: str | None = None


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An accepted request, as the store keeps it until the run has ended.

    ``timeout`` in seconds covers waiting and running, None takes the agent's; 0 means no limit. ``run_id`` is the
    caller's idempotency key. ``nested``: an ancestor of this run holds a worker. ``depth``: the number of delegations
    above it. ``spawn``: as in ``stimuli.Acquire``. ``blocks``, ``client_tools``, ``tool_results``, ``answer``: as in
    ``AgentRequest``. ``from_session``: the session that the message comes from. ``model`` replaces the session's own.
    ``tells_events`` False: no system events are added to its text. ``is_quiet``: no person wrote it; it is no activity
    of the session, and its text and answer are not published.
    """

    principal: str
    session: str
    run_id: str
    text: str
    agent: str = "main"
    role: str = "default"
    priority: int = 5
    timeout: float | None = None
    retry_safe: bool = False
    lane: str = "main"
    mode: QueueMode = QueueMode.STEER
    images: list[ImageContent] = []
    source: MessageSource | None = None
    nested: bool = False
    spawn: SpawnPolicy = True
    depth: int = 0
    blocks: Blocks = Blocks.OFF
    client_tools: list[ClientTool] = []
    tool_results: list[ToolResult] = []
    answer: AnswerOptions | None = None
    from_session: str | None = None
    model: str | None = None
    tells_events: bool = True
    is_quiet: bool = False
    traceparent: str | None = None
    tracestate: str | None = None
    """As in ``AgentRequest``."""
    attached: bool = False
    """Its front end speaks the protocol of the worker's own program; without the front end there is no run."""

    @property
    def is_plain(self) -> bool:
        """Whether it is nothing but text, which can be merged with others, or steered into a turn."""
        tools = self.client_tools or self.tool_results or self.answer
        is_more = self.images or tools or self.from_session or self.attached or self.model
        return self.tells_events and not (is_more or self.is_quiet)

    @property
    def key(self) -> RunKey:
        """What identifies the run."""
        return (self.principal, self.session, self.run_id)


class DoneReason(StrEnum):
    """Why a run is over; the ``reason`` of its ``done`` event."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    TIMEOUT = "timeout"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run ended. Times are Unix times in seconds; ``waited``: seconds until a worker was granted.

    ``level``: how the worker matched. ``strategy``: ``refed``, where the agent had lost the conversation and was given
    the end of the transcript. ``media``: files the agent handed over beside its text. ``silent``: the agent
    chose to say nothing, and nothing is to be shown. ``calls``: ``{id, name, input}`` each, which the caller is to
    carry out (reason ``tool_calls``). ``step``: how many model calls the turn took.
    """

    run_id: str
    session: str
    status: str
    text: str = ""
    stop_reason: str = "stop"
    reason: DoneReason = DoneReason.COMPLETED
    error: ErrorBody | None = None
    accepted_at: float = 0.0
    started_at: float | None = None
    ended_at: float = 0.0
    worker: str | None = None
    level: str | None = None
    waited: float | None = None
    usage: TokenUsage | None = None
    media: list[Media] = []
    silent: bool = False
    calls: list[dict[str, Any]] = []
    step: int | None = None
    strategy: str | None = None


class Run:
    """One run, for those that carry it out and those that wait for its outcome.

    Attributes:
        name: its name in the lanes, unique among all runs of this supervisor.
        record: its state and times, as the index and the store keep them.
        accepted_seq: the seq of its ``run:accepted`` event; everything that concerns it comes later.
        started_seq: that of its ``run:start``; 0 = this supervisor has recorded none.
    """

    def __init__(self, name: str, request: RunRequest, record: RunRecord) -> None:
        self.name = name
        self.request = request
        self.record = record
        self.accepted_seq = self.started_seq = 0
        self.raw: RawRequest | None = None
        """The prompt as its front end wrote it; the worker gets it as it is."""
        self.trace: RunTrace | None = None
        """Where traces are recorded, its own."""
        self.deadline = math.inf
        """On the event loop's clock, from ``start_clock``."""
        self.outcome: RunOutcome | None = None
        self._ended = trio.Event()

    @property
    def is_live(self) -> bool:
        """Whether it has no outcome yet."""
        return self.outcome is None

    def start_clock(self, now: float) -> None:
        """Its time for waiting and running begins; ``now`` is on the event loop's clock."""
        self.deadline = now + (self.request.timeout or math.inf)

    def settle(self, outcome: RunOutcome) -> None:
        """Keep the outcome and wake those who wait for it; the first one counts."""
        if self.outcome is None:
            self.outcome = outcome
            self._ended.set()

    async def wait(self) -> RunOutcome:
        """Wait for the outcome; no checkpoint where it is there."""
        if self.outcome is None:
            await self._ended.wait()
        assert self.outcome is not None  # noqa: S101 - set together with the event
        return self.outcome


_ENDS_OF_ERRORS = {
    **dict.fromkeys(("aborted", "interrupted"), (DoneReason.INTERRUPTED, "aborted")),
    **dict.fromkeys(("request_timeout", "acquire_timeout"), (DoneReason.TIMEOUT, "timeout")),
}
"""``reason`` and ``stop_reason`` by the code of the error."""


def outcome_of_error(run: Run, error: PoolError, *, ended_at: float, **facts: Any) -> RunOutcome:
    """The outcome of a run that failed with ``error``."""
    reason, stop_reason = _ENDS_OF_ERRORS.get(error.code, (DoneReason.ERROR, "error"))
    return RunOutcome(
        run_id=run.request.run_id,
        session=run.request.session,
        status="error",
        stop_reason=stop_reason,
        reason=reason,
        error=ErrorBody(error.code, error.message, encodable_details(error.details)),
        accepted_at=run.record.accepted_at,
        started_at=run.record.started_at,
        ended_at=ended_at,
        **facts,
    )


def interrupted_error(request: RunRequest) -> RunInterrupted:
    """The error of a run that was in its turn when the supervisor ended."""
    return RunInterrupted(
        f"the supervisor ended while run {request.run_id} of session {request.session} was in its turn; what it did "
        "until then is in the conversation",
        session=request.session,
    )


def rejection_error(request: RunRequest, refusal: RejectRun) -> PoolError:
    """The error of a run that its lane has rejected."""
    match refusal.reason:
        case RejectionReason.INTERRUPTED | RejectionReason.CLEARED:
            return RunAborted(refusal.text, session=request.session)
        case RejectionReason.FULL | RejectionReason.DROPPED | RejectionReason.EVICTED:
            return PoolSaturated(refusal.text, session=request.session, retry_after=1.0)


def encodable_details(details: dict[str, Any]) -> dict[str, Any]:
    """The details that JSON can hold."""
    kept = {}
    for key, value in details.items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError):
            continue
        kept[key] = value
    return kept


def prompt_params(text: str, leader: RunRequest, turns: int | None, traceparent: str | None) -> PromptParams:
    """The parameters of a turn: ``turns`` is the number of user messages that the model is shown, None = all.

    Requests that share a turn are nothing but text: what has more (``RunRequest.is_plain``) has a turn of its own.
    """
    return PromptParams(
        text,
        leader.images,
        client_tools=msgspec.to_builtins(leader.client_tools),
        tool_results=msgspec.to_builtins(leader.tool_results),
        history_turns=turns,
        from_session=leader.from_session,
        answer=leader.answer,
        traceparent=traceparent,
        tracestate=None if traceparent is None else leader.tracestate,
    )
