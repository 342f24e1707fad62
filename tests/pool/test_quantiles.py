from pool.statistics import LatencyStats, RecentLatencies


def test_no_samples_are_all_zero() -> None:
    assert RecentLatencies().stats() == LatencyStats()


def test_quantiles_are_nearest_rank() -> None:
    latencies = RecentLatencies()
    for value in range(1, 101):
        latencies.add(float(value))
    assert latencies.stats() == LatencyStats(count=100, p50=50.0, p99=99.0, max=100.0)


def test_only_the_recent_samples_are_kept_but_all_are_counted() -> None:
    latencies = RecentLatencies(window=10)
    for value in range(1000):
        latencies.add(float(value))
    figures = latencies.stats()
    assert figures.count == 1000
    assert figures.p50 >= 990
