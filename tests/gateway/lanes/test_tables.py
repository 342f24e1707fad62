import itertools

import pytest

from gateway.lanes.entries import ENTRY_TRANSITIONS, LANE_SESSION_TRANSITIONS, EntryState, LaneSessionState
from wire.states import IllegalTransition, transition

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
        assert transition(ENTRY_TRANSITIONS, old, new) is new
    else:
        with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
            transition(ENTRY_TRANSITIONS, old, new)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(LaneSessionState, LaneSessionState)))
def test_a_session_moves_only_along_its_table(old: LaneSessionState, new: LaneSessionState) -> None:
    if (old.value, new.value) in SESSION_LIFE:
        assert transition(LANE_SESSION_TRANSITIONS, old, new) is new
    else:
        with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
            transition(LANE_SESSION_TRANSITIONS, old, new)


def test_every_state_has_a_row_in_its_table() -> None:
    assert set(ENTRY_TRANSITIONS) == set(EntryState)
    assert set(LANE_SESSION_TRANSITIONS) == set(LaneSessionState)


def test_an_ended_entry_never_comes_back_and_an_aborting_turn_never_goes_on() -> None:
    assert not ENTRY_TRANSITIONS[EntryState.ENDED]
    assert LaneSessionState.RUNNING not in LANE_SESSION_TRANSITIONS[LaneSessionState.ABORTING]
