from wire.histogram import OTHER, BoundedSeries, Histogram


def test_a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.1001, 1.0, 7.0):
        histogram.observe(value)
    data = histogram.data()
    assert data.counts == (2, 2, 1)
    assert data.sum == sum((0.05, 0.1, 0.1001, 1.0, 7.0))


def test_what_was_read_does_not_change_with_later_observations() -> None:
    histogram = Histogram((1.0,))
    before = histogram.data()
    histogram.observe(0.5)
    assert before.counts == (0, 0)


def test_labels_beyond_the_limit_share_what_is_left_of_them() -> None:
    series: BoundedSeries[list[str]] = BoundedSeries(list, 2)
    for agent, profile in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("a", "1")):
        series.get((agent, profile)).append(agent + profile)
    assert dict(series.items()) == {
        ("a", "1"): ["a1", "a1"],
        ("a", "2"): ["a2"],
        ("a", OTHER): ["a3"],
        ("b", OTHER): ["b1"],
        (OTHER, OTHER): ["c1"],
    }


def test_no_number_of_labels_makes_more_series_than_the_limit_allows() -> None:
    series: BoundedSeries[list[str]] = BoundedSeries(list, 3)
    for number in range(100):
        series.get((f"agent{number % 50}", f"{number}"))
    assert len(dict(series.items())) == 3 + 3 + 1
