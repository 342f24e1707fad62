import pytest

from errors import UsageError
from pool.memory import check_memory
from pool.settings import PoolSettings
from wire.units import ByteCount

GIB = 1024**3


def test_a_pool_that_fits_is_accepted() -> None:
    check_memory(PoolSettings(max=4, worker_memory=ByteCount(GIB)), total_bytes=4 * GIB)


def test_a_pool_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(
        UsageError, match=r"pool\.max = 5 workers x 1024 MiB .* = 5120 MiB.*4096 MiB; set pool\.max to 4"
    ):
        check_memory(PoolSettings(max=5, worker_memory=ByteCount(GIB)), total_bytes=4 * GIB)


def test_the_machine_is_asked_when_nobody_says_how_much_there_is() -> None:
    with pytest.raises(UsageError, match=r"this machine has \d+ MiB"):
        check_memory(PoolSettings(max=10**9))
