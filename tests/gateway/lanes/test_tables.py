import itertools

import pytest

from gateway.lanes.entries import ENTRY_MOVES, SESSION_MOVES, EntryState, SessionState
from pool.states import IllegalMoveError, checked

ENTRY_LIFE = {
    ("new", "waiting"),
    ("new", "steered"),
    ("new", "running"),
    ("new", "ended"),
    ("waiting", "summarized"),
    ("waiting", "running"),
    ("waiting", "ended"),
    ("summarized", "running"),
    ("summarized", "ended"),
    ("steered", "waiting"),
    ("steered", "ended"),
    ("running", "ended"),
}
SESSION_LIFE = {
    ("free", "queued"),
    ("free", "running"),
    ("gathering", "queued"),
    ("gathering", "free"),
    ("queued", "gathering"),
    ("queued", "running"),
    ("queued", "free"),
    ("running", "aborting"),
    ("running", "gathering"),
    ("running", "queued"),
    ("running", "free"),
    ("aborting", "gathering"),
    ("aborting", "queued"),
    ("aborting", "free"),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(EntryState, EntryState)))
def test_an_entry_moves_only_along_its_table(old: EntryState, new: EntryState) -> None:
    if (old.value, new.value) in ENTRY_LIFE:
        assert checked(ENTRY_MOVES, old, new) is new
    else:
        with pytest.raises(IllegalMoveError, match=f"from {old.value} to {new.value}"):
            checked(ENTRY_MOVES, old, new)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(SessionState, SessionState)))
def test_a_session_moves_only_along_its_table(old: SessionState, new: SessionState) -> None:
    if (old.value, new.value) in SESSION_LIFE:
        assert checked(SESSION_MOVES, old, new) is new
    else:
        with pytest.raises(IllegalMoveError, match=f"from {old.value} to {new.value}"):
            checked(SESSION_MOVES, old, new)


def test_every_state_has_a_row_in_its_table() -> None:
    assert set(ENTRY_MOVES) == set(EntryState)
    assert set(SESSION_MOVES) == set(SessionState)


def test_an_ended_entry_never_comes_back_and_an_aborting_turn_never_goes_on() -> None:
    assert not ENTRY_MOVES[EntryState.ENDED]
    assert SessionState.RUNNING not in SESSION_MOVES[SessionState.ABORTING]
