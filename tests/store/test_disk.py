import pytest

from store.disk_health import DiskHealth


def test_a_disk_is_degraded_from_the_first_failure_until_all_that_waited_is_written() -> None:
    disk = DiskHealth(10)
    assert disk.failed("full", now=100)
    assert not disk.failed("still full", now=101)
    assert disk.last_error == "still full"
    assert not disk.succeeded(written=5, position=9)
    assert not disk.succeeded(written=8, position=20)
    assert disk.succeeded(written=9, position=20)
    assert (disk.is_degraded, disk.degraded_since) == (False, None)
    assert not disk.succeeded(written=20, position=20)


def test_a_failure_on_the_way_back_counts_what_waits_anew() -> None:
    disk = DiskHealth(10)
    disk.failed("full", now=0)
    disk.succeeded(written=5, position=9)
    disk.failed("full again", now=1)
    assert not disk.succeeded(written=9, position=20)
    assert disk.succeeded(written=20, position=20)


def test_attempts_become_rarer_up_to_the_longest_pause_and_a_success_resets_them() -> None:
    disk = DiskHealth(1)
    pauses = []
    for _ in range(6):
        disk.failed("full", now=50)
        pauses.append(disk.retry_delay(50))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1, 1])
    assert disk.retry_delay(50.4) == pytest.approx(0.6)
    assert disk.retry_delay(60) == 0
    disk.succeeded(1, 2)
    assert disk.retry_delay(50) == 0
    disk.failed("full", now=50)
    assert disk.retry_delay(50) == pytest.approx(0.1)


def test_a_stall_is_news_once_and_asks_for_no_pause() -> None:
    disk = DiskHealth(10)
    assert disk.stalled("no answer", now=0)
    assert not disk.stalled("no answer", now=1)
    assert disk.retry_delay(0) == 0
    assert disk.succeeded(1, 1)


@pytest.mark.parametrize("failures", [1, 17, 2000])
def test_any_number_of_failures_is_waited_out_within_the_longest_pause(failures: int) -> None:
    disk = DiskHealth(10)
    for _ in range(failures):
        disk.failed("full", now=0)
    assert 0 < disk.retry_delay(0) <= 10
