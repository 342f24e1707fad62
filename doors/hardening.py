"""What a process that holds tokens and keys asks of the kernel before it reads them.

- No core dump of it, whoever would catch it, and none of what it starts, unless that raises its limit again.
- Nobody of the same user without rights of root's own may look into its memory or its environment: a worker that a
  model has taken over may be a child of it.
- Whatever it makes is its owner's alone, with any umask of whoever has started it.
"""

import os
import resource
import sys

__all__ = ["harden"]

_PR_SET_DUMPABLE = 4


def harden() -> None:
    """For good, and for this process only but for the limit and the umask, which children inherit."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform.startswith("linux"):
        import ctypes  # noqa: PLC0415  # some milliseconds, and only Linux has the call

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
