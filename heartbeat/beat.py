"""One beat: whether it may be now, its run, and the handover of its alert in the step that acknowledges its events."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, assert_never

import msgspec
import trio

from errors import PoolError, PoolSaturated, RequestTimeout, UsageError
from heartbeat import answers
from heartbeat.answers import BeatKind, ClassifiedAnswer, PromptTexts, SilentAnswer, classify_answer, compose_prompt
from heartbeat.beat_store import BeatStore
from heartbeat.checklist import Checklist, ChecklistState, read_checklist
from heartbeat.delivery.channel import TEXT_LIMIT, Alert, EventPublisher
from heartbeat.delivery.targets import EVENTS
from heartbeat.gates import GateFacts, Skip, SkipReason, evaluate_gates
from heartbeat.ports import AlertPort, BeatAnswer, BeatRequest, BeatRunPort, EventPort, TransactionFactory
from heartbeat.records import BeatInProgress, BeatOutcome, BeatReport
from heartbeat.schedule import BeatSchedule
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import RESULT_KINDS, SystemEvent
from heartbeat.wake import (
    AWAITED_REASONS,
    BeatBusy,
    BeatEnd,
    BeatFailed,
    BeatPostponed,
    BeatRan,
    BeatSkipped,
    BeatTarget,
    WakeReason,
)

_MAX_READERS = 4
"""Lists that are read at once; where a file system hangs, others wait for these and not for everybody's threads."""
_CHECKLIST_REASONS = frozenset({WakeReason.INTERVAL, WakeReason.MANUAL, WakeReason.RETRY})
"""Reasons for which an empty list is a reason not to beat."""


class BeatAdmitted(NamedTuple):
    """The beat is to be. ``events``: what it is to tell. ``problem``: what is wrong with HEARTBEAT.md, or nothing."""

    events: Sequence[SystemEvent]
    problem: str


class BeatRejected(NamedTuple):
    """The beat is not to be; ``until`` (Unix time): when it may be, where that is known and worth waiting for."""

    reason: SkipReason
    problem: str = ""
    until: float | None = None


class BeatAdmission:
    """Asks the gates, once before and once after looking at the list: much may happen meanwhile."""

    def __init__(self, runs: BeatRunPort, events: EventPort, rota: BeatSchedule) -> None:
        self._runs = runs
        self._events = events
        self._schedule = rota
        self._readers = trio.CapacityLimiter(_MAX_READERS)

    async def check_gates(self, target: BeatTarget, reason: WakeReason, wall: float) -> BeatAdmitted | BeatRejected:
        """Whether the target is to beat now; ``wall`` is Unix time. Nothing can happen before the answer is there."""
        answer = self._decide(target, reason, wall, None)
        if isinstance(answer, BeatRejected) or answer.events or reason not in _CHECKLIST_REASONS:
            return answer
        checklist = await self._read_checklist(target)
        return self._decide(target, reason, wall, checklist)

    def _decide(
        self, target: BeatTarget, reason: WakeReason, wall: float, checklist: Checklist | None
    ) -> BeatAdmitted | BeatRejected:
        events = self._events.unclaimed(target.session)
        problem = checklist.problem if checklist is not None else ""
        decision = evaluate_gates(self._facts(target, reason, wall, events, checklist), reason, trio.current_time())
        if isinstance(decision, Skip):
            return BeatRejected(decision.reason, problem, self._retry_at(target, decision.reason, reason, wall, events))
        return BeatAdmitted(events, problem)

    def _facts(
        self,
        target: BeatTarget,
        reason: WakeReason,
        wall: float,
        events: Sequence[SystemEvent],
        checklist: Checklist | None,
    ) -> GateFacts:
        member = self._schedule.get(target.agent)
        due = self._schedule.due_of(target.agent)
        return GateFacts(
            enabled=member is not None and _is_enabled(member.settings, reason),
            is_running=False,  # a target's beats come one after the other
            is_active_hour=member is None or member.window.is_active(wall),
            is_busy=self._runs.is_busy(target.session),
            skip_when_busy=member is None or member.settings.skip_when_busy,
            next_due=float("inf") if due is None else due,
            # Events are somebody's business: for them a worker is waited for, or started.
            has_room=bool(events) or self._runs.has_room(target.agent, target.session),
            has_events=bool(events),
            checklist=None if checklist is None else checklist.state,
        )

    def _retry_at(
        self, target: BeatTarget, gate: SkipReason, reason: WakeReason, wall: float, events: Sequence[SystemEvent]
    ) -> float | None:
        """Events wait for the hours to begin; whatever else a beat is for has its own time."""
        member = self._schedule.get(target.agent)
        if gate is not SkipReason.OUTSIDE_ACTIVE_HOURS or member is None or reason is WakeReason.INTERVAL or not events:
            return None
        return member.window.next_start(wall)

    async def _read_checklist(self, target: BeatTarget) -> Checklist:
        workspace = self._runs.workspace_of(target.agent, target.session)
        if workspace is None:
            return Checklist(ChecklistState.MISSING)
        return await read_checklist(Path(workspace), limiter=self._readers)


def _is_enabled(settings: HeartbeatSettings, reason: WakeReason) -> bool:
    """Whether the settings have the agent beat for this reason; what an operator asks for needs no setting."""
    if reason is WakeReason.MANUAL:
        return True
    if reason is WakeReason.INTERVAL:
        return settings.every > 0
    return settings.wake or (reason is WakeReason.RETRY and settings.every > 0)


_GRACE = 15.0
"""Seconds beyond a beat's own time after which nobody waits for its answer any more."""
_SCAN_LIMIT = 4 * TEXT_LIMIT
"""Characters of an answer that are looked at; of a longer one the beginning is told, whatever its end says."""
_EXCERPT_LENGTH = 200
_COOLDOWN = 300.0
"""Seconds at most until events are tried again whose beat has failed with all its retries; twice as long each time."""
_MAX_COOLDOWN = 4 * 3600.0
"""The longest of these times: events are kept for days, and each attempt may cost a turn of the model."""


class BeatPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What beats need of the house. ``wall``: Unix time, in seconds."""

    runs: BeatRunPort
    events: EventPort
    alerts: AlertPort
    monitor: EventPublisher
    wall: Callable[[], float]
    transaction: TransactionFactory = nullcontext


class BeatResult(NamedTuple):
    """What came of a beat. ``is_resumed``: it was one of an earlier life, and the wake is still to be answered."""

    report: BeatReport
    end: BeatEnd
    is_resumed: bool = False


class BeatRunner:
    """Performs beats, one at a time for each target."""

    def __init__(self, ports: BeatPorts, book: BeatStore, rota: BeatSchedule) -> None:
        self._ports = ports
        self._store = book
        self._schedule = rota
        self._admission = BeatAdmission(ports.runs, ports.events, rota)
        self._count = 0

    async def perform(self, target: BeatTarget, reason: WakeReason) -> BeatResult:
        """Beat, unless a gate is shut. A run that fails is a report; whatever is raised is a defect."""
        begun = self._store.in_progress(target)
        if begun is not None and not begun.has_failed:
            return (await self._run(begun))._replace(is_resumed=True)
        answer = await self._admission.check_gates(target, reason, self._ports.wall())
        if isinstance(answer, BeatRejected):
            return self._skip(target, reason, answer)
        return await self._run(self._begin(target, reason, answer))

    def settings_of(self, agent: str) -> HeartbeatSettings:
        """What holds for the agent; the defaults for one that is configured no more, while its last beat ends."""
        member = self._schedule.get(agent)
        return HeartbeatSettings() if member is None else member.settings

    # --- before -------------------------------------------------------------------------------------------------------

    def _skip(self, target: BeatTarget, reason: WakeReason, refused: BeatRejected) -> BeatResult:
        wall = self._ports.wall()
        report = BeatReport(
            agent=target.agent,
            session=target.session,
            reason=reason,
            outcome=BeatOutcome.SKIPPED,
            at=wall,
            skipped=refused.reason,
            problem=refused.problem,
        )
        self._store.save_report(report)
        if refused.reason is SkipReason.BUSY:
            return BeatResult(report, BeatBusy())
        if refused.until is not None:
            return BeatResult(report, BeatPostponed(trio.current_time() + refused.until - wall))
        return BeatResult(report, BeatSkipped())

    def _begin(self, target: BeatTarget, reason: WakeReason, admitted: BeatAdmitted) -> BeatInProgress:
        settings, wall = self.settings_of(target.agent), self._ports.wall()
        events = admitted.events
        ids = tuple(event.id for event in events)
        kind = BeatKind.of(event.kind for event in events)
        self._count += 1
        subject = _subject_id(*target, *ids) if ids else _subject_id(*target, reason, repr(wall), str(self._count))
        before = self._store.in_progress(target)
        earlier = before if before is not None and before.subject == subject else None
        attempt = 0 if earlier is None else earlier.attempt + 1
        texts = PromptTexts(prompt=settings.prompt, exec_prompt=settings.exec_prompt, cron_prompt=settings.cron_prompt)
        return BeatInProgress(
            subject=subject,
            reason=earlier.reason if earlier is not None and reason is WakeReason.RETRY else reason,
            request=BeatRequest(
                session=target.session,
                agent=target.agent,
                run_id=f"{subject}-{attempt}",
                text=compose_prompt(
                    events, kind, texts, looks_around=settings.every > 0 or reason is WakeReason.MANUAL
                ),
                room_only=not events and reason not in AWAITED_REASONS,
                timeout=float(settings.timeout),
            ),
            at=wall,
            attempt=attempt,
            events=ids,
            kind=kind,
            summary=_summary(events) if settings.exec_always_deliver else "",
            problem=admitted.problem,
        )

    # --- the run ------------------------------------------------------------------------------------------------------

    async def _run(self, begun: BeatInProgress) -> BeatResult:
        events, session = self._ports.events, begun.request.session
        events.claim(session, begun.events)
        try:
            if begun.events:  # the run must not be known for longer than what it is about
                await self._store.save_in_progress(begun)
            answer = await self._await_answer(begun.request)
            return self._conclude(begun, answer) if answer.ok else self._handle_failure(begun, answer)
        finally:
            events.release(session, begun.events)

    async def _await_answer(self, request: BeatRequest) -> BeatAnswer:
        limit = request.timeout + _GRACE
        with trio.move_on_after(limit):
            try:
                return await self._ports.runs.run(request)
            except PoolError as exc:
                return BeatAnswer(ok=False, code=exc.code, message=exc.message, started=False)
        return BeatAnswer(ok=False, code=RequestTimeout.code, message=f"the beat had not ended after {limit:g} s")

    # --- after --------------------------------------------------------------------------------------------------------

    def _handle_failure(self, begun: BeatInProgress, answer: BeatAnswer) -> BeatResult:
        if answer.code == PoolSaturated.code and begun.request.room_only:  # others were faster, or it did not start
            problem = begun.problem or answer.message[:_EXCERPT_LENGTH]
            return self._skip(begun.target, begun.reason, BeatRejected(SkipReason.NO_WORKER, problem))
        settings = self.settings_of(begun.request.agent)
        error = answer.message or answer.code or "the run failed without a word"
        report = self._report(begun, BeatOutcome.FAILED, error=error[:_EXCERPT_LENGTH])
        with self._ports.transaction():
            if begun.events:
                self._store.save_in_progress(msgspec.structs.replace(begun, has_failed=True))
            self._store.save_report(report)
        rest = _cooldown(settings, begun.attempt) if begun.events else None
        return BeatResult(report, BeatFailed(settings.max_retries, float(settings.retry_delay), rest))

    def _conclude(self, begun: BeatInProgress, answer: BeatAnswer) -> BeatResult:
        """Decide what is told, and hand it over: all of it is durable, or the beat is still to be gone on with."""
        verdict = self._classify(begun, answer)
        with self._ports.transaction():
            outcome, problem = self._hand_over(begun, verdict, answer.media)
            self._ports.events.acknowledge(begun.request.session, begun.events)
            self._store.delete_in_progress(begun.target)
            report = self._report(begun, outcome, text=answer.text, problem=problem)
            self._store.save_report(report)
        if outcome is BeatOutcome.ALERT:
            self._ports.runs.mark_active(begun.request.session)
        return BeatResult(report, BeatRan())

    def _classify(self, begun: BeatInProgress, answer: BeatAnswer) -> ClassifiedAnswer:
        settings = self.settings_of(begun.request.agent)
        return classify_answer(
            _truncated(answer.text),
            kind=begun.kind,
            ack_max_chars=settings.ack_max_chars,
            has_media=bool(answer.media),
            exec_always_deliver=settings.exec_always_deliver,
            summary=begun.summary,
        )

    def _hand_over(
        self, begun: BeatInProgress, verdict: ClassifiedAnswer, media: tuple[str, ...]
    ) -> tuple[BeatOutcome, str]:
        match verdict:
            case SilentAnswer():
                return BeatOutcome.SILENT, begun.problem
            case answers.AlertAnswer():
                return self._raise_alert(begun, verdict, media)
            case _:
                assert_never(verdict)

    def _raise_alert(
        self, begun: BeatInProgress, verdict: answers.AlertAnswer, media: tuple[str, ...]
    ) -> tuple[BeatOutcome, str]:
        target, wall = begun.target, self._ports.wall()
        told, about = self._store.alert_dedupe(target.agent), begun.request.text if begun.events else ""
        may_repeat = not begun.kind  # each command, each delegated task and each scheduled one is news of its own
        if may_repeat and told.is_repeat(target.session, verdict, wall, about=about):
            return BeatOutcome.REPEATED, begun.problem
        alert = Alert(
            id=begun.subject,
            agent=target.agent,
            session=target.session,
            text=verdict.text,
            reason=begun.reason,
            ts=wall,
            target=self.settings_of(target.agent).target,
            media=media,
        )
        problem = self._submit_alert(alert) or begun.problem
        if may_repeat:
            told.record(target.session, verdict, wall, about=about)
            self._store.save_dedupe(target.agent, told)
        return BeatOutcome.ALERT, problem

    def _submit_alert(self, alert: Alert) -> str:
        """Hand the alert over; one whose target makes no sense is told to whoever watches. Says what was wrong."""
        try:
            self._ports.alerts.accept(alert)
        except UsageError as exc:
            self._ports.alerts.accept(msgspec.structs.replace(alert, target=str(EVENTS)))
            return exc.message
        return ""

    def _report(
        self, begun: BeatInProgress, outcome: BeatOutcome, *, text: str = "", error: str = "", problem: str = ""
    ) -> BeatReport:
        return BeatReport(
            agent=begun.request.agent,
            session=begun.request.session,
            reason=begun.reason,
            outcome=outcome,
            at=begun.at,
            took=max(self._ports.wall() - begun.at, 0.0),
            error=error,
            problem=problem or begun.problem,
            text=text.strip()[:_EXCERPT_LENGTH],
            events=len(begun.events),
            run_id=begun.request.run_id,
            alert=begun.subject if outcome is BeatOutcome.ALERT else "",
        )


def _subject_id(*parts: str) -> str:
    """A name for what a beat is about; no two lists of parts have the same."""
    digest = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return f"beat-{digest.hexdigest()}"


def _cooldown(settings: HeartbeatSettings, attempt: int) -> float:
    rounds = attempt // (settings.max_retries + 1)
    first = min(float(settings.every) or _COOLDOWN, _COOLDOWN)
    return min(first * 2.0 ** min(rounds, 32), _MAX_COOLDOWN)


def _summary(events: Sequence[SystemEvent]) -> str:
    return "\n".join(event.text for event in events if event.kind in RESULT_KINDS)[:TEXT_LIMIT]


def _truncated(text: str) -> str:
    if len(text) <= _SCAN_LIMIT:
        return text
    text = text.strip()
    beginning = TEXT_LIMIT - 100
    left = len(text) - beginning
    return text if len(text) <= _SCAN_LIMIT else f"{text[:beginning]}\n[{left} more characters were left out]"
