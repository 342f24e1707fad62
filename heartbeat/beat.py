"""One beat: admission, run, acknowledge.

Whether a beat is to be at this moment: the facts for the gates, and HEARTBEAT.md only where it could matter.

One beat, from the gates to the handover: what it tells is acknowledged in the step that takes its alert over.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, assert_never

import msgspec
import trio

from errors import PoolError, PoolSaturated, RequestTimeout, UsageError
from heartbeat import answers
from heartbeat.answers import BeatKind, PromptTexts, Silent, Verdict, compose, judge
from heartbeat.beat_store import BeatBook
from heartbeat.checklist import Checklist, ChecklistState, look
from heartbeat.delivery.channel import TEXT_LIMIT, Alert
from heartbeat.delivery.targets import EVENTS
from heartbeat.gates import Facts, Skip, SkipReason, decide
from heartbeat.ports import AlertPort, BeatAnswer, BeatRequest, EventPort, Monitor, PendingEvent, RunPort, Together
from heartbeat.records import BeatReport, Begun, Outcome
from heartbeat.schedule import Rota
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import RESULTS
from heartbeat.wake import ACTIONS, Busy, End, Failed, Postponed, Ran, Reason, Skipped, Target

_READERS = 4
"""Lists that are read at once; where a file system hangs, others wait for these and not for everybody's threads."""
_LISTLESS = frozenset({Reason.INTERVAL, Reason.MANUAL, Reason.RETRY})
"""Reasons for which an empty list is a reason not to beat."""


class Admitted(NamedTuple):
    """The beat is to be. ``events``: what it is to tell. ``problem``: what is wrong with HEARTBEAT.md, or nothing."""

    events: Sequence[PendingEvent]
    problem: str


class Refused(NamedTuple):
    """The beat is not to be; ``until`` (Unix time): when it may be, where that is known and worth waiting for."""

    reason: SkipReason
    problem: str = ""
    until: float | None = None


class Admission:
    """Asks the gates, once before and once after looking at the list: much may happen meanwhile."""

    def __init__(self, runs: RunPort, events: EventPort, rota: Rota) -> None:
        self._runs = runs
        self._events = events
        self._rota = rota
        self._readers = trio.CapacityLimiter(_READERS)

    async def ask(self, target: Target, reason: Reason, wall: float) -> Admitted | Refused:
        """Whether the target is to beat now; ``wall`` is Unix time. Nothing can happen before the answer is there."""
        answer = self._decide(target, reason, wall, None)
        if isinstance(answer, Refused) or answer.events or reason not in _LISTLESS:
            return answer
        checklist = await self._look(target)
        return self._decide(target, reason, wall, checklist)

    def _decide(self, target: Target, reason: Reason, wall: float, checklist: Checklist | None) -> Admitted | Refused:
        events = self._events.peek(target.session)
        problem = checklist.problem if checklist is not None else ""
        decision = decide(self._facts(target, reason, wall, events, checklist), reason, trio.current_time())
        if isinstance(decision, Skip):
            return Refused(decision.reason, problem, self._until(target, decision.reason, reason, wall, events))
        return Admitted(events, problem)

    def _facts(
        self, target: Target, reason: Reason, wall: float, events: Sequence[PendingEvent], checklist: Checklist | None
    ) -> Facts:
        member = self._rota.get(target.agent)
        due = self._rota.due_of(target.agent)
        return Facts(
            enabled=member is not None and _is_wanted(member.settings, reason),
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

    def _until(
        self, target: Target, gate: SkipReason, reason: Reason, wall: float, events: Sequence[PendingEvent]
    ) -> float | None:
        """Events wait for the hours to begin; whatever else a beat is for has its own time."""
        member = self._rota.get(target.agent)
        if gate is not SkipReason.OUTSIDE_ACTIVE_HOURS or member is None or reason is Reason.INTERVAL or not events:
            return None
        return member.window.next_start(wall)

    async def _look(self, target: Target) -> Checklist:
        workspace = self._runs.workspace_of(target.agent, target.session)
        if workspace is None:
            return Checklist(ChecklistState.MISSING)
        return await look(Path(workspace), limiter=self._readers)


def _is_wanted(settings: HeartbeatSettings, reason: Reason) -> bool:
    """Whether the settings have the agent beat for this reason; what an operator asks for needs no setting."""
    if reason is Reason.MANUAL:
        return True
    if reason is Reason.INTERVAL:
        return settings.every > 0
    return settings.wake or (reason is Reason.RETRY and settings.every > 0)


_GRACE = 15.0
"""Seconds beyond a beat's own time after which nobody waits for its answer any more."""
_READ = 4 * TEXT_LIMIT
"""Characters of an answer that are looked at; of a longer one the beginning is told, whatever its end says."""
_SHOWN = 200
_TRIED_ANEW = 300.0
"""Seconds at most until events are tried again whose beat has failed with all its retries; twice as long each time."""
_TRIED_SELDOM = 4 * 3600.0
"""The longest of these times: events are kept for days, and each attempt may cost a turn of the model."""


class BeatPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What beats need of the house. ``wall``: Unix time, in seconds."""

    runs: RunPort
    events: EventPort
    alerts: AlertPort
    monitor: Monitor
    wall: Callable[[], float]
    together: Together = nullcontext


class Performed(NamedTuple):
    """What came of a beat. ``is_resumed``: it was one of an earlier life, and the wake is still to be answered."""

    report: BeatReport
    end: End
    is_resumed: bool = False


class Beats:
    """Performs beats, one at a time for each target."""

    def __init__(self, ports: BeatPorts, book: BeatBook, rota: Rota) -> None:
        self._ports = ports
        self._book = book
        self._rota = rota
        self._admission = Admission(ports.runs, ports.events, rota)
        self._count = 0

    async def perform(self, target: Target, reason: Reason) -> Performed:
        """Beat, unless a gate is shut. A run that fails is a report; whatever is raised is a defect."""
        begun = self._book.begun(target)
        if begun is not None and not begun.has_failed:
            return (await self._carry_out(begun))._replace(is_resumed=True)
        answer = await self._admission.ask(target, reason, self._ports.wall())
        if isinstance(answer, Refused):
            return self._refused(target, reason, answer)
        return await self._carry_out(self._begin(target, reason, answer))

    def settings_of(self, agent: str) -> HeartbeatSettings:
        """What holds for the agent; the defaults for one that is configured no more, while its last beat ends."""
        member = self._rota.get(agent)
        return HeartbeatSettings() if member is None else member.settings

    # --- before -------------------------------------------------------------------------------------------------------

    def _refused(self, target: Target, reason: Reason, refused: Refused) -> Performed:
        wall = self._ports.wall()
        report = BeatReport(
            agent=target.agent,
            session=target.session,
            reason=reason,
            outcome=Outcome.SKIPPED,
            at=wall,
            skipped=refused.reason,
            problem=refused.problem,
        )
        self._book.keep(report)
        if refused.reason is SkipReason.BUSY:
            return Performed(report, Busy())
        if refused.until is not None:
            return Performed(report, Postponed(trio.current_time() + refused.until - wall))
        return Performed(report, Skipped())

    def _begin(self, target: Target, reason: Reason, admitted: Admitted) -> Begun:
        settings, wall = self.settings_of(target.agent), self._ports.wall()
        events = admitted.events
        ids = tuple(event.id for event in events)
        kind = BeatKind.of(event.kind for event in events)
        self._count += 1
        subject = _subject(*target, *ids) if ids else _subject(*target, reason, repr(wall), str(self._count))
        before = self._book.begun(target)
        earlier = before if before is not None and before.subject == subject else None
        attempt = 0 if earlier is None else earlier.attempt + 1
        texts = PromptTexts(prompt=settings.prompt, exec_prompt=settings.exec_prompt, cron_prompt=settings.cron_prompt)
        return Begun(
            subject=subject,
            reason=earlier.reason if earlier is not None and reason is Reason.RETRY else reason,
            request=BeatRequest(
                session=target.session,
                agent=target.agent,
                run_id=f"{subject}-{attempt}",
                text=compose(events, kind, texts, looks_around=settings.every > 0 or reason is Reason.MANUAL),
                room_only=not events and reason not in ACTIONS,
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

    async def _carry_out(self, begun: Begun) -> Performed:
        events, session = self._ports.events, begun.request.session
        events.claim(session, begun.events)
        try:
            if begun.events:  # the run must not be known for longer than what it is about
                await self._book.keep_begun(begun)
            answer = await self._ask(begun.request)
            return self._conclude(begun, answer) if answer.ok else self._failed(begun, answer)
        finally:
            events.release(session, begun.events)

    async def _ask(self, request: BeatRequest) -> BeatAnswer:
        limit = request.timeout + _GRACE
        with trio.move_on_after(limit):
            try:
                return await self._ports.runs.run(request)
            except PoolError as exc:
                return BeatAnswer(ok=False, code=exc.code, message=exc.message, started=False)
        return BeatAnswer(ok=False, code=RequestTimeout.code, message=f"the beat had not ended after {limit:g} s")

    # --- after --------------------------------------------------------------------------------------------------------

    def _failed(self, begun: Begun, answer: BeatAnswer) -> Performed:
        if answer.code == PoolSaturated.code and begun.request.room_only:  # others were faster, or it did not start
            problem = begun.problem or answer.message[:_SHOWN]
            return self._refused(begun.target, begun.reason, Refused(SkipReason.NO_WORKER, problem))
        settings = self.settings_of(begun.request.agent)
        error = answer.message or answer.code or "the run failed without a word"
        report = self._report(begun, Outcome.FAILED, error=error[:_SHOWN])
        with self._ports.together():
            if begun.events:
                self._book.keep_begun(msgspec.structs.replace(begun, has_failed=True))
            self._book.keep(report)
        rest = _rest(settings, begun.attempt) if begun.events else None
        return Performed(report, Failed(settings.max_retries, float(settings.retry_delay), rest))

    def _conclude(self, begun: Begun, answer: BeatAnswer) -> Performed:
        """Decide what is told, and hand it over: all of it is durable, or the beat is still to be gone on with."""
        verdict = self._judge(begun, answer)
        with self._ports.together():
            outcome, problem = self._hand_over(begun, verdict, answer.media)
            self._ports.events.acknowledge(begun.request.session, begun.events)
            self._book.forget_begun(begun.target)
            report = self._report(begun, outcome, text=answer.text, problem=problem)
            self._book.keep(report)
        if outcome is Outcome.ALERT:
            self._ports.runs.touch(begun.request.session)
        return Performed(report, Ran())

    def _judge(self, begun: Begun, answer: BeatAnswer) -> Verdict:
        settings = self.settings_of(begun.request.agent)
        return judge(
            _readable(answer.text),
            kind=begun.kind,
            ack_max_chars=settings.ack_max_chars,
            has_media=bool(answer.media),
            exec_always_deliver=settings.exec_always_deliver,
            summary=begun.summary,
        )

    def _hand_over(self, begun: Begun, verdict: Verdict, media: tuple[str, ...]) -> tuple[Outcome, str]:
        match verdict:
            case Silent():
                return Outcome.SILENT, begun.problem
            case answers.Alert():
                return self._tell(begun, verdict, media)
            case _:
                assert_never(verdict)

    def _tell(self, begun: Begun, verdict: answers.Alert, media: tuple[str, ...]) -> tuple[Outcome, str]:
        target, wall = begun.target, self._ports.wall()
        told, about = self._book.told(target.agent), begun.request.text if begun.events else ""
        may_repeat = not begun.kind  # each command, each delegated task and each scheduled one is news of its own
        if may_repeat and told.is_repeat(target.session, verdict, wall, about=about):
            return Outcome.REPEATED, begun.problem
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
        problem = self._accept(alert) or begun.problem
        if may_repeat:
            told.remember(target.session, verdict, wall, about=about)
            self._book.keep_told(target.agent, told)
        return Outcome.ALERT, problem

    def _accept(self, alert: Alert) -> str:
        """Hand the alert over; one whose target makes no sense is told to whoever watches. Says what was wrong."""
        try:
            self._ports.alerts.accept(alert)
        except UsageError as exc:
            self._ports.alerts.accept(msgspec.structs.replace(alert, target=str(EVENTS)))
            return exc.message
        return ""

    def _report(
        self, begun: Begun, outcome: Outcome, *, text: str = "", error: str = "", problem: str = ""
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
            text=text.strip()[:_SHOWN],
            events=len(begun.events),
            run_id=begun.request.run_id,
            alert=begun.subject if outcome is Outcome.ALERT else "",
        )


def _subject(*parts: str) -> str:
    """A name for what a beat is about; no two lists of parts have the same."""
    digest = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return f"beat-{digest.hexdigest()}"


def _rest(settings: HeartbeatSettings, attempt: int) -> float:
    rounds = attempt // (settings.max_retries + 1)
    first = min(float(settings.every) or _TRIED_ANEW, _TRIED_ANEW)
    return min(first * 2.0 ** min(rounds, 32), _TRIED_SELDOM)


def _summary(events: Sequence[PendingEvent]) -> str:
    return "\n".join(event.text for event in events if event.kind in RESULTS)[:TEXT_LIMIT]


def _readable(text: str) -> str:
    if len(text) <= _READ:
        return text
    text = text.strip()
    beginning = TEXT_LIMIT - 100
    left = len(text) - beginning
    return text if len(text) <= _READ else f"{text[:beginning]}\n[{left} more characters were left out]"
