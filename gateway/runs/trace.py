"""What the trace of a run shows: its spans, from the times of its steps. Pure; times are Unix times in seconds.

```
invoke_agent AGENT          from acceptance to outcome; below the caller's span, where the request names one
├─ accept                   until the acceptance is durable
├─ wait                     until its turn begins: earlier messages of the session, the lane
├─ lease                    until it has a worker
└─ turn                     from the prompt to the outcome; its name is what the agent is handed
   └─ execute_tool TOOL     one for each call
```
A run that shares another's turn has a link to that turn instead. No text of a person or an agent is part of a span.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from wire.traceparent import TraceParent

if TYPE_CHECKING:
    from gateway.runs.run import RunOutcome, RunRequest

MAX_TOOLS = 200
"""Calls of one turn that have a span each."""
_SPAN_IDS = 2**64


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span. ``error``: a code, where it failed. ``link``: a span of another trace that it belongs with."""

    name: str
    place: TraceParent
    parent_id: str | None
    start: float
    end: float
    attributes: dict[str, str | int | float]
    error: str | None = None
    is_entry: bool = False
    """Whether it is where a request came in."""
    link: TraceParent | None = None


class _ToolCall(NamedTuple):
    id: str
    name: str
    start: float
    end: float | None = None
    error: str | None = None


class RunTrace:
    """The times of one run's steps, as they happen.

    Args:
        root: the place of the run's own span.
        parent_id: the span above it, if any.
    """

    def __init__(self, root: TraceParent, parent_id: str | None) -> None:
        self.root = root
        self._parent_id = parent_id
        self.turn = self._child(1)
        """The place of its turn's span."""
        self._shared: TraceParent | None = None
        """Another run's turn, which it is a part of."""
        self._durable_at: float | None = None
        self._begun_at: float | None = None
        self._leased_at: float | None = None
        self._prompted_at: float | None = None
        self._model: str | None = None
        self._leases = 0
        self._calls: dict[str, _ToolCall] = {}

    def _child(self, number: int) -> TraceParent:
        span_id = (int(self.root.span_id, 16) + number) % _SPAN_IDS or 1
        return self.root._replace(span_id=f"{span_id:016x}")

    # --- what happens -------------------------------------------------------------------------------------------------

    def accepted(self, now: float) -> None:
        """The acceptance is durable."""
        self._durable_at = now

    def begun(self, now: float) -> None:
        """Its turn has begun."""
        self._begun_at = now

    def leased(self, leader: "RunTrace | None", model: str | None, now: float) -> None:
        """The turn, which ``leader`` leads, has a worker; again after a worker that died."""
        self._leases += 1
        self._leased_at = self._leased_at or now
        self._model = model
        if leader is not self and leader is not None:
            self._shared = leader.turn

    def prompted(self, now: float) -> str:
        """The worker is prompted; what it is handed as the span that it works below."""
        self._prompted_at = self._prompted_at or now
        return str(self.turn)

    def observe(self, type_: str, data: Any, now: float) -> None:
        """A published event ``tool:...`` of its turn; any other is passed over."""
        if not type_.startswith("tool:"):
            return
        call = data["call"]
        known = self._calls.get(call.id)
        if known is None:
            if len(self._calls) < MAX_TOOLS:
                self._calls[call.id] = _ToolCall(call.id, call.name, now)
        elif type_ == "tool:end":
            self._calls[call.id] = known._replace(end=now)
        elif type_ == "tool:error":
            self._calls[call.id] = known._replace(end=now, error="tool_error")

    # --- what it was --------------------------------------------------------------------------------------------------

    def spans(self, request: "RunRequest", outcome: "RunOutcome") -> list[Span]:
        """All its spans, once it has its outcome."""
        if not self.root.is_sampled:
            return []
        error = None if outcome.error is None else outcome.error.code
        root = Span(
            name=f"invoke_agent {request.agent}",
            place=self.root,
            parent_id=self._parent_id,
            start=outcome.accepted_at,
            end=outcome.ended_at,
            attributes=self._attributes(request, outcome),
            error=error,
            is_entry=True,
            link=self._shared,
        )
        return [root, *self._steps(outcome), *self._turn_spans(outcome, error)]

    def _attributes(self, request: "RunRequest", outcome: "RunOutcome") -> dict[str, str | int | float]:
        usage = outcome.usage
        facts: dict[str, str | int | None] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": request.agent,
            "gen_ai.conversation.id": request.session,
            "gen_ai.request.model": self._model,
            "gen_ai.usage.input_tokens": None if usage is None else usage.input_tokens,
            "gen_ai.usage.output_tokens": None if usage is None else usage.output_tokens,
            "pool.run": request.run_id,
            "pool.role": request.role,
            "pool.reason": outcome.reason.value,
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _steps(self, outcome: "RunOutcome") -> Iterator[Span]:
        """What comes before the turn."""
        begun = self._begun_at or self._leased_at or outcome.ended_at
        if self._durable_at is not None:
            yield self._step(2, "accept", outcome.accepted_at, self._durable_at)
        yield self._step(3, "wait", outcome.accepted_at, begun)
        if self._begun_at is not None and self._shared is None:
            end = outcome.ended_at if self._leased_at is None else self._leased_at
            facts = {"pool.worker": outcome.worker, "pool.match": outcome.level, "pool.leases": self._leases}
            yield self._step(4, "lease", self._begun_at, end, **facts)

    def _step(self, number: int, name: str, start: float, end: float, **facts: Any) -> Span:
        attributes = {key: value for key, value in facts.items() if value is not None}
        place, above = self._child(number), self.root.span_id
        return Span(name=name, place=place, parent_id=above, start=start, end=end, attributes=attributes)

    def _turn_spans(self, outcome: "RunOutcome", error: str | None) -> Iterator[Span]:
        if self._prompted_at is None:
            return
        yield Span(
            name="turn",
            place=self.turn,
            parent_id=self.root.span_id,
            start=self._prompted_at,
            end=outcome.ended_at,
            attributes={} if outcome.worker is None else {"pool.worker": outcome.worker},
            error=error,
        )
        for number, call in enumerate(self._calls.values(), start=5):
            yield Span(
                name=f"execute_tool {call.name}",
                place=self._child(number),
                parent_id=self.turn.span_id,
                start=call.start,
                end=outcome.ended_at if call.end is None else call.end,
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": call.name,
                    "gen_ai.tool.call.id": call.id,
                },
                error="no_result" if call.end is None else call.error,
            )


class Tracer(Protocol):
    """Where traces begin and where their spans go."""

    def begin(self, parent: TraceParent | None) -> RunTrace:
        """The trace of a new run, below ``parent`` where its caller names one."""
        ...

    def export(self, spans: list[Span]) -> None:
        """Take the spans of a run that has ended; must not wait or raise."""
        ...
