"""Which node a worker is started on."""

import pytest

from pool.nodes import NodeTable, Strategy
from pool.stimuli import Capacity


def table(strategy: Strategy = Strategy.SPREAD) -> NodeTable:
    """Group gpu: nodes one and two of three slots each; this machine has one."""
    nodes = NodeTable({"gpu": strategy})
    nodes.add("", "", 1)
    nodes.add("one", "gpu", 3)
    nodes.add("two", "gpu", 3)
    return nodes


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy.SPREAD, ["one", "two", "one", "two", "one", "two", None]),
        (Strategy.PACK, ["one", "one", "one", "two", "two", "two", None]),
    ],
)
def test_a_group_is_filled_by_its_strategy_and_no_further(strategy: Strategy, expected: list[str | None]) -> None:
    nodes = table(strategy)
    assert [nodes.place(f"w{number}", "gpu") for number in range(7)] == expected
    assert nodes.place("w7", "") == ""
    assert nodes.place("w8", "unknown") is None
    nodes.release("w4")
    assert nodes.place("w9", "gpu", near="one") == nodes.node_of("w9") is not None


def test_a_worker_goes_where_its_session_was_if_that_node_is_of_the_group_and_has_a_slot() -> None:
    nodes = table()
    assert [nodes.place(f"w{number}", "gpu", near="two") for number in range(4)] == ["two", "two", "two", "one"]
    assert nodes.place("w4", "gpu", near="") == "one", "that is another group's"
    assert nodes.place("w5", "gpu", near="gone") == "one"


def test_a_node_that_takes_nothing_new_counts_with_what_it_has_until_its_last_worker_has_ended() -> None:
    nodes = table()
    placed = [nodes.place(f"w{number}", "gpu") for number in range(3)]
    assert placed == ["one", "two", "one"]
    assert nodes.capacity(9.0) == Capacity({"": 1, "gpu": 6}, starters=3, start_rate=9.0)
    assert nodes.close("one") == nodes.close("one") == ("w0", "w2")
    assert nodes.capacity() == Capacity({"": 1, "gpu": 5}, starters=2)
    assert nodes.place("w3", "gpu", near="one") == "two"
    nodes.release("w0")
    nodes.release("w0")
    assert nodes.capacity().slots == {"": 1, "gpu": 4}
    with pytest.raises(ValueError, match="'one' is there already"):
        nodes.add("one", "gpu", 8)
    nodes.release("w2")
    nodes.add("one", "gpu", 8)
    assert nodes.capacity() == Capacity({"": 1, "gpu": 11}, starters=3)
    nodes.close("")
    assert nodes.capacity().slots == {"gpu": 11}
    assert nodes.close("") == ()
