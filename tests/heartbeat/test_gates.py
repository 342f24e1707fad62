"""Whether a beat runs: every gate alone, their order, and which reasons pass which."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heartbeat.checklist import ChecklistState
from heartbeat.gates import Facts, Go, Skip, SkipReason, decide
from heartbeat.wake import Reason

NOW = 1000.0
OPEN = Facts(
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
    SkipReason.DISABLED: set[Reason](),
    SkipReason.ALREADY_RUNNING: set[Reason](),
    SkipReason.OUTSIDE_ACTIVE_HOURS: set[Reason](),
    SkipReason.BUSY: set[Reason](),
    SkipReason.NOT_DUE: set(Reason) - {Reason.INTERVAL},
    SkipReason.EMPTY_CHECKLIST: {Reason.EXEC, Reason.CRON, Reason.WAKE, Reason.HOOK},
    SkipReason.NO_WORKER: {Reason.EXEC, Reason.CRON, Reason.HOOK, Reason.MANUAL},
    SkipReason.NOTHING_PENDING: set(Reason) - {Reason.EXEC, Reason.CRON, Reason.RETRY},
}


def facts(*shut: SkipReason, **others: Any) -> Facts:
    changes: dict[str, Any] = {}
    for gate in shut:
        changes |= SHUT[gate]
    return msgspec.structs.replace(OPEN, **(changes | others))


def expected(shut: set[SkipReason], reason: Reason) -> Go | Skip:
    """What the tables say. An empty list counts only where nothing is pending, so that is told too."""
    shut = shut | {SkipReason.NOTHING_PENDING} if SkipReason.EMPTY_CHECKLIST in shut else shut
    barred = [gate for gate in SkipReason if gate in shut and reason not in PASSES[gate]]
    return Skip(barred[0]) if barred else Go()


@pytest.mark.parametrize("reason", Reason)
def test_with_every_gate_open_a_beat_runs(reason: Reason) -> None:
    assert decide(OPEN, reason, NOW) == Go()


@pytest.mark.parametrize(("gate", "reason"), list(product(SHUT, Reason)))
def test_each_gate_holds_back_whom_it_is_for(gate: SkipReason, reason: Reason) -> None:
    assert decide(facts(gate), reason, NOW) == expected({gate}, reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [(first, second) for first, second in product(SHUT, SHUT) if list(SHUT).index(first) < list(SHUT).index(second)],
)
def test_the_first_gate_that_is_shut_is_the_reason(first: SkipReason, second: SkipReason) -> None:
    assert decide(facts(first, second), Reason.INTERVAL, NOW) == Skip(first)


def test_the_gates_are_asked_in_the_order_of_their_names() -> None:
    assert list(SkipReason) == [*SHUT, SkipReason.FLOOD_GUARD]  # which is no gate


def test_a_beat_that_is_not_to_give_way_waits_behind_the_turn() -> None:
    assert decide(facts(SkipReason.BUSY, skip_when_busy=False), Reason.INTERVAL, NOW) == Go()


@pytest.mark.parametrize("state", [None, ChecklistState.MISSING, ChecklistState.FILLED, ChecklistState.UNREADABLE])
@pytest.mark.parametrize("reason", sorted(PASSES[SkipReason.NOTHING_PENDING]))
def test_only_an_empty_list_is_nothing_to_do(reason: Reason, state: ChecklistState | None) -> None:
    assert decide(msgspec.structs.replace(OPEN, checklist=state, has_events=False), reason, NOW) == Go()


@pytest.mark.parametrize("reason", Reason)
def test_events_that_wait_are_something_to_do_beside_an_empty_list(reason: Reason) -> None:
    assert decide(facts(SkipReason.EMPTY_CHECKLIST, has_events=True), reason, NOW) == Go()


def test_events_open_no_other_gate() -> None:
    for gate in set(SHUT) - {SkipReason.EMPTY_CHECKLIST, SkipReason.NOTHING_PENDING}:
        assert decide(facts(gate, has_events=True), Reason.INTERVAL, NOW) == Skip(gate)


def test_an_interval_is_due_from_its_time_on() -> None:
    assert decide(OPEN, Reason.INTERVAL, NOW - 0.001) == Skip(SkipReason.NOT_DUE)
    assert decide(OPEN, Reason.INTERVAL, NOW + 3600) == Go()


@given(shut=st.sets(st.sampled_from(list(SHUT))), reason=st.sampled_from(list(Reason)))
def test_any_gates_at_once_give_the_first_that_is_not_passed(shut: set[SkipReason], reason: Reason) -> None:
    assert decide(facts(*shut), reason, NOW) == expected(shut, reason)
