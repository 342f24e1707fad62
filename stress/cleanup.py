"""Ends the supervisors of a run whose own process was killed, so that it could not, and removes its folder.

    python -m stress.cleanup DATA_DIR FOLDER

It waits for the end of its stdin, which the run holds open for as long as it lives, and kills it when all has gone
well. Whoever was started with ``--data-dir DATA_DIR`` is then told to end, and killed where that takes too long; their
workers end with them. Then nobody needs ``FOLDER`` any more; what is in it when a promise was broken is left by the run
itself, which has killed this before.

A signal of the kernel at the death of the parent (``PR_SET_PDEATHSIG``) would not do: it comes at the end of the thread
that has started the supervisor, and threads for such work come and go.
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
"""What starts it from any directory; its arguments follow."""
_GRACE = 40.0
"""Seconds for a good end, which is given its drain timeout."""
_POLL_SECONDS = 0.2
_QUIET_POLLS = 5
"""So often in a row nobody is to be found: one may have been forked and not have its command line yet."""


def main() -> int:
    """The exit code is always 0: no process is left to read it."""
    os.setsid()  # who ends the run with its whole group does not end this
    while os.read(sys.stdin.fileno(), 1):
        pass
    _, data_dir, folder = sys.argv
    _end_all(os.fsencode(data_dir))
    _remove(Path(folder))
    return 0


def _end_all(data_dir: bytes) -> None:
    began, told, calm = time.monotonic(), set[int](), 0
    while calm < _QUIET_POLLS:
        found = set(_supervisors_of(data_dir))
        calm = 0 if found else calm + 1
        is_late = time.monotonic() > began + _GRACE
        for pid in found if is_late else (found - told):
            _signal(pid, signal.SIGKILL if is_late else signal.SIGTERM, data_dir)
        told |= found
        time.sleep(_POLL_SECONDS)


def _remove(folder: Path) -> None:
    """Once more where somebody who is just ending has written to it meanwhile."""
    for _ in range(_QUIET_POLLS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_POLL_SECONDS)


def _supervisors_of(data_dir: bytes) -> Iterator[int]:
    """All but zombies, which have no command line any more."""
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
    """That very process, never one that has its pid now."""
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
