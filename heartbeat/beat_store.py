"""What is remembered of beats; what of it survives the supervisor has a document for each agent and begun beat."""

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

import msgspec
import structlog

from heartbeat.ports import Documents
from heartbeat.records import AgentRecord, AlertDedupe, BeatInProgress, BeatOutcome, BeatReport
from heartbeat.wake import BeatTarget
from wire.framing import DECODE_ERRORS

AGENT_KIND = "beat"
DEDUPE_KIND = "beat_told"
IN_PROGRESS_KIND = "beat_begun"
"""Kinds of documents: how an agent stands, what it has told lately, and beats that tell events."""

_FAILED_TTL = 86_400.0
"""Seconds for which the number of a failed attempt is of any use: by then no run of its name is known any more."""

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class BeatStore:
    """Everything is remembered for agents that are configured, and bounded for each of them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._records: dict[str, AgentRecord] = {}
        self._dedupes: dict[str, AlertDedupe] = {}
        self._in_progress: dict[BeatTarget, BeatInProgress] = {}
        self._skips: dict[str, BeatReport] = {}
        self._counts: dict[str, Counter[BeatOutcome]] = {}

    async def load(self, wall: float) -> None:
        """Read what an earlier life has kept. What makes no sense is left where it is, and the log says so."""
        self._records = _decoded(AGENT_KIND, await self._documents.load(AGENT_KIND), AgentRecord)
        told = _decoded(DEDUPE_KIND, await self._documents.load(DEDUPE_KIND), dict[str, float])
        self._dedupes = {agent: AlertDedupe(digests) for agent, digests in told.items()}
        for begun in _decoded(IN_PROGRESS_KIND, await self._documents.load(IN_PROGRESS_KIND), BeatInProgress).values():
            self._in_progress[begun.target] = begun
            if begun.has_failed and abs(wall - begun.at) > _FAILED_TTL:
                self.delete_in_progress(begun.target)

    def keep_only(self, agents: Iterable[str]) -> None:
        """Other agents are not configured any more: nothing is kept of them."""
        known = frozenset(agents)
        for agent in [agent for agent in {*self._records, *self._dedupes} if agent not in known]:
            self._records.pop(agent, None)
            self._dedupes.pop(agent, None)
            self._documents.put(AGENT_KIND, agent, None)
            self._documents.put(DEDUPE_KIND, agent, None)
        for agent in [agent for agent in {*self._skips, *self._counts} if agent not in known]:
            self._skips.pop(agent, None)
            self._counts.pop(agent, None)
        for target in [target for target in self._in_progress if target.agent not in known]:
            self.delete_in_progress(target)

    # --- reports ------------------------------------------------------------------------------------------------------

    def agent_record(self, agent: str) -> AgentRecord:
        """What is kept of the agent."""
        return self._records.get(agent, _EMPTY_RECORD)

    def last_beats(self) -> dict[str, float]:
        """When each agent beat last, in Unix time."""
        return {agent: record.last.at for agent, record in self._records.items() if record.last is not None}

    def last_skip(self, agent: str) -> BeatReport | None:
        """The latest beat that was not to be, in this life."""
        return self._skips.get(agent)

    def counts(self, agent: str) -> Mapping[BeatOutcome, int]:
        """What came of the agent's beats in this life."""
        return self._counts.get(agent, {})

    def save_report(self, report: BeatReport) -> None:
        """Note what came of a beat. A skip is no beat, and is not kept over a restart."""
        agent = report.agent
        self._counts.setdefault(agent, Counter())[report.outcome] += 1
        if report.outcome is BeatOutcome.SKIPPED:
            self._skips[agent] = report
        else:
            self._save_record(agent, msgspec.structs.replace(self.agent_record(agent), last=report))

    def save_pause(self, target: BeatTarget, until: float, wall: float) -> None:
        """The flood guard holds the target's events until then (Unix time); pauses that are over are forgotten."""
        record = self.agent_record(target.agent)
        paused = {session: end for session, end in record.paused.items() if end > wall}
        self._save_record(target.agent, msgspec.structs.replace(record, paused={**paused, target.session: until}))

    def _save_record(self, agent: str, record: AgentRecord) -> None:
        self._records[agent] = record
        self._documents.put(AGENT_KIND, agent, _encode(record))

    # --- what was told ------------------------------------------------------------------------------------------------

    def alert_dedupe(self, agent: str) -> AlertDedupe:
        """What the agent has told lately."""
        return self._dedupes.get(agent) or AlertDedupe()

    def save_dedupe(self, agent: str, told: AlertDedupe) -> None:
        """It has told something."""
        self._dedupes[agent] = told
        self._documents.put(DEDUPE_KIND, agent, _encode(told.shown_at))

    # --- begun beats --------------------------------------------------------------------------------------------------

    def in_progress(self, target: BeatTarget) -> BeatInProgress | None:
        """The target's beat that tells events and has not come to a good end."""
        return self._in_progress.get(target)

    def all_in_progress(self) -> list[BeatInProgress]:
        """Of all targets."""
        return list(self._in_progress.values())

    def save_in_progress(self, begun: BeatInProgress) -> Awaitable[None]:
        """A later life is to go on with it; the result waits until that is durable."""
        self._in_progress[begun.target] = begun
        return self._documents.put(IN_PROGRESS_KIND, _document_key(begun.target), _encode(begun))

    def delete_in_progress(self, target: BeatTarget) -> None:
        """It is over; so is whatever number its attempts had."""
        if self._in_progress.pop(target, None) is not None:
            self._documents.put(IN_PROGRESS_KIND, _document_key(target), None)


_EMPTY_RECORD = AgentRecord()


def _document_key(target: BeatTarget) -> str:
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
