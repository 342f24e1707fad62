"""One beat: admission by the gates, its run, and the alert in the transaction that acknowledges its events."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import trio

from errors import PoolError, PoolSaturated, RequestTimeout, UsageError
from heartbeat.answers import AlertAnswer, BeatKind, classify_answer, compose_prompt
from heartbeat.checklist import Checklist, read_checklist
from heartbeat.delivery.channel import TEXT_LIMIT, Alert, EventPublisher
from heartbeat.delivery.targets import EVENTS
from heartbeat.gates import GateFacts, SkipReason, first_shut_gate
from heartbeat.ports import AlertPort, BeatAnswer, BeatRequest, BeatRunPort, EventPort, TransactionFactory
from heartbeat.records import BeatInProgress, BeatOutcome, BeatReport, BeatStore, unrun_beat
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

_CHECKLIST_REASONS = frozenset({WakeReason.INTERVAL, WakeReason.MANUAL, WakeReason.RETRY})
"""Reasons for which an empty checklist skips the beat."""
_GRACE = 15.0
"""Seconds beyond a beat's timeout until its answer is given up."""
_SCAN_LIMIT = 4 * TEXT_LIMIT
"""Characters of an answer that are classified; of a longer one the beginning is always shown."""
_EXCERPT_LENGTH = 200
_COOLDOWN = 300.0
"""Longest first pause, in seconds, after a beat with events failed with all its retries; it doubles each time."""
_MAX_COOLDOWN = 4 * 3600.0
"""Longest of these pauses: events are kept for days, and each attempt may cost a model turn."""


class BeatAdmitted(NamedTuple):
    """The beat runs with these events. ``problem``: what is wrong with HEARTBEAT.md, or empty."""

    events: Sequence[SystemEvent]
    problem: str


class BeatRejected(NamedTuple):
    """The beat does not run; ``until`` (Unix time): when to retry, if known."""

    reason: SkipReason
    problem: str = ""
    until: float | None = None


class BeatPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What beats use of the gateway and the store. ``wall``: Unix time, in seconds."""

    runs: BeatRunPort
    events: EventPort
    alerts: AlertPort
    monitor: EventPublisher
    wall: Callable[[], float]
    transaction: TransactionFactory = nullcontext


class BeatResult(NamedTuple):
    """The result of a beat. ``is_resumed``: it continued an earlier beat, and the wake is still unanswered."""

    report: BeatReport
    end: BeatEnd
    is_resumed: bool = False


class BeatRunner:
    """Runs beats, one at a time for each target."""

    def __init__(self, ports: BeatPorts, store: BeatStore, schedule: BeatSchedule) -> None:
        self._ports = ports
        self._store = store
        self._schedule = schedule
        self._count = 0

    async def perform(self, target: BeatTarget, reason: WakeReason) -> BeatResult:
        """Run a beat unless a gate is shut. A failed run is a report; an exception is a defect."""
        begun = self._store.in_progress(target)
        if begun is not None and not begun.has_failed:
            return (await self._run(begun))._replace(is_resumed=True)
        answer = await self._check_gates(target, reason, self._ports.wall())
        if isinstance(answer, BeatRejected):
            return self._skip(target, reason, answer)
        return await self._run(self._begin(target, reason, answer))

    def settings_of(self, agent: str) -> HeartbeatSettings:
        """The agent's settings; the defaults for a removed agent whose last beat ends."""
        member = self._schedule.get(agent)
        return HeartbeatSettings() if member is None else member.settings

    async def _check_gates(self, target: BeatTarget, reason: WakeReason, wall: float) -> BeatAdmitted | BeatRejected:
        """Decide whether the target beats now; ``wall`` is Unix time. The answer holds until the next checkpoint.

        The gates are checked again once the checklist is read, since facts change in between.
        """
        answer = self._decide(target, reason, wall, None)
        if isinstance(answer, BeatRejected) or answer.events or reason not in _CHECKLIST_REASONS:
            return answer
        checklist = await read_checklist(partial(self._ports.runs.read_file, *target))
        return self._decide(target, reason, wall, checklist)

    def _decide(
        self, target: BeatTarget, reason: WakeReason, wall: float, checklist: Checklist | None
    ) -> BeatAdmitted | BeatRejected:
        member, due = self._schedule.get(target.agent), self._schedule.due_of(target.agent)
        events = self._ports.events.unclaimed(target.session)
        problem = checklist.problem if checklist is not None else ""
        facts = GateFacts(
            enabled=member is not None and _is_enabled(member.settings, reason),
            is_active_hour=member is None or member.window.is_active(wall),
            is_busy=self._ports.runs.is_busy(target.session),
            skip_when_busy=member is None or member.settings.skip_when_busy,
            next_due=float("inf") if due is None else due,
            # Events wait for a worker, or have one started.
            has_room=bool(events) or self._ports.runs.has_room(target.agent, target.session),
            has_events=bool(events),
            checklist=None if checklist is None else checklist.state,
        )
        gate = first_shut_gate(facts, reason, trio.current_time())
        if gate is None:
            return BeatAdmitted(events, problem)
        # Only events wait for the active hours to start.
        waits = gate is SkipReason.OUTSIDE_ACTIVE_HOURS and reason is not WakeReason.INTERVAL and bool(events)
        return BeatRejected(gate, problem, member.window.next_start(wall) if waits and member is not None else None)

    def _skip(self, target: BeatTarget, reason: WakeReason, refused: BeatRejected) -> BeatResult:
        wall = self._ports.wall()
        report = unrun_beat(target, reason, wall, skipped=refused.reason, problem=refused.problem)
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
        return BeatInProgress(
            subject=subject,
            reason=earlier.reason if earlier is not None and reason is WakeReason.RETRY else reason,
            request=BeatRequest(
                session=target.session,
                agent=target.agent,
                run_id=f"{subject}-{attempt}",
                text=compose_prompt(
                    events, kind, settings, looks_around=settings.every > 0 or reason is WakeReason.MANUAL
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

    async def _run(self, begun: BeatInProgress) -> BeatResult:
        events, session = self._ports.events, begun.request.session
        events.claim(session, begun.events)
        try:
            if begun.events:  # the store must not know the run without its subject
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

    def _handle_failure(self, begun: BeatInProgress, answer: BeatAnswer) -> BeatResult:
        if answer.code == PoolSaturated.code and begun.request.room_only:  # no room any more, or no worker started
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
        """Classify the answer and hand over its alert. All of it becomes durable in one step, or the beat continues."""
        settings = self.settings_of(begun.request.agent)
        verdict = classify_answer(
            _truncated(answer.text),
            kind=begun.kind,
            ack_max_chars=settings.ack_max_chars,
            has_media=bool(answer.media),
            exec_always_deliver=settings.exec_always_deliver,
            summary=begun.summary,
        )
        with self._ports.transaction():
            if isinstance(verdict, AlertAnswer):
                outcome, problem = self._raise_alert(begun, verdict, answer.media)
            else:
                outcome, problem = BeatOutcome.SILENT, begun.problem
            self._ports.events.acknowledge(begun.request.session, begun.events)
            self._store.delete_in_progress(begun.target)
            report = self._report(begun, outcome, text=answer.text, problem=problem)
            self._store.save_report(report)
        if outcome is BeatOutcome.ALERT:
            self._ports.runs.mark_active(begun.request.session)
        return BeatResult(report, BeatRan())

    def _raise_alert(
        self, begun: BeatInProgress, verdict: AlertAnswer, media: tuple[str, ...]
    ) -> tuple[BeatOutcome, str]:
        target, wall = begun.target, self._ports.wall()
        shown, about = self._store.alert_dedupe(target.agent), begun.request.text if begun.events else ""
        may_repeat = not begun.kind  # each command and task is new
        if may_repeat and shown.is_repeat(target.session, verdict, wall, about=about):
            return BeatOutcome.REPEATED, begun.problem
        alert = Alert(
            id=begun.subject,
            **target._asdict(),
            text=verdict.text,
            reason=begun.reason,
            ts=wall,
            target=self.settings_of(target.agent).target,
            media=media,
        )
        problem = self._submit_alert(alert) or begun.problem
        if may_repeat:
            shown.record(target.session, verdict, wall, about=about)
            self._store.save_dedupe(target.agent, shown)
        return BeatOutcome.ALERT, problem

    def _submit_alert(self, alert: Alert) -> str:
        """Hand the alert over, with target ``events`` if its own is invalid. Return what was wrong."""
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
            **begun.target._asdict(),
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


def _is_enabled(settings: HeartbeatSettings, reason: WakeReason) -> bool:
    """Whether the settings allow a beat for this reason; an operator's request needs no setting."""
    if reason is WakeReason.MANUAL:
        return True
    if reason is WakeReason.INTERVAL:
        return settings.every > 0
    return settings.wake or (reason is WakeReason.RETRY and settings.every > 0)


def _subject_id(*parts: str) -> str:
    """An id of the beat's subject; different lists of parts have different ids."""
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
