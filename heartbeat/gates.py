"""The gates of a beat in order, and the reason of each refusal. Pure."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from heartbeat.checklist import ChecklistState
from heartbeat.wake import AWAITED_REASONS, WakeReason

_IGNORES_CHECKLIST = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.WAKE, WakeReason.HOOK})
_NEEDS_EVENTS = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.RETRY})


class SkipReason(StrEnum):
    """Why a beat does not run, in the order of the gates."""

    DISABLED = "disabled"
    ALREADY_RUNNING = "already-running"
    OUTSIDE_ACTIVE_HOURS = "outside-active-hours"
    BUSY = "requests-in-flight"
    """The only reason to retry soon; it does not advance the schedule."""
    NOT_DUE = "not-due"
    EMPTY_CHECKLIST = "empty-checklist"
    NO_WORKER = "no-worker"
    NOTHING_PENDING = "nothing-pending"
    """Another turn has reported its events already."""
    FLOOD_GUARD = "flood-guard"
    """Events have woken the agent too often. Not a gate: operators' requests are not held."""


class Go(msgspec.Struct, frozen=True):
    """The beat runs."""


class Skip(msgspec.Struct, frozen=True):
    """The beat does not run."""

    reason: SkipReason


GateDecision: TypeAlias = Go | Skip


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The target's state. ``enabled``: the settings allow a beat for this reason.

    ``next_due`` is on the clock of ``now``. ``checklist`` None = not read yet, which is no reason to skip: a caller
    decides once without it, reads it, and decides again with fresh facts.
    """

    enabled: bool
    is_running: bool
    is_active_hour: bool
    is_busy: bool
    skip_when_busy: bool
    next_due: float
    has_room: bool
    has_events: bool
    checklist: ChecklistState | None = None


def evaluate_gates(facts: GateFacts, reason: WakeReason, now: float) -> GateDecision:
    """Return ``Go``, or the first shut gate."""
    shut = next((gate for gate, is_shut in _gates(facts, reason, now) if is_shut), None)
    return Go() if shut is None else Skip(shut)


def _gates(facts: GateFacts, reason: WakeReason, now: float) -> tuple[tuple[SkipReason, bool], ...]:
    return (
        (SkipReason.DISABLED, not facts.enabled),
        (SkipReason.ALREADY_RUNNING, facts.is_running),
        (SkipReason.OUTSIDE_ACTIVE_HOURS, not facts.is_active_hour),
        (SkipReason.BUSY, facts.is_busy and facts.skip_when_busy),
        (SkipReason.NOT_DUE, reason is WakeReason.INTERVAL and now < facts.next_due),
        (SkipReason.EMPTY_CHECKLIST, _has_nothing_to_do(facts, reason)),
        (SkipReason.NO_WORKER, reason not in AWAITED_REASONS and not facts.has_room),
        (SkipReason.NOTHING_PENDING, reason in _NEEDS_EVENTS and not facts.has_events),
    )


def _has_nothing_to_do(facts: GateFacts, reason: WakeReason) -> bool:
    """An empty checklist without pending events, which only a beat would report."""
    return facts.checklist is ChecklistState.EMPTY and reason not in _IGNORES_CHECKLIST and not facts.has_events
