"""The gate: nothing is seen after a durable event that is not committed."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.bus import CommitBarrier


def test_seqs_are_given_out_in_a_row() -> None:
    gate = CommitBarrier(10)
    assert (gate.head, gate.last) == (9, 9)
    assert [gate.allocate(), gate.allocate(3), gate.allocate()] == [10, 11, 14]
    assert (gate.head, gate.last, gate.is_open) == (14, 14, True)


def test_a_held_event_hides_itself_and_what_follows() -> None:
    gate = CommitBarrier(1)
    gate.allocate(2)
    gate.allocate(hold=True)
    gate.allocate(5)
    assert (gate.head, gate.last, list(gate.cuts()), gate.is_open) == (2, 8, [3], False)


def test_a_commit_shows_everything_up_to_the_next_held_event() -> None:
    gate = CommitBarrier(1)
    gate.allocate(hold=True)
    gate.allocate(2)
    committed = gate.last
    gate.allocate(2)
    gate.allocate(hold=True)
    gate.allocate()
    gate.commit(committed)
    assert (gate.head, list(gate.cuts())) == (5, [6])
    gate.commit(gate.last)
    assert (gate.head, gate.is_open) == (7, True)


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.floats(0, 1)), max_size=50))
def test_the_head_is_the_last_seq_before_the_first_held_one_that_is_not_committed(
    steps: list[tuple[int, bool, float]],
) -> None:
    gate, held, head = CommitBarrier(1), set[int](), 0
    for count, hold, share in steps:
        seq = gate.allocate(1 if hold else count, hold=hold)
        held |= {seq} if hold else set()
        if share > 0.7:
            upto = int(gate.last * share)
            gate.commit(upto)
            held = {each for each in held if each > upto}
        assert gate.head == (min(held) - 1 if held else gate.last)
        assert gate.head >= head
        head = gate.head
        assert list(gate.cuts()) == sorted(held)
