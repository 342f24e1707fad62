"""Refuse a pool size that the memory it may use cannot hold, with the arithmetic."""

import psutil

from errors import UsageError
from pool.settings import PoolSettings
from rpc.memory_limit import MemoryLimit, memory_limit

__all__ = ["check_memory"]

_MIB = 1024 * 1024


def check_memory(settings: PoolSettings, total_bytes: int | None = None, *, limit: MemoryLimit | None = None) -> None:
    """Raise UsageError when ``max`` workers of ``worker_memory`` bytes each are more than there is.

    ``total_bytes`` None: the machine's physical memory, or what its cgroup allows (``limit``, None: what holds here).
    """
    total, where = total_bytes, "this machine has"
    if total is None:
        total, limit = psutil.virtual_memory().total, limit or memory_limit()
        if limit is not None and limit.size < total:
            total, where = limit.size, f"{limit.file} allows"
    wanted = settings.max * settings.worker_memory
    if wanted > total:
        fits = total // settings.worker_memory
        raise UsageError(
            f"pool.max = {settings.max} workers x {settings.worker_memory // _MIB} MiB (pool.worker_memory) = "
            f"{wanted // _MIB} MiB, but {where} {total // _MIB} MiB; "
            f"set pool.max to {fits} or less, or pool.worker_memory to what a worker really needs"
        )
