"""The guard process: outlives a supervisor that is killed, and takes its workers' processes along. See ``rpc.guard``.

Standard library only, started by path with ``python -I -S``: a few MB, nothing of ours but the modules below.
Arguments: the instance, the supervisor's pid, the instance's cgroup or nothing. Standard input is a pipe whose other
end only the supervisor holds.
"""

import os
import select
import signal
import sys
import time
import types
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    # A bare package in place of ``rpc/__init__.py``, which may import what the guard does not have.
    package = types.ModuleType("rpc")
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules["rpc"] = package

from rpc.cgroup import Cgroup
from rpc.hunt import Hunt

GOODBYE = b"q"
"""Written by a supervisor that has stopped its workers itself."""

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager sends to everybody; the guard is the one who stays."""

_SWEEP_TIME = 1.8  # of the two seconds after which nothing may be left
_SETTLE_TIMES = (0.0, 0.05, 0.15)  # seconds; see sweep


def wait_for_end(supervisor: int) -> bool:
    """Block until the supervisor is gone; True if it took its leave.

    The pipe alone would do if nobody else ever held its other end; a process forked off the supervisor by a library
    may, hence the pidfd beside it.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with suppress(OSError, AttributeError):  # gone already, or a platform without pidfds: the pipe tells
        poll.register(os.pidfd_open(supervisor), select.POLLIN)
    if os.getppid() == supervisor:  # asked after the pidfd was opened: so it is the supervisor's
        poll.poll()
    os.set_blocking(0, False)
    try:
        return os.read(0, 1) == GOODBYE
    except BlockingIOError:
        return False  # dead without a word, though somebody still holds the pipe


def sweep(instance: str, cgroup: Cgroup | None) -> bool:
    """Kill all that belongs to the instance; True if nothing is left.

    Three looks, all empty-handed at the end: a supervisor that is killed while it spawns leaves a child that carries
    the marker only once it has executed its program, a moment later.
    """
    prefix = f"{instance}:"
    hunt = Hunt(lambda marker: marker.startswith(prefix))
    deadline = time.monotonic() + _SWEEP_TIME
    left: tuple[int, ...] = ()
    for pause in _SETTLE_TIMES:
        select.poll().poll(pause * 1000)
        if cgroup is not None:
            cgroup.kill()
        left = hunt.kill_all(deadline).left
    return not left and (cgroup is None or (cgroup.wait_empty(deadline) and cgroup.remove()))


def main(instance: str, supervisor: str, cgroup: str = "") -> int:
    """Wait, sweep, and tell by the exit code whether nothing is left."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if wait_for_end(int(supervisor)):
        return 0
    return 0 if sweep(instance, Cgroup(Path(cgroup)) if cgroup else None) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
