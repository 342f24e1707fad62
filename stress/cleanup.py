"""Ends the supervisors of a run whose own process was killed, and removes its folder.

    python -m stress.cleanup DATA_DIR FOLDER

It waits for the end of its stdin, which the run holds open while it lives. A run that ends normally kills this process
first, and keeps the folder if a promise was broken. At the end of stdin every process started with ``--data-dir
DATA_DIR`` gets SIGTERM, and after a while SIGKILL; its workers end with it. Then ``FOLDER`` is removed.

A parent-death signal (``PR_SET_PDEATHSIG``) would not do: it comes at the end of the thread that has started the
supervisor, and such threads are short-lived.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "stress.cleanup")
"""Starts it from any directory; its arguments follow."""
_GRACE = 40.0
"""Seconds for a graceful end, longer than the drain timeout."""
_POLL_SECONDS = 0.2
_QUIET_POLLS = 5
"""Polls in a row that must find no supervisor: one that was just forked has no command line yet."""


def main() -> int:
    """Always 0: no process is left to read the exit code."""
    os.setsid()  # a signal to the process group of the run does not end this
    while os.read(sys.stdin.fileno(), 1):
        pass
    _, data_dir, folder = sys.argv
    _end_all(os.fsencode(data_dir))
    _remove(Path(folder))
    return 0


def _end_all(data_dir: bytes) -> None:
    began, signalled, calm = time.monotonic(), set[int](), 0
    while calm < _QUIET_POLLS:
        found = set(_supervisors_of(data_dir))
        calm = 0 if found else calm + 1
        is_late = time.monotonic() > began + _GRACE
        for pid in found if is_late else (found - signalled):
            _signal(pid, signal.SIGKILL if is_late else signal.SIGTERM, data_dir)
        signalled |= found
        time.sleep(_POLL_SECONDS)


def _remove(folder: Path) -> None:
    """Try again while a process that is just ending writes to it."""
    for _ in range(_QUIET_POLLS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_POLL_SECONDS)


def _supervisors_of(data_dir: bytes) -> Iterator[int]:
    """Zombies are left out: they have no command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_supervisor_of(int(entry.name), data_dir):
            yield int(entry.name)


def _is_supervisor_of(pid: int, data_dir: bytes) -> bool:
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return (b"--data-dir", data_dir) in pairwise(words)


def _signal(pid: int, number: int, data_dir: bytes) -> None:
    """Signal that very process, never one that has reused its pid."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _is_supervisor_of(pid, data_dir):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


if __name__ == "__main__":
    sys.exit(main())
