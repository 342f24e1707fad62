from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gateway.lanes.entries import IndexedHeap


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=200), st.randoms(use_true_random=False))
def test_whatever_is_taken_out_the_smallest_rank_of_the_rest_comes_first(
    ranks: list[tuple[int, int]], choice: Random
) -> None:
    ordered: IndexedHeap[int] = IndexedHeap()
    inside = {number: ordered.add(rank, number) for number, rank in enumerate(ranks)}
    while inside:
        best = min(inside, key=lambda number: (inside[number].rank, number))
        assert ordered.first() == best
        assert len(ordered) == len(inside)
        assert set(ordered) == set(inside)
        leaves = best if choice.random() < 0.5 else choice.choice(sorted(inside))
        ordered.remove(inside.pop(leaves))
    assert ordered.first() is None
    assert not ordered


def test_items_that_come_and_go_behind_one_that_stays_leave_nothing_behind() -> None:
    ordered: IndexedHeap[str] = IndexedHeap()
    ordered.add((0, 0), "stays")
    for number in range(10_000):
        ordered.remove(ordered.add((1, number), "goes"))
    assert len(ordered._heap) < 200
    assert ordered.first() == "stays"


def test_among_equal_ranks_the_first_comes_first_also_after_one_was_put_in_again() -> None:
    ordered: IndexedHeap[str] = IndexedHeap()
    place = ordered.add((0, 0), "a")
    ordered.add((0, 0), "b")
    ordered.remove(place)
    ordered.add((0, 0), "a")
    assert ordered.first() == "b"
