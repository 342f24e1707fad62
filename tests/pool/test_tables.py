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
    "starting": {"idle", "stopping", "dead"},
    "idle": {"leased", "stopping", "dead"},
    "leased": {"idle", "stopping", "dead"},
    "stopping": {"dead"},
    "dead": set[str](),
}
SESSION_LIFE = {"parked": {"active"}, "active": {"parking"}, "parking": {"parked"}}


def test_workers_and_sessions_move_only_along_their_tables() -> None:
    assert {old: {new.value for new in news} for old, news in WORKER_TRANSITIONS.items()} == WORKER_LIFE
    assert {old: {new.value for new in news} for old, news in SESSION_TRANSITIONS.items()} == SESSION_LIFE
    assert transition(WORKER_TRANSITIONS, WorkerState.IDLE, WorkerState.LEASED) is WorkerState.LEASED
    with pytest.raises(IllegalTransition, match="from parked to parking"):
        transition(SESSION_TRANSITIONS, SessionState.PARKED, SessionState.PARKING)


def test_every_state_has_a_row_in_its_table_and_ends_are_final() -> None:
    assert set(WAITER_TRANSITIONS) == set(WaiterState)
    assert set(MODE_TRANSITIONS) == set(PoolMode)
    assert len(BREAKER_TRANSITIONS) == 3
    assert not WAITER_TRANSITIONS[WaiterState.DONE]
    assert not MODE_TRANSITIONS[PoolMode.CLOSED]
