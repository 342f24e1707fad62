"""The heap of due times against a plain dictionary, and what it costs."""

from hypothesis import given
from hypothesis import strategies as st

from wire.timers import KeyedTimers

KEYS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("discard"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), st.none(), st.integers(0, 20)),
    )
)


def test_keys_due_at_the_same_time_come_up_in_the_order_of_setting() -> None:
    table: KeyedTimers[str] = KeyedTimers()
    for key in "cab":
        table.set(key, 1.0)
    table.set("c", 1.0)
    assert table.pop_due(1.0) == ["a", "b", "c"]


def test_a_limit_leaves_the_rest_for_later() -> None:
    table: KeyedTimers[int] = KeyedTimers()
    for key in range(5):
        table.set(key, 0.0)
    assert table.pop_due(0.0, limit=2) == [0, 1]
    assert table.pop_due(0.0, limit=0) == []
    assert len(table) == 3


def test_moving_and_discarding_for_ever_leaves_no_heap_behind() -> None:
    table: KeyedTimers[int] = KeyedTimers()
    for turn in range(20_000):
        table.set(turn % 10, float(turn))
    assert len(table._heap) <= 2 * 10 + 64
    for key in range(10_000):
        table.set(key, 0.0)
        table.discard(key)
    assert len(table._heap) <= 64


@given(STEPS)
def test_it_behaves_as_a_dictionary_that_is_sorted_when_asked(steps: list[tuple[str, str, int]]) -> None:
    table: KeyedTimers[str] = KeyedTimers()
    model: dict[str, int] = {}
    for step, key, number in steps:
        if step == "set":
            table.set(key, number)
            model[key] = number
        elif step == "discard":
            table.discard(key)
            model.pop(key, None)
        else:
            due = {name for name, when in model.items() if when <= number}
            popped = table.pop_due(number)
            assert set(popped) == due
            assert [model[name] for name in popped] == sorted(model[name] for name in due)
            for name in due:
                del model[name]
        assert table.next_due() == min(model.values(), default=None)
        assert len(table) == len(model)
