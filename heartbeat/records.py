"""Records of beats and their store, with the deduplication of alerts: the same one about the same events once a day."""

import logging
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import TypeVar

import msgspec

from heartbeat.answers import AlertAnswer, BeatKind
from heartbeat.gates import SkipReason
from heartbeat.ports import BeatRequest, Documents
from heartbeat.wake import BeatTarget, WakeReason
from wire.framing import DECODE_ERRORS
from wire.log_context import facts

_logger = logging.getLogger("pool.heartbeat")


class BeatOutcome(StrEnum):
    """The result of a beat."""

    SKIPPED = "skipped"
    """A gate was shut."""
    SILENT = "silent"
    """Nothing to report."""
    REPEATED = "repeated"
    """The same text about the same events was shown within a day; never for commands and tasks."""
    ALERT = "alert"
    FAILED = "failed"


class BeatReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One beat, or why it did not run. ``at`` is Unix time, ``took`` in seconds.

    ``skipped``: the shut gate. ``error``: what failed. ``problem``: a defect of the configuration.
    ``text``: the beginning of the answer. ``events``: their number. ``alert``: its id.
    """

    agent: str
    session: str
    reason: WakeReason
    outcome: BeatOutcome
    at: float
    took: float = 0.0
    skipped: SkipReason | None = None
    error: str = ""
    problem: str = ""
    text: str = ""
    events: int = 0
    run_id: str = ""
    alert: str = ""


def unrun_beat(
    target: BeatTarget,
    reason: WakeReason,
    at: float,
    *,
    skipped: SkipReason | None = None,
    problem: str = "",
    error: str = "",
) -> BeatReport:
    """The report of a beat without a run: skipped, or (with ``error``) ended by a defect. ``at`` is Unix time."""
    outcome = BeatOutcome.FAILED if error else BeatOutcome.SKIPPED
    facts = {**target._asdict(), "reason": reason, "outcome": outcome, "at": at}
    return BeatReport(**facts, skipped=skipped, problem=problem, error=error)


class BeatInProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A beat with events, kept from before its run until they are acknowledged; the next supervisor continues it.

    ``subject`` identifies the events. ``attempt`` counts from 0. ``has_failed``: it has ended and its events are still
    pending; it is kept for the number of the next attempt only.
    """

    subject: str
    reason: WakeReason
    request: BeatRequest
    at: float
    attempt: int = 0
    events: tuple[str, ...] = ()
    kind: BeatKind = BeatKind.PLAIN
    summary: str = ""
    problem: str = ""
    has_failed: bool = False

    @property
    def target(self) -> BeatTarget:
        """Whose beat it is."""
        return BeatTarget(self.request.agent, self.request.session)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The kept state of an agent. ``paused``: until when (Unix time) the flood guard holds events, by session."""

    last: BeatReport | None = None
    paused: dict[str, float] = {}


class HeartbeatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent. Times are Unix times, counts since the start of the supervisor.

    ``every``: its own interval in seconds, 0 = none. ``wake``: events wake it. ``next_due`` None = never by the clock.
    ``last_skip``: the latest refused beat. ``paused``: until when the flood guard holds events, by session.
    """

    agent: str
    every: float
    wake: bool
    next_due: float | None
    running: tuple[str, ...]
    last_beat: BeatReport | None
    last_skip: BeatReport | None
    counts: dict[BeatOutcome, int]
    paused: dict[str, float]
    warning: str


_DAY = 86400.0
_MAX_ALERTS = 200


class AlertDedupe:
    """One agent's alerts of the last 24 hours, at most 200; beyond that the oldest is dropped.

    Times are Unix seconds and survive the supervisor. A clock that is set back silences nothing for more than a day.
    """

    def __init__(self, shown_at: Mapping[str, float] | None = None, *, most: int = _MAX_ALERTS) -> None:
        self._max_entries = most
        self.shown_at = dict(sorted((shown_at or {}).items(), key=lambda item: item[1])[-most:])
        """When each alert was shown, by its digest."""

    def is_repeat(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> bool:
        """Whether the session had the same text within a day. Alerts with files never repeat.

        ``about``: the text of the beat's events. The same text about other events is new.
        """
        at = self.shown_at.get(_digest(session, about, alert.text))
        return not alert.has_media and at is not None and abs(wall - at) < _DAY

    def record(self, session: str, alert: AlertAnswer, wall: float, *, about: str = "") -> None:
        """Record an alert that is shown now. A repetition does not extend the day."""
        if alert.has_media or self.is_repeat(session, alert, wall, about=about):
            return
        name = _digest(session, about, alert.text)
        self.shown_at = {other: at for other, at in self.shown_at.items() if abs(wall - at) < _DAY}
        self.shown_at[name] = wall
        if len(self.shown_at) > self._max_entries:
            del self.shown_at[next(iter(self.shown_at))]


def _digest(session: str, about: str, text: str) -> str:
    parts = f"{len(session)}:{session}{len(about)}:{about}{text.strip()}"
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


AGENT_KIND = "beat"
DEDUPE_KIND = "beat_alerts"
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
        self.last_skips: dict[str, BeatReport] = {}
        """The latest skipped beat of each agent since the start."""
        self.counts: dict[str, Counter[BeatOutcome]] = {}
        """Outcomes of each agent's beats since the start."""

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
        for agent in [agent for agent in {*self.last_skips, *self.counts} if agent not in known]:
            self.last_skips.pop(agent, None)
            self.counts.pop(agent, None)
        for target in [target for target in self._in_progress if target.agent not in known]:
            self.delete_in_progress(target)

    def agent_record(self, agent: str) -> AgentRecord:
        """The kept state of the agent."""
        return self._records.get(agent, _EMPTY_RECORD)

    def last_beats(self) -> dict[str, float]:
        """The Unix time of each agent's last beat."""
        return {agent: record.last.at for agent, record in self._records.items() if record.last is not None}

    def save_report(self, report: BeatReport) -> None:
        """Record a beat. Skips are not kept over a restart."""
        agent = report.agent
        self.counts.setdefault(agent, Counter())[report.outcome] += 1
        if report.outcome is BeatOutcome.SKIPPED:
            self.last_skips[agent] = report
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
            _logger.error("beat_unreadable", extra=facts(kind=kind, key=key, error=str(exc)))  # noqa: TRY400  # what is wrong is in the document
    return found
