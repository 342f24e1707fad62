"""What is remembered of beats; what of it survives the supervisor has a document for each agent and begun beat."""

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

import msgspec
import structlog

from heartbeat.ports import Documents
from heartbeat.records import AgentRecord, BeatReport, Begun, Outcome, Repeats
from heartbeat.wake import Target
from wire.framing import DECODE_ERRORS

AGENTS = "beat"
TOLD = "beat_told"
BEGUN = "beat_begun"
"""Kinds of documents: how an agent stands, what it has told lately, and beats that tell events."""

_FAILED_FOR = 86_400.0
"""Seconds for which the number of a failed attempt is of any use: by then no run of its name is known any more."""

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class BeatBook:
    """Everything is remembered for agents that are configured, and bounded for each of them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._records: dict[str, AgentRecord] = {}
        self._told: dict[str, Repeats] = {}
        self._begun: dict[Target, Begun] = {}
        self._skips: dict[str, BeatReport] = {}
        self._counts: dict[str, Counter[Outcome]] = {}

    async def load(self, wall: float) -> None:
        """Read what an earlier life has kept. What makes no sense is left where it is, and the log says so."""
        self._records = _decoded(AGENTS, await self._documents.load(AGENTS), AgentRecord)
        told = _decoded(TOLD, await self._documents.load(TOLD), dict[str, float])
        self._told = {agent: Repeats(digests) for agent, digests in told.items()}
        for begun in _decoded(BEGUN, await self._documents.load(BEGUN), Begun).values():
            self._begun[begun.target] = begun
            if begun.has_failed and abs(wall - begun.at) > _FAILED_FOR:
                self.forget_begun(begun.target)

    def keep_only(self, agents: Iterable[str]) -> None:
        """Other agents are not configured any more: nothing is kept of them."""
        known = frozenset(agents)
        for agent in [agent for agent in {*self._records, *self._told} if agent not in known]:
            self._records.pop(agent, None)
            self._told.pop(agent, None)
            self._documents.put(AGENTS, agent, None)
            self._documents.put(TOLD, agent, None)
        for agent in [agent for agent in {*self._skips, *self._counts} if agent not in known]:
            self._skips.pop(agent, None)
            self._counts.pop(agent, None)
        for target in [target for target in self._begun if target.agent not in known]:
            self.forget_begun(target)

    # --- reports ------------------------------------------------------------------------------------------------------

    def record(self, agent: str) -> AgentRecord:
        """What is kept of the agent."""
        return self._records.get(agent, _NOTHING)

    def last_beats(self) -> dict[str, float]:
        """When each agent beat last, in Unix time."""
        return {agent: record.last.at for agent, record in self._records.items() if record.last is not None}

    def last_skip(self, agent: str) -> BeatReport | None:
        """The latest beat that was not to be, in this life."""
        return self._skips.get(agent)

    def counts(self, agent: str) -> Mapping[Outcome, int]:
        """What came of the agent's beats in this life."""
        return self._counts.get(agent, {})

    def keep(self, report: BeatReport) -> None:
        """Note what came of a beat. A skip is no beat, and is not kept over a restart."""
        agent = report.agent
        self._counts.setdefault(agent, Counter())[report.outcome] += 1
        if report.outcome is Outcome.SKIPPED:
            self._skips[agent] = report
        else:
            self._keep_record(agent, msgspec.structs.replace(self.record(agent), last=report))

    def keep_pause(self, target: Target, until: float, wall: float) -> None:
        """The flood guard holds the target's events until then (Unix time); pauses that are over are forgotten."""
        record = self.record(target.agent)
        paused = {session: end for session, end in record.paused.items() if end > wall}
        self._keep_record(target.agent, msgspec.structs.replace(record, paused={**paused, target.session: until}))

    def _keep_record(self, agent: str, record: AgentRecord) -> None:
        self._records[agent] = record
        self._documents.put(AGENTS, agent, _encode(record))

    # --- what was told ------------------------------------------------------------------------------------------------

    def told(self, agent: str) -> Repeats:
        """What the agent has told lately."""
        return self._told.get(agent) or Repeats()

    def keep_told(self, agent: str, told: Repeats) -> None:
        """It has told something."""
        self._told[agent] = told
        self._documents.put(TOLD, agent, _encode(told.told))

    # --- begun beats --------------------------------------------------------------------------------------------------

    def begun(self, target: Target) -> Begun | None:
        """The target's beat that tells events and has not come to a good end."""
        return self._begun.get(target)

    def all_begun(self) -> list[Begun]:
        """Of all targets."""
        return list(self._begun.values())

    def keep_begun(self, begun: Begun) -> Awaitable[None]:
        """A later life is to go on with it; the result waits until that is durable."""
        self._begun[begun.target] = begun
        return self._documents.put(BEGUN, _key(begun.target), _encode(begun))

    def forget_begun(self, target: Target) -> None:
        """It is over; so is whatever number its attempts had."""
        if self._begun.pop(target, None) is not None:
            self._documents.put(BEGUN, _key(target), None)


_NOTHING = AgentRecord()


def _key(target: Target) -> str:
    """Names of agents have no blanks."""
    return f"{target.agent} {target.session}"


def _decoded(kind: str, bodies: Mapping[str, bytes], shape: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for key, body in bodies.items():
        try:
            found[key] = msgspec.json.decode(body, type=shape)
        except DECODE_ERRORS as exc:
            structlog.get_logger().error("beat_unreadable", kind=kind, key=key, error=str(exc))
    return found
