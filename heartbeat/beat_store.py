"""Persistence of beats: one document for each agent, its alert digests, and each beat in progress."""

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
"""Kinds of documents: agent records, digests of shown alerts, and beats with events."""

_FAILED_TTL = 86_400.0
"""Seconds for which the number of a failed attempt matters: by then its run is forgotten."""

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class BeatStore:
    """Keeps bounded state of each configured agent."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._records: dict[str, AgentRecord] = {}
        self._dedupes: dict[str, AlertDedupe] = {}
        self._in_progress: dict[BeatTarget, BeatInProgress] = {}
        self._skips: dict[str, BeatReport] = {}
        self._counts: dict[str, Counter[BeatOutcome]] = {}

    async def load(self, wall: float) -> None:
        """Load the previous supervisor's state. Unreadable documents stay in place and are logged."""
        self._records = _decoded(AGENT_KIND, await self._documents.load(AGENT_KIND), AgentRecord)
        digests = _decoded(DEDUPE_KIND, await self._documents.load(DEDUPE_KIND), dict[str, float])
        self._dedupes = {agent: AlertDedupe(shown_at) for agent, shown_at in digests.items()}
        for begun in _decoded(IN_PROGRESS_KIND, await self._documents.load(IN_PROGRESS_KIND), BeatInProgress).values():
            self._in_progress[begun.target] = begun
            if begun.has_failed and abs(wall - begun.at) > _FAILED_TTL:
                self.delete_in_progress(begun.target)

    def keep_only(self, agents: Iterable[str]) -> None:
        """Delete the state of all other agents."""
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

    def agent_record(self, agent: str) -> AgentRecord:
        """The kept state of the agent."""
        return self._records.get(agent, _EMPTY_RECORD)

    def last_beats(self) -> dict[str, float]:
        """The Unix time of each agent's last beat."""
        return {agent: record.last.at for agent, record in self._records.items() if record.last is not None}

    def last_skip(self, agent: str) -> BeatReport | None:
        """The agent's latest skipped beat since the start."""
        return self._skips.get(agent)

    def counts(self, agent: str) -> Mapping[BeatOutcome, int]:
        """Outcomes of the agent's beats since the start."""
        return self._counts.get(agent, {})

    def save_report(self, report: BeatReport) -> None:
        """Record a beat. Skips are not kept over a restart."""
        agent = report.agent
        self._counts.setdefault(agent, Counter())[report.outcome] += 1
        if report.outcome is BeatOutcome.SKIPPED:
            self._skips[agent] = report
        else:
            self._save_record(agent, msgspec.structs.replace(self.agent_record(agent), last=report))

    def save_pause(self, target: BeatTarget, until: float, wall: float) -> None:
        """Keep a flood guard pause until then (Unix time); expired pauses are dropped."""
        record = self.agent_record(target.agent)
        paused = {session: end for session, end in record.paused.items() if end > wall}
        self._save_record(target.agent, msgspec.structs.replace(record, paused={**paused, target.session: until}))

    def _save_record(self, agent: str, record: AgentRecord) -> None:
        self._records[agent] = record
        self._documents.put(AGENT_KIND, agent, _encode(record))

    def alert_dedupe(self, agent: str) -> AlertDedupe:
        """The agent's recently shown alerts."""
        return self._dedupes.get(agent) or AlertDedupe()

    def save_dedupe(self, agent: str, shown: AlertDedupe) -> None:
        """Keep the agent's shown alerts."""
        self._dedupes[agent] = shown
        self._documents.put(DEDUPE_KIND, agent, _encode(shown.shown_at))

    def in_progress(self, target: BeatTarget) -> BeatInProgress | None:
        """The target's beat with events that has not succeeded."""
        return self._in_progress.get(target)

    def all_in_progress(self) -> list[BeatInProgress]:
        """Beats in progress of all targets."""
        return list(self._in_progress.values())

    def save_in_progress(self, begun: BeatInProgress) -> Awaitable[None]:
        """Keep the beat for the next supervisor; await the result until it is durable."""
        self._in_progress[begun.target] = begun
        return self._documents.put(IN_PROGRESS_KIND, _document_key(begun.target), _encode(begun))

    def delete_in_progress(self, target: BeatTarget) -> None:
        """Delete the target's beat, with the number of its attempts."""
        if self._in_progress.pop(target, None) is not None:
            self._documents.put(IN_PROGRESS_KIND, _document_key(target), None)


_EMPTY_RECORD = AgentRecord()


def _document_key(target: BeatTarget) -> str:
    """Agent names have no spaces."""
    return f"{target.agent} {target.session}"


def _decoded(kind: str, bodies: Mapping[str, bytes], shape: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for key, body in bodies.items():
        try:
            found[key] = msgspec.json.decode(body, type=shape)
        except DECODE_ERRORS as exc:
            structlog.get_logger().error("beat_unreadable", kind=kind, key=key, error=str(exc))
    return found
