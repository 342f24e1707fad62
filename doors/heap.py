"""What a long-lived process asks of the C library's allocator, so that memory goes back to the system."""

import ctypes
from collections.abc import Mapping

__all__ = ["bound_heap"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's ``mallopt``."""
_LARGE_BYTES = 256 * 1024
_ARENAS = 2


def bound_heap(env: Mapping[str, str]) -> None:
    """Have large blocks given back when they are freed.

    Does nothing without glibc, or where the environment sets its allocator (``MALLOC_*``, ``GLIBC_TUNABLES``).

    By default glibc takes blocks of up to 32 MiB from its heap once one of that size was freed. A small block that
    outlives its large neighbours then holds them all: each large prompt left a part of itself behind.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    is_set = "glibc.malloc." in env.get("GLIBC_TUNABLES", "") or any(name.startswith("MALLOC_") for name in env)
    if mallopt is None or is_set:
        return
    for option, value in ((_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _LARGE_BYTES), (_ARENA_MAX, _ARENAS)):
        mallopt(option, value)
