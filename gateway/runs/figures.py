"""What runs have come to since the supervisor's start, by agent: ends, times, tokens, cost."""

from collections import Counter

import msgspec

from gateway.runs.run import RunOutcome
from wire.histogram import TURN_BOUNDS, BoundedSeries, Histogram, HistogramData
from wire.messages import TokenUsage

_AGENTS, _MODELS = 64, 64
"""With figures of their own; above that they share them: settings may be reloaded, and models chosen, without end."""
_MOST_TOKENS, _MOST_COST = 10**9, 1e6
"""Of one report: it is an agent's word, and a sum that it has spoilt stays so."""
_OWN_CHOICE = "default"
"""Stands for the model where neither settings nor the session name one."""


class AgentRuns(msgspec.Struct, frozen=True):
    """The runs of one agent that have ended, and how many by reason (``DoneReason``).

    ``waited``: seconds from acceptance to the start of their turn; ``took``: from acceptance to the end of those that
    had a turn.
    """

    agent: str
    ended: dict[str, int]
    waited: HistogramData
    took: HistogramData


class AgentUsage(msgspec.Struct, frozen=True):
    """Tokens of one agent with one model, and US dollars; ``cost`` is None where the agent tells none."""

    agent: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None


class _RunSums:
    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.waited = Histogram(TURN_BOUNDS)
        self.took = Histogram(TURN_BOUNDS)


class _UsageSums:
    input_tokens = output_tokens = 0
    cost: float | None = None


class RunFigures:
    """One for the supervisor's life."""

    def __init__(self) -> None:
        self._runs = BoundedSeries(_RunSums, _AGENTS)
        self._usage = BoundedSeries(_UsageSums, _MODELS)

    def count_run(self, agent: str, outcome: RunOutcome) -> None:
        """A run has its outcome."""
        runs = self._runs.get((agent,))
        runs.ended[outcome.reason._value_] += 1  # ``value`` costs two calls
        if outcome.started_at is not None:
            runs.waited.observe(max(0.0, outcome.started_at - outcome.accepted_at))
            runs.took.observe(max(0.0, outcome.ended_at - outcome.accepted_at))

    def count_usage(self, agent: str, model: str | None, before: TokenUsage, now: TokenUsage) -> None:
        """A turn has used ``now``, of which ``before`` has been counted."""
        usage = self._usage.get((agent, model or _OWN_CHOICE))
        usage.input_tokens += min(max(0, now.input_tokens - before.input_tokens), _MOST_TOKENS)
        usage.output_tokens += min(max(0, now.output_tokens - before.output_tokens), _MOST_TOKENS)
        if now.cost is not msgspec.UNSET:
            more = now.cost - (0.0 if before.cost is msgspec.UNSET else before.cost)
            usage.cost = (usage.cost or 0.0) + min(max(0.0, more), _MOST_COST)

    def runs(self) -> list[AgentRuns]:
        """By agent."""
        return [
            AgentRuns(agent, dict(each.ended), each.waited.data(), each.took.data())
            for (agent,), each in self._runs.items()
        ]

    def usage(self) -> list[AgentUsage]:
        """By agent and model."""
        return [
            AgentUsage(agent, model, each.input_tokens, each.output_tokens, each.cost)
            for (agent, model), each in self._usage.items()
        ]
