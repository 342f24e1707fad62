"""The gate: nothing is seen after a durable event that is not committed."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.cursor import CommitBarrier


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.floats(0, 1)), max_size=50))
def test_the_head_is_the_last_seq_before_the_first_held_one_that_is_not_committed(
    steps: list[tuple[int, bool, float]],
) -> None:
    gate, held, head = CommitBarrier(1), set[int](), 0
    for count, hold, share in steps:
        before = gate.last
        seq = gate.allocate(1 if hold else count, hold=hold)
        assert (seq, gate.last) == (before + 1, before + (1 if hold else count))
        held |= {seq} if hold else set()
        if share > 0.7:
            upto = int(gate.last * share)
            gate.commit(upto)
            held = {each for each in held if each > upto}
        assert gate.head == (min(held) - 1 if held else gate.last)
        assert gate.head >= head
        head = gate.head
        assert list(gate.uncommitted) == sorted(held)
