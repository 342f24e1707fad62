import itertools

import pytest

from pool.budget import BREAKER_TRANSITIONS
from pool.transitions import (
    MODE_TRANSITIONS,
    SESSION_TRANSITIONS,
    WAITER_TRANSITIONS,
    WORKER_TRANSITIONS,
    PoolMode,
    SessionState,
    WaiterState,
    WorkerState,
)
from wire.states import IllegalTransition, transition

WORKER_LIFE = {
    ("starting", "idle"),
    ("starting", "stopping"),
    ("starting", "dead"),
    ("idle", "leased"),
    ("idle", "stopping"),
    ("idle", "dead"),
    ("leased", "idle"),
    ("leased", "stopping"),
    ("leased", "dead"),
    ("stopping", "dead"),
}
SESSION_LIFE = {("parked", "active"), ("active", "parking"), ("parking", "parked")}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(WorkerState, WorkerState)))
def test_a_worker_moves_only_along_its_table(old: WorkerState, new: WorkerState) -> None:
    if (old.value, new.value) in WORKER_LIFE:
        assert transition(WORKER_TRANSITIONS, old, new) is new
    else:
        with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
            transition(WORKER_TRANSITIONS, old, new)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(SessionState, SessionState)))
def test_a_session_goes_round_active_parking_parked_and_no_other_way(old: SessionState, new: SessionState) -> None:
    if (old.value, new.value) in SESSION_LIFE:
        assert transition(SESSION_TRANSITIONS, old, new) is new
    else:
        with pytest.raises(IllegalTransition):
            transition(SESSION_TRANSITIONS, old, new)


def test_every_state_has_a_row_in_its_table() -> None:
    for states, table in (
        (WorkerState, WORKER_TRANSITIONS),
        (SessionState, SESSION_TRANSITIONS),
        (WaiterState, WAITER_TRANSITIONS),
        (PoolMode, MODE_TRANSITIONS),
    ):
        assert set(table) == set(states)
    assert len(BREAKER_TRANSITIONS) == 3


def test_a_finished_waiter_never_comes_back_and_a_closed_pool_never_opens() -> None:
    assert not WAITER_TRANSITIONS[WaiterState.DONE]
    assert not MODE_TRANSITIONS[PoolMode.CLOSED]
