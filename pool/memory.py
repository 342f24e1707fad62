"""Refuse a pool size that the machine's memory cannot hold, with the arithmetic."""

import psutil

from errors import UsageError
from pool.settings import PoolSettings

__all__ = ["check_memory"]

_MIB = 1024 * 1024


def check_memory(settings: PoolSettings, total_bytes: int | None = None) -> None:
    """Raise UsageError when ``max`` workers of ``worker_memory`` bytes each are more than ``total_bytes``.

    ``total_bytes`` None asks the machine for its physical memory.
    """
    total = psutil.virtual_memory().total if total_bytes is None else total_bytes
    wanted = settings.max * settings.worker_memory
    if wanted > total:
        fits = total // settings.worker_memory
        raise UsageError(
            f"pool.max = {settings.max} workers x {settings.worker_memory // _MIB} MiB (pool.worker_memory) = "
            f"{wanted // _MIB} MiB, but this machine has {total // _MIB} MiB; "
            f"set pool.max to {fits} or less, or pool.worker_memory to what a worker really needs"
        )
