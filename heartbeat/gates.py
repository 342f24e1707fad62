"""Whether a beat runs: every gate in its order, every refusal with its reason. Pure."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from heartbeat.checklist import ChecklistState
from heartbeat.wake import AWAITED_REASONS, WakeReason

_IGNORES_CHECKLIST = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.WAKE, WakeReason.HOOK})
_NEEDS_EVENTS = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.RETRY})


class SkipReason(StrEnum):
    """Why a beat does not run, in the order in which it is asked."""

    DISABLED = "disabled"
    ALREADY_RUNNING = "already-running"
    OUTSIDE_ACTIVE_HOURS = "outside-active-hours"
    BUSY = "requests-in-flight"
    """The only one that is worth another try soon; it does not advance the schedule."""
    NOT_DUE = "not-due"
    EMPTY_CHECKLIST = "empty-checklist"
    NO_WORKER = "no-worker"
    NOTHING_PENDING = "nothing-pending"
    """It was to be about events that have been told meanwhile, by a turn of somebody's."""
    FLOOD_GUARD = "flood-guard"
    """Events have woken the agent too often; no gate, since what an operator asks for is not held."""


class Go(msgspec.Struct, frozen=True):
    """The beat runs."""


class Skip(msgspec.Struct, frozen=True):
    """The beat does not run."""

    reason: SkipReason


GateDecision: TypeAlias = Go | Skip


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the target at this moment. ``enabled``: the settings have it beat for this reason.

    ``next_due`` is on the clock of ``now``. ``checklist`` None = not looked at yet, which is no reason to skip: looking
    means reading a file, so a caller decides once without it, looks, and decides again with what is true by then.
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
    """Go, or the first gate that is shut."""
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
    """Events that wait are something to do, whatever woke the agent: the next beat is all they can hope for."""
    return facts.checklist is ChecklistState.EMPTY and reason not in _IGNORES_CHECKLIST and not facts.has_events
