from pathlib import Path

import pytest

from errors import UsageError
from pool.settings import PoolSettings, check_memory
from rpc.cgroup import MemoryLimit
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


def test_what_the_cgroup_allows_counts_where_it_is_less() -> None:
    limit = MemoryLimit(400 * 1024**2, Path("/sys/fs/cgroup/app/memory.max"))
    settings = PoolSettings(max=12, worker_memory=ByteCount(150 * 1024**2))
    with pytest.raises(
        UsageError, match=r"= 1800 MiB, but /sys/fs/cgroup/app/memory\.max allows 400 MiB; set pool\.max to 2 or less"
    ):
        check_memory(settings, limit=limit)
    check_memory(PoolSettings(max=1), limit=MemoryLimit(2**62, Path("/x")))
