"""How figures are judged."""

import pytest

from benchmarks.harness import percentile, result


def test_a_figure_without_a_bar_is_neither_met_nor_missed() -> None:
    found = result("x", 5, "us", beside=(2, "us bare"))
    assert (found.met, found.share, found.bar, found.ratio) == (None, None, "", 2.5)


@pytest.mark.parametrize(
    ("value", "bars", "share"),
    [
        (5, {"at_most": 10}, 0.5),
        (20, {"at_most": 10}, 2.0),
        (10, {"at_most": 10}, 1.0),
        (100, {"at_least": 50}, 0.5),
        (25, {"at_least": 50}, 2.0),
        (6, {"ratio_at_most": 4}, 0.75),
        (1, {"ratio_at_least": 1}, 2.0),
    ],
)
def test_the_share_of_a_bar_tells_met_from_missed(value: float, bars: dict[str, float], share: float) -> None:
    found = result("x", value, "us", beside=(2, "us bare"), **bars)  # type: ignore[arg-type]  # the bars are keywords of numbers
    assert found.share == share
    assert found.met is (share <= 1)


def test_of_several_bars_the_worst_counts_and_all_are_named() -> None:
    found = result("x", 5, "us", beside=(1, "us bare"), at_most=10, ratio_at_most=2)
    assert found.share == 2.5
    assert found.met is False
    assert found.bar == "<= 10 us, <= 2 x"


def test_a_bar_for_the_ratio_without_a_baseline_is_a_mistake_of_the_benchmark() -> None:
    with pytest.raises(ValueError, match="needs a baseline"):
        result("x", 5, "us", ratio_at_most=2)


def test_a_rate_of_nothing_is_no_figure() -> None:
    with pytest.raises(ValueError, match="cannot be held against"):
        result("x", 0, "/s", at_least=10)


def test_a_percentile_is_one_of_the_samples() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert percentile(samples, 0.99) == 100
    assert percentile(samples, 0.5) == 51
    assert percentile([7.0], 0.99) == 7
