"""Heartbeats: one task keeps everybody's time and sleeps until somebody's has come; each beat is a task of its own."""

import math
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
import structlog
import trio

from errors import PoolError, UsageError
from heartbeat.beat import BeatPorts, Beats, Performed
from heartbeat.beat_store import BeatBook
from heartbeat.gates import SkipReason
from heartbeat.ports import Documents
from heartbeat.records import AgentStatus, BeatReport, Outcome
from heartbeat.schedule import Member, Rota
from heartbeat.settings import HeartbeatSettings
from heartbeat.wake import (
    FLOOD_BEATS,
    LONGEST_PAUSE,
    MOST_AN_HOUR,
    Begin,
    Busy,
    Failed,
    Paused,
    Reason,
    Target,
    WakeMachine,
    reason_of,
)


class _Waiter:
    """A caller that waits for the outcome of the target's next beat, at most until ``deadline`` while a turn runs."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.report: BeatReport | None = None
        self.told = trio.Event()

    def tell(self, report: BeatReport) -> None:
        self.report = report
        self.told.set()


class Heartbeat:
    """All agents' heartbeats. Wakes are taken from the start, beats happen while ``run`` runs."""

    def __init__(self, ports: BeatPorts, book: BeatBook) -> None:
        """See ``open_heartbeat``."""
        self._ports = ports
        self._book = book
        self._rota = Rota()
        self._machine = WakeMachine()
        self._beats = Beats(ports, book, self._rota)
        self._waiters: dict[Target, list[_Waiter]] = {}
        self._running: dict[str, dict[str, None]] = {}
        """Sessions in which a beat runs, by agent."""
        self._told_skips: dict[str, tuple[object, ...]] = {}
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
        self._wake = trio.Event()
        self._armed_for = math.inf

    # --- asking for beats ---------------------------------------------------------------------------------------------

    def wake(self, agent: str, reason: Reason = Reason.WAKE, session: str | None = None) -> bool:
        """Have the agent beat soon, in its own conversation unless another is named. Never blocks.

        False = it is not woken: it is not configured, its settings say so, or too many are to beat already. What it was
        to be told stays for its next turn.
        """
        member = self._rota.get(agent)
        if member is None or not member.settings.wake:
            return False
        return self._request(_target(member, session), reason)

    async def run_now(self, agent: str, reason: Reason = Reason.MANUAL, session: str | None = None) -> BeatReport:
        """Have the agent beat, and wait for what comes of it.

        While its session is busy that takes as long, but no longer than the ``timeout`` of the settings: then the
        report says so, and the beat is still to come. So it is with a beat that the flood guard holds, which is none
        of an operator's. Raises UsageError for an agent that is not configured, PoolSaturated when too many are to.
        """
        member, now = self._find(agent), trio.current_time()
        target, waiter = _target(member, session), _Waiter(now + float(member.settings.timeout))
        self._machine.request(target, reason, now)
        if self._machine.is_held(target):
            return self._held(target, reason)
        self._waiters.setdefault(target, []).append(waiter)
        self._rearm()
        try:
            await waiter.told.wait()
        finally:
            self._forget_waiter(target, waiter)
        assert waiter.report is not None  # noqa: S101 - set together with the event
        return waiter.report

    def reconfigure(self, agents: Mapping[str, HeartbeatSettings]) -> None:
        """Other agents, other settings; whose are the same keep their time. A beat that runs comes to its end."""
        self._rota.reconfigure(agents, trio.current_time(), self._ports.wall(), self._book.last_beats())
        self._book.keep_only(agents)
        for name in [name for name in self._told_skips if name not in agents]:
            del self._told_skips[name]
        self._rearm()

    def is_woken(self, agent: str) -> bool:
        """Whether events wake the agent: it is configured, and its settings do not say otherwise."""
        member = self._rota.get(agent)
        return member is not None and member.settings.wake

    def wakes_at(self, agent: str, session: str) -> float | None:
        """When an event of now wakes the agent in that session, in Unix time; None = at once.

        That is after the flood guard's pause, and within its active hours; infinity where these never begin.
        """
        member, now, wall = self._rota.get(agent), trio.current_time(), self._ports.wall()
        if member is None:
            return None
        pause = self._machine.paused_until(Target(agent, session), now)
        start = member.window.next_start(wall if pause is None else wall + pause - now)
        if start is None:
            return math.inf
        return start if start > wall else None

    # --- status -------------------------------------------------------------------------------------------------------

    def status(self) -> list[AgentStatus]:
        """How every agent stands, in the order of the settings."""
        return [self._status(member) for member in self._rota.members().values()]

    def figures(self) -> tuple[int, int]:
        """How many agents beat by the clock, and how many beats are under way."""
        by_the_clock = sum(member.settings.every > 0 for member in self._rota.members().values())
        return by_the_clock, sum(map(len, self._running.values()))

    def _find(self, agent: str) -> Member:
        member = self._rota.get(agent)
        if member is None:
            known = ", ".join(sorted(self._rota.members())[:20])
            raise UsageError(f"there is no agent {agent[:80]!r}; there are: {known or 'none'}")
        return member

    def _status(self, member: Member) -> AgentStatus:
        agent, wall = member.agent, self._ports.wall()
        due, record = self._rota.due_of(agent), self._book.record(agent)
        return AgentStatus(
            agent=agent,
            every=member.every,
            wake=member.settings.wake,
            next_due=None if due is None else wall + due - trio.current_time(),
            running=tuple(self._running.get(agent, ())),
            last_beat=record.last,
            last_skip=self._book.last_skip(agent),
            counts=dict(self._book.counts(agent)),
            paused={session: until for session, until in record.paused.items() if until > wall},
            warning=member.window.warning,
        )

    # --- keeping time -------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep time until cancelled; beats under way are then aborted, and gone on with by the next supervisor."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                self._step(nursery)
                self._wake = trio.Event()
                self._armed_for = self._next()
                with trio.move_on_at(self._armed_for):
                    await self._wake.wait()

    def _step(self, nursery: trio.Nursery) -> None:
        now = trio.current_time()
        wall = self._ports.wall()
        for member in self._rota.pop_due(now, wall):
            if not self._request(member.home, Reason.INTERVAL):
                self._rota.done(member.agent, now, wall)
        for action in self._machine.begin_due(now):
            match action:
                case Begin(target, reason):
                    self._running.setdefault(target.agent, {})[target.session] = None
                    waiters = self._waiters.pop(target, [])
                    nursery.start_soon(self._beat, target, reason, waiters, name=f"beat of {target.agent}")
                case Paused(target, until):
                    self._pause(target, until, now)
                case _:
                    assert_never(action)

    def _next(self) -> float:
        times = (self._rota.next_due(), self._machine.next_due())
        return min((due for due in times if due is not None), default=math.inf)

    def _rearm(self) -> None:
        if self._next() < self._armed_for:
            self._wake.set()

    def _request(self, target: Target, reason: Reason) -> bool:
        try:
            self._machine.request(target, reason, trio.current_time())
        except PoolError as exc:
            self._tell_error(target, exc.message)
            return False
        self._rearm()
        return True

    # --- a beat -------------------------------------------------------------------------------------------------------

    async def _beat(self, target: Target, reason: Reason, waiters: list[_Waiter]) -> None:
        try:
            performed = await self._beats.perform(target, reason)
        except Exception:  # noqa: BLE001 - a defect met in one beat is this beat's, and ends nobody else's
            self._log.exception("heartbeat_defect", agent=target.agent, session=target.session)
            performed = self._defect(target, reason)
        self._end(target, reason, performed, waiters)

    def _end(self, target: Target, reason: Reason, performed: Performed, waiters: list[_Waiter]) -> None:
        now = trio.current_time()
        self._forget_running(target)
        is_answered = not performed.is_resumed or reason is Reason.RETRY
        if not is_answered:
            self._machine.request(target, reason, now)
        self._machine.ended(target, performed.end, now)
        self._advance(target, now)
        self._tell(performed.report)
        comes_later = isinstance(performed.end, Busy) or not is_answered
        for waiter in waiters:
            if comes_later and waiter.deadline > now:
                self._waiters.setdefault(target, []).append(waiter)
            else:
                waiter.tell(performed.report)
        self._rearm()

    def _advance(self, target: Target, now: float) -> None:
        """The agent's interval begins anew, unless its beat is still to come."""
        if self._is_due(target) and self._machine.pending(target) is None:
            self._rota.done(target.agent, now, self._ports.wall())

    def _defect(self, target: Target, reason: Reason) -> Performed:
        settings = self._beats.settings_of(target.agent)
        report = BeatReport(
            agent=target.agent,
            session=target.session,
            reason=reason,
            outcome=Outcome.FAILED,
            at=self._ports.wall(),
            error="a defect of the supervisor; its log has the traceback",
        )
        self._book.keep(report)
        return Performed(report, Failed(settings.max_retries, float(settings.retry_delay)))

    def _forget_running(self, target: Target) -> None:
        sessions = self._running[target.agent]
        del sessions[target.session]
        if not sessions:
            del self._running[target.agent]

    def _forget_waiter(self, target: Target, waiter: _Waiter) -> None:
        waiters = self._waiters.get(target, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(target, None)

    # --- the flood guard ----------------------------------------------------------------------------------------------

    def _pause(self, target: Target, until: float, now: float) -> None:
        wall = self._ports.wall()
        self._book.keep_pause(target, wall + until - now, wall)
        self._tell_error(
            target,
            f"agent {target.agent} beat {FLOOD_BEATS} times within a minute, or {MOST_AN_HOUR} times within an hour, "
            f"in {target.session}: what wakes it may be its own doing; events wake it again in {until - now:.0f} s",
        )
        for waiter in self._waiters.pop(target, []):
            waiter.tell(self._held(target, Reason.WAKE))
        if self._is_due(target):
            self._request(target, Reason.INTERVAL)  # that much it may, whatever else is held back

    def _held(self, target: Target, reason: Reason) -> BeatReport:
        """What is answered where a beat comes only after the guard's pause."""
        return BeatReport(
            agent=target.agent,
            session=target.session,
            reason=reason,
            outcome=Outcome.SKIPPED,
            at=self._ports.wall(),
            skipped=SkipReason.FLOOD_GUARD,
        )

    def _is_due(self, target: Target) -> bool:
        """Whether it is the target's beat that the clock asks for."""
        member = self._rota.get(target.agent)
        return member is not None and member.home == target and self._rota.is_due(target.agent)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self, report: BeatReport) -> None:
        """Monitor event ``heartbeat``; of an alert the courier tells, of the same skip again nobody."""
        if report.outcome is Outcome.SKIPPED:
            skip = (report.session, report.skipped, report.problem)
            if self._told_skips.get(report.agent) == skip:
                return
            self._told_skips[report.agent] = skip
        else:
            self._told_skips.pop(report.agent, None)
        if report.outcome is not Outcome.ALERT:
            data: dict[str, Any] = msgspec.to_builtins(report)
            self._ports.monitor.tell("heartbeat", report.session, {"state": data.pop("outcome"), **data})

    def _tell_error(self, target: Target, message: str) -> None:
        data = {"severity": "error", "phase": "system", "message": message, "agent": target.agent}
        self._ports.monitor.tell("error", target.session, data)

    # --- an earlier life ----------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on with what an earlier supervisor has left: pauses, begun beats, events whose wake was lost with it."""
        now, wall = trio.current_time(), self._ports.wall()
        for agent in self._rota.members():
            for session, until in self._book.record(agent).paused.items():
                if until > wall:
                    self._machine.pause(Target(agent, session), now + min(until - wall, LONGEST_PAUSE), now)
        for begun in self._book.all_begun():
            if not begun.has_failed:
                self._ports.events.claim(begun.target.session, begun.events)
                self._request(begun.target, Reason.RETRY)
        for agent, session in self._ports.events.waiting():
            for event in self._ports.events.peek(session):
                self.wake(agent, reason_of(event.kind), session)


async def open_heartbeat(documents: Documents, ports: BeatPorts, agents: Mapping[str, HeartbeatSettings]) -> Heartbeat:
    """Heartbeats that know what those before them have left undone; ``agents``: every agent's effective settings.

    To be opened once the queue of events has been restored, and before anybody's turn.
    """
    book = BeatBook(documents)
    await book.load(ports.wall())
    heartbeat = Heartbeat(ports, book)
    heartbeat.reconfigure(agents)
    heartbeat.resume()
    return heartbeat


def _target(member: Member, session: str | None) -> Target:
    return member.home if session is None else Target(member.agent, session)
