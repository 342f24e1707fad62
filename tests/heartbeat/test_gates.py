"""Whether a beat runs: the gates, their order, and which reasons pass which."""

from itertools import combinations, product
from typing import Any

import pytest

from heartbeat.checklist import ChecklistState
from heartbeat.gates import GateFacts, SkipReason, first_shut_gate
from heartbeat.wake import WakeReason

NOW = 1000.0
SHUT: dict[SkipReason, dict[str, Any]] = {
    SkipReason.DISABLED: {"enabled": False},
    SkipReason.OUTSIDE_ACTIVE_HOURS: {"is_active_hour": False},
    SkipReason.BUSY: {"is_busy": True},
    SkipReason.NOT_DUE: {"next_due": NOW + 0.001},
    SkipReason.EMPTY_CHECKLIST: {"checklist": ChecklistState.EMPTY, "has_events": False},
    SkipReason.NO_WORKER: {"has_room": False},
    SkipReason.NOTHING_PENDING: {"has_events": False},
}
EVENTS = {WakeReason.EXEC, WakeReason.CRON}
PASSES: dict[SkipReason, set[WakeReason]] = {
    SkipReason.NOT_DUE: set(WakeReason) - {WakeReason.INTERVAL},
    SkipReason.EMPTY_CHECKLIST: {*EVENTS, WakeReason.WAKE, WakeReason.HOOK},
    SkipReason.NO_WORKER: {*EVENTS, WakeReason.HOOK, WakeReason.MANUAL},
    SkipReason.NOTHING_PENDING: set(WakeReason) - EVENTS - {WakeReason.RETRY},
}


def evaluate(reason: WakeReason, *shut: SkipReason, now: float = NOW, **others: Any) -> SkipReason | None:
    facts: dict[str, Any] = dict.fromkeys(("enabled", "is_active_hour", "skip_when_busy", "has_room"), True)
    facts |= {"is_busy": False, "has_events": True, "next_due": NOW, "checklist": ChecklistState.FILLED}
    for gate in shut:
        facts |= SHUT[gate]
    return first_shut_gate(GateFacts(**(facts | others)), reason, now)


@pytest.mark.parametrize("reason", WakeReason)
def test_the_first_shut_gate_that_the_reason_does_not_pass_is_the_answer(reason: WakeReason) -> None:
    assert list(SkipReason) == [*SHUT, SkipReason.FLOOD_GUARD]  # which is no gate
    for shut in (shut for count in range(4) for shut in combinations(SHUT, count)):
        implied = {*shut, SkipReason.NOTHING_PENDING} if SkipReason.EMPTY_CHECKLIST in shut else set(shut)
        barring = [gate for gate in SHUT if gate in implied and reason not in PASSES.get(gate, ())]
        assert evaluate(reason, *shut) == next(iter(barring), None), shut


def test_a_beat_that_is_not_to_give_way_waits_behind_the_turn() -> None:
    assert evaluate(WakeReason.INTERVAL, SkipReason.BUSY, skip_when_busy=False) is None


@pytest.mark.parametrize(("state", "reason"), list(product([None, *ChecklistState], WakeReason)))
def test_only_an_empty_checklist_without_events_is_nothing_to_do(
    state: ChecklistState | None, reason: WakeReason
) -> None:
    assert evaluate(reason, checklist=state) is None, "events are something to do"
    if reason in PASSES[SkipReason.NOTHING_PENDING] and state is not ChecklistState.EMPTY:
        assert evaluate(reason, checklist=state, has_events=False) is None


def test_an_interval_is_due_from_its_time_on() -> None:
    assert evaluate(WakeReason.INTERVAL, now=NOW - 0.001) is SkipReason.NOT_DUE
    assert evaluate(WakeReason.INTERVAL, now=NOW + 3600) is None
