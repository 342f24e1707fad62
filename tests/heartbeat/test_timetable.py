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


def test_what_is_due_comes_up_in_the_order_of_its_time() -> None:
    table: KeyedTimers[str] = KeyedTimers()
    for key, due in (("late", 30.0), ("early", 10.0), ("middle", 20.0)):
        table.set(key, due)
    assert table.next_due() == 10.0
    assert table.pop_due(20.0) == ["early", "middle"]
    assert table.next_due() == 30.0
    assert "late" in table
    assert "early" not in table


def test_keys_due_at_the_same_time_come_up_in_the_order_of_setting() -> None:
    table: KeyedTimers[str] = KeyedTimers()
    for key in "cab":
        table.set(key, 1.0)
    table.set("c", 1.0)
    assert table.pop_due(1.0) == ["a", "b", "c"]


def test_a_key_that_is_set_again_is_due_at_the_new_time_only() -> None:
    table: KeyedTimers[str] = KeyedTimers()
    table.set("a", 5.0)
    table.set("a", 50.0)
    assert table.pop_due(49.0) == []
    assert table.due_of("a") == 50.0
    table.set("a", 1.0)
    assert table.pop_due(100.0) == ["a"]
    assert table.next_due() is None


def test_a_discarded_key_never_comes_up() -> None:
    table: KeyedTimers[str] = KeyedTimers()
    table.set("a", 5.0)
    table.discard("a")
    table.discard("unknown")
    assert (table.next_due(), table.due_of("a"), len(table)) == (None, None, 0)


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
