"""How much memory our own cgroup allows us and our workers together, in version 1 and 2; and who is to go first."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rpc.cgroup import Place, own_place

__all__ = ["MemoryLimit", "memory_limit", "offer_to_the_oom_killer"]

_V1, _V2 = "memory.limit_in_bytes", "memory.max"
_OOM_ADDED, _OOM_MOST = 500, 1000
"""Of a thousandth of all memory each: a worker counts as if it had half of that more than the supervisor."""


class MemoryLimit(NamedTuple):
    """The lowest limit of a cgroup and its parents, in bytes, and the file that sets it."""

    size: int
    file: Path


def memory_limit(find: Callable[[str], Place | None] = own_place) -> MemoryLimit | None:
    """The limit that holds here; None where none is set, or where there are no cgroups."""
    found = [limit for controller, name in (("", _V2), ("memory", _V1)) for limit in _limits(find(controller), name)]
    return min(found, default=None)


def _limits(place: Place | None, name: str) -> Iterator[MemoryLimit]:
    """Those of the cgroup and its parents. The number by which version 1 means none is larger than any memory."""
    if place is None:
        return
    for directory in (place.path, *place.path.parents):
        file = directory / name
        with suppress(OSError, ValueError):  # the root of version 2 has no such file, and "max" is none
            yield MemoryLimit(int(file.read_text()), file)
        if directory == place.mount:
            return


def offer_to_the_oom_killer(pid: int) -> None:
    """Have the kernel end this process, and what it starts, before us where memory is short.

    Where it cannot be said (there is no such file, or the program has rights of its own) the kernel decides by size.
    """
    with suppress(OSError, ValueError):
        own = int(Path("/proc/self/oom_score_adj").read_text())
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(min(own + _OOM_ADDED, _OOM_MOST)))
