"""Process hardening before secrets are read.

- No core dumps of this process, nor of its children unless they raise their limit.
- No process of the same user may read its memory or environment without root: a hijacked worker may be its child.
- Its files are private to the owner under any umask.
"""

import os
import resource
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

_PR_SET_DUMPABLE = 4

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's ``mallopt``."""
_LARGE_BYTES = 256 * 1024
_ARENAS = 2

_PRIVATE_NAMES = frozenset(
    {"pool.db", "pool.db-wal", "pool.db-shm", "sessions", "by-session", "agent-dirs", "logs", "prompts"}
    | {"chat-history", "dashboard.html", "service.env", "workers.json", "supervisor.lock"}
)
"""Of a data directory. Workspaces are their users' affair; a token that others could read has to be refused."""


def harden() -> None:
    """For good, and for this process only but for the limit and the umask, which children inherit."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform.startswith("linux"):
        import ctypes  # noqa: PLC0415  # some milliseconds, and only Linux has the call

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def tighten_modes(data_dir: Path) -> list[str]:
    """Close what of the data directory a restore has left open to others; returns the names of what was open.

    What belongs to another user stays as it is. Raises OSError.
    """
    names: list[str] = []
    for path in sorted(data_dir.iterdir()):
        status = path.lstat()
        is_ours = path.name.split(".damaged-")[0] in _PRIVATE_NAMES and status.st_uid == os.geteuid()
        if is_ours and status.st_mode & 0o077 and not stat.S_ISLNK(status.st_mode):
            path.chmod(stat.S_IMODE(status.st_mode) & 0o700)
            names.append(path.name)
    return names


def bound_heap(env: Mapping[str, str]) -> None:
    """Have large blocks given back when they are freed.

    Does nothing without glibc, or where the environment sets its allocator (``MALLOC_*``, ``GLIBC_TUNABLES``).

    By default glibc takes blocks of up to 32 MiB from its heap once one of that size was freed. A small block that
    outlives its large neighbours then holds them all: each large prompt left a part of itself behind.
    """
    import ctypes  # noqa: PLC0415  # the same: `pool attach` asks for no allocator

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    is_set = "glibc.malloc." in env.get("GLIBC_TUNABLES", "") or any(name.startswith("MALLOC_") for name in env)
    if mallopt is None or is_set:
        return
    for option, value in ((_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _LARGE_BYTES), (_ARENA_MAX, _ARENAS)):
        mallopt(option, value)
