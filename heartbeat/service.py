"""The heartbeat service: one timer task for all agents, one task for each beat."""

import logging
import math
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
import trio

from errors import PoolError, UsageError
from heartbeat.beat import BeatPorts, BeatResult, BeatRunner
from heartbeat.gates import SkipReason
from heartbeat.ports import Documents
from heartbeat.records import BeatOutcome, BeatReport, BeatStore, HeartbeatStatus, unrun_beat
from heartbeat.schedule import AgentSchedule, BeatSchedule
from heartbeat.settings import HeartbeatSettings
from heartbeat.system_events import SystemEvent
from heartbeat.wake import (
    FLOOD_BEATS,
    LONGEST_PAUSE,
    MAX_EVENT_BEATS_PER_HOUR,
    BeatBusy,
    BeatFailed,
    BeatTarget,
    Begin,
    Paused,
    WakeMachine,
    WakeReason,
    reason_of,
)
from wire.events import EventType
from wire.log_context import facts

_logger = logging.getLogger("pool.heartbeat")


class _Waiter:
    """A caller that awaits the target's next beat, at most until ``deadline`` while the session is busy."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.report: BeatReport | None = None
        self.done = trio.Event()

    def answer(self, report: BeatReport) -> None:
        self.report = report
        self.done.set()


class Heartbeat:
    """Heartbeats of all agents. Wakes are accepted from the start; beats run while ``run`` does."""

    def __init__(self, ports: BeatPorts, store: BeatStore) -> None:
        """Use ``open_heartbeat``."""
        self._ports = ports
        self._store = store
        self._schedule = BeatSchedule()
        self._machine = WakeMachine()
        self._runner = BeatRunner(ports, store, self._schedule)
        self._waiters: dict[BeatTarget, list[_Waiter]] = {}
        self._running: list[BeatTarget] = []
        self._published_skips: dict[str, tuple[object, ...]] = {}
        self._wake = trio.Event()
        self._armed_for = math.inf

    def wake(self, agent: str, reason: WakeReason = WakeReason.WAKE, session: str | None = None) -> bool:
        """Request a beat soon, in the agent's main conversation unless another is named. Never blocks.

        False = not woken: the agent is not configured, its settings disable wakes, or too many beats wait. Pending
        events stay for its next turn.
        """
        member = self._schedule.get(agent)
        if member is None or not member.settings.wake:
            return False
        return self._request(_target(member, session), reason)

    def wake_for(self, event: SystemEvent) -> None:
        """Wake the owner of the event's session; with ``wake = false`` its next turn reports the event."""
        agent = self._ports.runs.agent_of(event.session)
        if agent is not None:
            self.wake(agent, reason_of(event.kind), event.session)

    async def run_now(
        self, agent: str, reason: WakeReason = WakeReason.MANUAL, session: str | None = None
    ) -> BeatReport:
        """Run a beat and return its report.

        Waits while the session is busy, at most the ``timeout`` of the settings: then the report says so, and the beat
        still follows. The same holds for a beat that the flood guard holds, which never applies to operators. Raises
        UsageError for an agent that is not configured, PoolSaturated when too many beats wait.
        """
        member, now = self._find(agent), trio.current_time()
        target, waiter = _target(member, session), _Waiter(now + float(member.settings.timeout))
        self._machine.request(target, reason, now)
        if self._machine.is_held(target):
            return unrun_beat(target, reason, self._ports.wall(), skipped=SkipReason.FLOOD_GUARD)
        self._waiters.setdefault(target, []).append(waiter)
        self._rearm()
        try:
            await waiter.done.wait()
        finally:
            self._remove_waiter(target, waiter)
        assert waiter.report is not None  # noqa: S101 - set together with the event
        return waiter.report

    def reconfigure(self, agents: Mapping[str, HeartbeatSettings]) -> None:
        """Apply other settings. Agents with the same settings keep their schedule; running beats finish."""
        self._schedule.reconfigure(agents, trio.current_time(), self._ports.wall(), self._store.last_beats())
        self._store.keep_only(agents)
        for name in [name for name in self._published_skips if name not in agents]:
            del self._published_skips[name]
        self._rearm()

    def wakes_on_events(self, agent: str) -> bool:
        """Whether events wake the agent."""
        member = self._schedule.get(agent)
        return member is not None and member.settings.wake

    def wakes_at(self, agent: str, session: str) -> float | None:
        """When an event of now wakes the agent in that session, in Unix time; None = at once.

        The flood guard's pause and the active hours count; infinity where these never start.
        """
        member, now, wall = self._schedule.get(agent), trio.current_time(), self._ports.wall()
        if member is None:
            return None
        pause = self._machine.paused_until(BeatTarget(agent, session), now)
        start = member.window.next_start(wall if pause is None else wall + pause - now)
        if start is None:
            return math.inf
        return start if start > wall else None

    def status(self) -> list[HeartbeatStatus]:
        """The state of every agent, in the order of the settings."""
        return [self._status(member) for member in self._schedule.agents().values()]

    def stats(self) -> tuple[int, int]:
        """The number of agents that beat by the clock, and of running beats."""
        by_the_clock = sum(member.settings.every > 0 for member in self._schedule.agents().values())
        return by_the_clock, len(self._running)

    def _find(self, agent: str) -> AgentSchedule:
        member = self._schedule.get(agent)
        if member is None:
            known = ", ".join(sorted(self._schedule.agents())[:20])
            raise UsageError(f"there is no agent {agent[:80]!r}; there are: {known or 'none'}")
        return member

    def _status(self, member: AgentSchedule) -> HeartbeatStatus:
        agent, wall = member.agent, self._ports.wall()
        due, record = self._schedule.due_of(agent), self._store.agent_record(agent)
        return HeartbeatStatus(
            agent=agent,
            every=member.every,
            wake=member.settings.wake,
            next_due=None if due is None else wall + due - trio.current_time(),
            running=tuple(target.session for target in self._running if target.agent == agent),
            last_beat=record.last,
            last_skip=self._store.last_skips.get(agent),
            counts=dict(self._store.counts.get(agent, {})),
            paused={session: until for session, until in record.paused.items() if until > wall},
            warning=member.window.warning,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start due beats until cancelled; running beats are then aborted, and the next supervisor continues them."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                self._step(nursery)
                self._wake = trio.Event()
                self._armed_for = self._next_due()
                with trio.move_on_at(self._armed_for):
                    await self._wake.wait()

    def _step(self, nursery: trio.Nursery) -> None:
        now = trio.current_time()
        wall = self._ports.wall()
        for member in self._schedule.pop_due(now, wall):
            if not self._request(member.main_target, WakeReason.INTERVAL):
                self._schedule.mark_done(member.agent, now, wall)
        for action in self._machine.begin_due(now):
            match action:
                case Begin(target, reason):
                    self._running.append(target)
                    waiters = self._waiters.pop(target, [])
                    nursery.start_soon(self._beat, target, reason, waiters, name=f"beat of {target.agent}")
                case Paused(target, until):
                    self._pause(target, until, now)
                case _:
                    assert_never(action)

    def _next_due(self) -> float:
        times = (self._schedule.next_due(), self._machine.next_due())
        return min((due for due in times if due is not None), default=math.inf)

    def _rearm(self) -> None:
        if self._next_due() < self._armed_for:
            self._wake.set()

    def _request(self, target: BeatTarget, reason: WakeReason) -> bool:
        try:
            self._machine.request(target, reason, trio.current_time())
        except PoolError as exc:
            self._publish_error(target, exc.message)
            return False
        self._rearm()
        return True

    async def _beat(self, target: BeatTarget, reason: WakeReason, waiters: list[_Waiter]) -> None:
        try:
            performed = await self._runner.perform(target, reason)
        except Exception:  # a defect in one beat must not end the others
            _logger.exception("heartbeat_defect", extra=facts(agent=target.agent, session=target.session))
            settings = self._runner.settings_of(target.agent)
            error = "a defect of the supervisor; its log has the traceback"
            report = unrun_beat(target, reason, self._ports.wall(), error=error)
            self._store.save_report(report)
            performed = BeatResult(report, BeatFailed(settings.max_retries, float(settings.retry_delay)))
        self._finish(target, reason, performed, waiters)

    def _finish(self, target: BeatTarget, reason: WakeReason, performed: BeatResult, waiters: list[_Waiter]) -> None:
        now = trio.current_time()
        self._running.remove(target)
        is_answered = not performed.is_resumed or reason is WakeReason.RETRY
        if not is_answered:
            self._machine.request(target, reason, now)
        self._machine.ended(target, performed.end, now)
        if self._is_due(target) and self._machine.pending(target) is None:
            self._schedule.mark_done(target.agent, now, self._ports.wall())
        self._publish(performed.report)
        comes_later = isinstance(performed.end, BeatBusy) or not is_answered
        for waiter in waiters:
            if comes_later and waiter.deadline > now:
                self._waiters.setdefault(target, []).append(waiter)
            else:
                waiter.answer(performed.report)
        self._rearm()

    def _remove_waiter(self, target: BeatTarget, waiter: _Waiter) -> None:
        waiters = self._waiters.get(target, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(target, None)

    def _pause(self, target: BeatTarget, until: float, now: float) -> None:
        wall = self._ports.wall()
        self._store.save_pause(target, wall + until - now, wall)
        self._publish_error(
            target,
            f"agent {target.agent} beat {FLOOD_BEATS} times within a minute, or {MAX_EVENT_BEATS_PER_HOUR} times "
            f"within an hour, in {target.session}: what wakes it may be its own doing; "
            f"events wake it again in {until - now:.0f} s",
        )
        for waiter in self._waiters.pop(target, []):
            waiter.answer(unrun_beat(target, WakeReason.WAKE, wall, skipped=SkipReason.FLOOD_GUARD))
        if self._is_due(target):
            self._request(target, WakeReason.INTERVAL)  # the interval is not held

    def _is_due(self, target: BeatTarget) -> bool:
        """Whether the schedule waits for the target's beat."""
        member = self._schedule.get(target.agent)
        return member is not None and member.main_target == target and self._schedule.is_due(target.agent)

    def _publish(self, report: BeatReport) -> None:
        """Publish the monitor event ``heartbeat``; not for alerts (the dispatcher does), nor for a repeated skip."""
        if report.outcome is BeatOutcome.SKIPPED:
            skip = (report.session, report.skipped, report.problem)
            if self._published_skips.get(report.agent) == skip:
                return
            self._published_skips[report.agent] = skip
        else:
            self._published_skips.pop(report.agent, None)
        if report.outcome is not BeatOutcome.ALERT:
            data: dict[str, Any] = msgspec.to_builtins(report)
            data = {"state": data.pop("outcome"), **data}
            self._ports.monitor.publish(report.session, EventType.HEARTBEAT, data)

    def _publish_error(self, target: BeatTarget, message: str) -> None:
        data = {"severity": "error", "phase": "system", "message": message, "agent": target.agent}
        self._ports.monitor.publish(target.session, EventType.ERROR, data)

    def resume(self) -> None:
        """Continue what the previous supervisor left: pauses, beats in progress, events whose wakes it lost."""
        now, wall = trio.current_time(), self._ports.wall()
        for agent in self._schedule.agents():
            for session, until in self._store.agent_record(agent).paused.items():
                if until > wall:
                    self._machine.pause(BeatTarget(agent, session), now + min(until - wall, LONGEST_PAUSE), now)
        for begun in self._store.all_in_progress():
            if not begun.has_failed:
                self._ports.events.claim(begun.target.session, begun.events)
                self._request(begun.target, WakeReason.RETRY)
        for session in self._ports.events.pending_sessions():
            for event in self._ports.events.unclaimed(session):
                self.wake_for(event)


async def open_heartbeat(documents: Documents, ports: BeatPorts, agents: Mapping[str, HeartbeatSettings]) -> Heartbeat:
    """Open heartbeats as the previous supervisor left them; ``agents``: the effective settings of every agent.

    Call it after the event queue is restored, and before the first turn.
    """
    store = BeatStore(documents)
    await store.load(ports.wall())
    heartbeat = Heartbeat(ports, store)
    heartbeat.reconfigure(agents)
    heartbeat.resume()
    return heartbeat


def _target(member: AgentSchedule, session: str | None) -> BeatTarget:
    return member.main_target if session is None else BeatTarget(member.agent, session)
