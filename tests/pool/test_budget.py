import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import WorkerStartFailed
from pool.budget import StartBudget, TokenBucket
from pool.settings import PoolSettings

SETTINGS = PoolSettings()
ERROR = WorkerStartFailed("no such file", stderr_tail="agent: not found")


def failed(budget: StartBudget, now: float, times: int = 1, settings: PoolSettings = SETTINGS) -> bool:
    opened = False
    for _ in range(times):
        opened = budget.record_failure(now, ERROR, settings, random.Random(1))
    return opened


def test_the_bucket_lets_a_burst_through_and_then_one_per_interval() -> None:
    bucket = TokenBucket(3, 4.0)
    for _ in range(3):
        assert bucket.has_token(10.0)
        bucket.consume(10.0)
    assert not bucket.has_token(10.0)
    assert bucket.next_at() == pytest.approx(10.25)
    assert bucket.has_token(bucket.next_at())


def test_a_changed_rate_counts_from_what_was_taken() -> None:
    bucket = TokenBucket(1, 1.0)
    bucket.consume(0.0)
    bucket.set_limits(3, 1.0)
    assert bucket.has_token(0.0)


@given(
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60),
    st.integers(1, 5),
    st.floats(0.5, 8.0),
)
def test_no_window_ever_has_more_starts_than_burst_plus_rate(gaps: list[float], burst: int, rate: float) -> None:
    bucket = TokenBucket(burst, rate)
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        while bucket.has_token(now):
            bucket.consume(now)
            taken.append(now)
        assert bucket.next_at() > now
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - start) * rate + 1e-6


def test_back_off_is_full_jitter_under_a_doubling_ceiling() -> None:
    rng = random.Random(3)
    settings = PoolSettings(breaker_failures=1000)
    for streak in range(1, 12):
        delays = []
        for _ in range(200):
            budget = StartBudget()
            for _ in range(streak):
                budget.record_failure(0.0, ERROR, settings, rng)
            delays.append(budget.retry_at)
        ceiling = min(60.0, 0.5 * 2 ** (streak - 1))
        assert max(delays) <= ceiling
        assert max(delays) > 0.8 * ceiling
        assert min(delays) < 0.2 * ceiling


@pytest.mark.parametrize(("last", "opens"), [(59.0, True), (60.1, False)])
def test_five_failures_open_the_breaker_within_a_minute_only(last: float, *, opens: bool) -> None:
    budget = StartBudget()
    assert not failed(budget, 0.0, 4)
    assert failed(budget, last) is budget.is_open is opens
    assert (budget.opened_until == last + 30.0) is opens


def test_a_straggler_that_becomes_ready_closes_an_open_breaker() -> None:
    budget = StartBudget()
    failed(budget, 0.0, 5)
    assert budget.start_succeeded()
    assert budget.may_start(0.0)


def test_only_a_worker_that_served_clears_the_window() -> None:
    budget = StartBudget()
    failed(budget, 0.0, 4)
    assert not budget.start_succeeded()
    assert failed(budget, 1.0)
    budget = StartBudget()
    failed(budget, 0.0, 4)
    budget.mark_proven()
    assert budget.may_start(0.0)
    assert not failed(budget, 1.0, 4)


def test_a_budget_is_clean_once_its_failures_are_too_old_to_matter() -> None:
    budget = StartBudget()
    assert budget.is_clean(0.0, 60.0)
    failed(budget, 0.0)
    assert not budget.is_clean(59.0, 60.0)
    assert budget.is_clean(61.0, 60.0)
