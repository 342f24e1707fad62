"""The gates of a beat in order, and the reason of each refusal. Pure."""

from enum import StrEnum

import msgspec

from heartbeat.checklist import ChecklistState
from heartbeat.wake import AWAITED_REASONS, WakeReason

_IGNORES_CHECKLIST = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.WAKE, WakeReason.HOOK})
_NEEDS_EVENTS = frozenset({WakeReason.EXEC, WakeReason.CRON, WakeReason.RETRY})


class SkipReason(StrEnum):
    """Why a beat does not run, in the order of the gates."""

    DISABLED = "disabled"
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


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The target's state. ``enabled``: the settings allow a beat for this reason.

    ``next_due`` is on the clock of ``now``. ``checklist`` None = not read yet, which is no reason to skip: a caller
    decides once without it, reads it, and decides again with fresh facts.
    """

    enabled: bool
    is_active_hour: bool
    is_busy: bool
    skip_when_busy: bool
    next_due: float
    has_room: bool
    has_events: bool
    checklist: ChecklistState | None = None


def first_shut_gate(facts: GateFacts, reason: WakeReason, now: float) -> SkipReason | None:
    """The first shut gate; None = the beat runs."""
    # Pending events are something to do beside an empty checklist: only a beat would report them.
    is_empty = facts.checklist is ChecklistState.EMPTY and not facts.has_events
    has_nothing_to_do = is_empty and reason not in _IGNORES_CHECKLIST
    gates = (
        (SkipReason.DISABLED, not facts.enabled),
        (SkipReason.OUTSIDE_ACTIVE_HOURS, not facts.is_active_hour),
        (SkipReason.BUSY, facts.is_busy and facts.skip_when_busy),
        (SkipReason.NOT_DUE, reason is WakeReason.INTERVAL and now < facts.next_due),
        (SkipReason.EMPTY_CHECKLIST, has_nothing_to_do),
        (SkipReason.NO_WORKER, reason not in AWAITED_REASONS and not facts.has_room),
        (SkipReason.NOTHING_PENDING, reason in _NEEDS_EVENTS and not facts.has_events),
    )
    return next((gate for gate, is_shut in gates if is_shut), None)
