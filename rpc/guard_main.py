"""The guard process: outlives a supervisor that is killed, and kills its workers' processes.

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
    # Bare packages: an ``__init__.py`` may import what the guard does not have.
    for room in ("rpc", "wire"):
        package = types.ModuleType(room)
        package.__path__ = [str(Path(__file__).parents[1] / room)]
        sys.modules[room] = package

from rpc.cgroup import Cgroup
from rpc.sweep import ProcessSweep

CLEAN_SHUTDOWN = b"q"
"""Written by a supervisor that has stopped its workers itself."""

IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager sends to every process; the guard stays."""

_KILL_TIMEOUT = 10.0  # seconds that those it found get to die: milliseconds, unless the kernel holds them
_SWEEP_TIMEOUT = 60.0  # seconds until nothing new is waited for
_MIN_PAUSE = 0.05  # seconds between two looks while a process holds the pipe, doubled each time
_MAX_PAUSE = 1.0
_FINAL_PAUSES = (0.05, 0.15)  # seconds between the looks afterwards


def wait_for_supervisor_exit(supervisor: int) -> bool:
    """Block until the supervisor is gone; True if it stopped in order.

    The pipe alone would do if only the supervisor held its other end; a process that a library has forked off it may
    hold it too, hence the pidfd.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with suppress(OSError, AttributeError):  # gone already, or a platform without pidfds: the pipe shows it
        poll.register(os.pidfd_open(supervisor), select.POLLIN)
    if os.getppid() == supervisor:  # asked after the pidfd was opened: so it is the supervisor's
        poll.poll()
    os.set_blocking(0, False)
    try:
        return os.read(0, 1) == CLEAN_SHUTDOWN
    except BlockingIOError:
        return False  # dead without a word, though a process still holds the pipe


def sweep(instance: str, cgroup: Cgroup | None) -> bool:
    """Kill all that belongs to the instance; True if nothing is left. Standard input is the pipe to the supervisor.

    A supervisor that is killed while it spawns leaves a child that carries the marker only once it has executed its
    program. Nearly until then that child holds the other end of the pipe as the supervisor did: as long as a process
    holds it, there is another look. It closes what it has inherited a moment before, hence the looks afterwards.
    """
    process_sweep = ProcessSweep(f"{instance}:")
    deadline = time.monotonic() + _SWEEP_TIMEOUT
    pause, settled = _MIN_PAUSE, 0
    while True:
        is_held = not _is_pipe_closed(0.0)  # asked before the look
        if cgroup is not None:
            cgroup.kill()
        left = process_sweep.kill_all(_KILL_TIMEOUT).left
        if not left and not is_held:
            if settled == len(_FINAL_PAUSES):
                break
            time.sleep(_FINAL_PAUSES[settled])
            settled += 1
        elif time.monotonic() >= deadline:
            break
        else:
            _is_pipe_closed(pause)
            pause, settled = min(_MAX_PAUSE, 2 * pause), 0
    return not left and (cgroup is None or (cgroup.wait_empty(_KILL_TIMEOUT) and cgroup.remove()))


def _is_pipe_closed(pause: float) -> bool:
    """Wait for the end of the pipe at standard input, ``pause`` seconds at most; whether all writers have closed it."""
    poll = select.poll()
    poll.register(0, 0)  # the kernel reports an end also without a request for events
    return any(what & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, what in poll.poll(pause * 1000))


def main(instance: str, supervisor: str, cgroup: str = "") -> int:
    """Wait, sweep, and answer by the exit code whether nothing is left."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if wait_for_supervisor_exit(int(supervisor)):
        return 0
    return 0 if sweep(instance, Cgroup(Path(cgroup)) if cgroup else None) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
