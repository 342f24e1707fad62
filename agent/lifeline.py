"""Die with the supervisor, whatever state this process is in: the kernel sends SIGKILL when the parent's thread ends.

SIGKILL and no gentler signal, since a worker that was stopped by SIGSTOP acts on no other. Linux only; elsewhere the
end of stdin does the same for a worker that still runs.
"""

import ctypes
import os
import signal
import sys

__all__ = ["bind_to_parent"]

_PR_SET_PDEATHSIG = 1


def bind_to_parent(first_parent: int, expected: str | None = None) -> bool:
    """Ask for the signal; False when the parent is gone already, so that the signal will never come.

    ``first_parent`` is ``os.getppid()`` as early as possible; ``expected`` the supervisor's pid, where it passed one in
    the environment variable ``POOL_WORKER_PARENT`` (which no child of ours must inherit). A parent of pid 1 alone is
    no sign of an orphan: in a container the supervisor itself may be pid 1.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    parent = os.getppid()
    return parent == first_parent and expected in {None, "", str(parent)}
