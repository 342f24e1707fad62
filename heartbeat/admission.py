"""Whether a beat is to be at this moment: the facts for the gates, and HEARTBEAT.md only where it could matter."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import trio

from heartbeat.checklist import Checklist, ChecklistState, look
from heartbeat.gates import Facts, Skip, SkipReason, decide
from heartbeat.reasons import Reason
from heartbeat.rota import Rota
from heartbeat.run_ports import EventPort, PendingEvent, RunPort
from heartbeat.settings import HeartbeatSettings
from heartbeat.wake import Target

__all__ = ["Admission", "Admitted", "Refused"]

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
