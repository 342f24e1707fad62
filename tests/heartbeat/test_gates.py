"""Whether a beat runs: every gate alone, their order, and which reasons pass which."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.checklist import ChecklistState
from heartbeat.gates import GateFacts, Go, Skip, SkipReason, evaluate_gates
from heartbeat.wake import WakeReason

NOW = 1000.0
OPEN = GateFacts(
    enabled=True,
    is_running=False,
    is_active_hour=True,
    is_busy=False,
    skip_when_busy=True,
    next_due=NOW,
    has_room=True,
    has_events=True,
    checklist=ChecklistState.FILLED,
)
SHUT: dict[SkipReason, dict[str, Any]] = {
    SkipReason.DISABLED: {"enabled": False},
    SkipReason.ALREADY_RUNNING: {"is_running": True},
    SkipReason.OUTSIDE_ACTIVE_HOURS: {"is_active_hour": False},
    SkipReason.BUSY: {"is_busy": True},
    SkipReason.NOT_DUE: {"next_due": NOW + 0.001},
    SkipReason.EMPTY_CHECKLIST: {"checklist": ChecklistState.EMPTY, "has_events": False},
    SkipReason.NO_WORKER: {"has_room": False},
    SkipReason.NOTHING_PENDING: {"has_events": False},
}
PASSES = {
    SkipReason.DISABLED: set[WakeReason](),
    SkipReason.ALREADY_RUNNING: set[WakeReason](),
    SkipReason.OUTSIDE_ACTIVE_HOURS: set[WakeReason](),
    SkipReason.BUSY: set[WakeReason](),
    SkipReason.NOT_DUE: set(WakeReason) - {WakeReason.INTERVAL},
    SkipReason.EMPTY_CHECKLIST: {WakeReason.EXEC, WakeReason.CRON, WakeReason.WAKE, WakeReason.HOOK},
    SkipReason.NO_WORKER: {WakeReason.EXEC, WakeReason.CRON, WakeReason.HOOK, WakeReason.MANUAL},
    SkipReason.NOTHING_PENDING: set(WakeReason) - {WakeReason.EXEC, WakeReason.CRON, WakeReason.RETRY},
}


def facts(*shut: SkipReason, **others: Any) -> GateFacts:
    changes: dict[str, Any] = {}
    for gate in shut:
        changes |= SHUT[gate]
    return msgspec.structs.replace(OPEN, **(changes | others))


def expected(shut: set[SkipReason], reason: WakeReason) -> Go | Skip:
    """What the tables say. An empty list counts only where nothing is pending, so that is told too."""
    shut = shut | {SkipReason.NOTHING_PENDING} if SkipReason.EMPTY_CHECKLIST in shut else shut
    barred = [gate for gate in SkipReason if gate in shut and reason not in PASSES[gate]]
    return Skip(barred[0]) if barred else Go()


@pytest.mark.parametrize("reason", WakeReason)
def test_with_every_gate_open_a_beat_runs(reason: WakeReason) -> None:
    assert evaluate_gates(OPEN, reason, NOW) == Go()


@pytest.mark.parametrize(("gate", "reason"), list(product(SHUT, WakeReason)))
def test_each_gate_holds_back_whom_it_is_for(gate: SkipReason, reason: WakeReason) -> None:
    assert evaluate_gates(facts(gate), reason, NOW) == expected({gate}, reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [(first, second) for first, second in product(SHUT, SHUT) if list(SHUT).index(first) < list(SHUT).index(second)],
)
def test_the_first_gate_that_is_shut_is_the_reason(first: SkipReason, second: SkipReason) -> None:
    assert evaluate_gates(facts(first, second), WakeReason.INTERVAL, NOW) == Skip(first)


def test_the_gates_are_asked_in_the_order_of_their_names() -> None:
    assert list(SkipReason) == [*SHUT, SkipReason.FLOOD_GUARD]  # which is no gate


def test_a_beat_that_is_not_to_give_way_waits_behind_the_turn() -> None:
    assert evaluate_gates(facts(SkipReason.BUSY, skip_when_busy=False), WakeReason.INTERVAL, NOW) == Go()


@pytest.mark.parametrize("state", [None, ChecklistState.MISSING, ChecklistState.FILLED, ChecklistState.UNREADABLE])
@pytest.mark.parametrize("reason", sorted(PASSES[SkipReason.NOTHING_PENDING]))
def test_only_an_empty_list_is_nothing_to_do(reason: WakeReason, state: ChecklistState | None) -> None:
    assert evaluate_gates(msgspec.structs.replace(OPEN, checklist=state, has_events=False), reason, NOW) == Go()


@pytest.mark.parametrize("reason", WakeReason)
def test_events_that_wait_are_something_to_do_beside_an_empty_list(reason: WakeReason) -> None:
    assert evaluate_gates(facts(SkipReason.EMPTY_CHECKLIST, has_events=True), reason, NOW) == Go()


def test_events_open_no_other_gate() -> None:
    for gate in set(SHUT) - {SkipReason.EMPTY_CHECKLIST, SkipReason.NOTHING_PENDING}:
        assert evaluate_gates(facts(gate, has_events=True), WakeReason.INTERVAL, NOW) == Skip(gate)


def test_an_interval_is_due_from_its_time_on() -> None:
    assert evaluate_gates(OPEN, WakeReason.INTERVAL, NOW - 0.001) == Skip(SkipReason.NOT_DUE)
    assert evaluate_gates(OPEN, WakeReason.INTERVAL, NOW + 3600) == Go()


@given(shut=st.sets(st.sampled_from(list(SHUT))), reason=st.sampled_from(list(WakeReason)))
def test_any_gates_at_once_give_the_first_that_is_not_passed(shut: set[SkipReason], reason: WakeReason) -> None:
    assert evaluate_gates(facts(*shut), reason, NOW) == expected(shut, reason)
