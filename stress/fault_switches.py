"""Runs ``pool run`` in this process with a wall clock and a fork that faults control from another process.

python -m stress.fault_switches [any program] -m cli run --data-dir DIR ...

A fault writes into a file that both processes map; the supervisor reads it each time it reads the clock or starts a
process. The monotonic clock cannot be set, so it stays; workers have the real wall clock.
"""

import errno
import mmap
import os
import runpy
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_SIZE = 16
_CLOCK_FORMAT = struct.Struct("d")
_NO_PROCESSES_OFFSET = _CLOCK_FORMAT.size


class FaultSwitches:
    """``clock_offset``: seconds that the wall clock is ahead of the real one. ``no_processes``: no fork succeeds."""

    @classmethod
    def open(cls, data_dir: Path) -> "FaultSwitches":
        """The switches of the supervisor on this data directory; the first of the two processes creates the file."""
        path = Path(f"{data_dir}.tampering")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(descriptor, _SIZE)
            return cls(mmap.mmap(descriptor, _SIZE))
        finally:
            os.close(descriptor)

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def clock_offset(self) -> float:
        """Seconds."""
        return float(_CLOCK_FORMAT.unpack_from(self._memory)[0])

    @clock_offset.setter
    def clock_offset(self, seconds: float) -> None:
        _CLOCK_FORMAT.pack_into(self._memory, 0, seconds)

    @property
    def no_processes(self) -> bool:
        """Whether starting a process fails with EAGAIN."""
        return bool(self._memory[_NO_PROCESSES_OFFSET])

    @no_processes.setter
    def no_processes(self, full: bool) -> None:
        self._memory[_NO_PROCESSES_OFFSET] = full


WRAPPER = (sys.executable, "-P", "-m", "stress.fault_switches")
_MODULE = "cli"
_STARTS = {"subprocess.Popen", "socket.sendmsg"}
"""What starts a process: itself, or by a request to the fork server, the only one with descriptors."""


def _patch_process(tampering: FaultSwitches) -> None:
    """Call before any import of the supervisor: some modules bind the clock when they are imported."""
    real = time.time

    def moved() -> float:
        return real() + tampering.clock_offset

    def moved_ns() -> int:
        return int(moved() * 1e9)

    def refuse(event: str, _arguments: Any) -> None:
        if event in _STARTS and tampering.no_processes:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    time.time, time.time_ns = moved, moved_ns
    sys.addaudithook(refuse)


def main() -> None:
    """Never return normally: the command line ends the process with its exit code."""
    try:
        at = sys.argv.index(_MODULE)
        data_dir = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    except (ValueError, IndexError):
        sys.exit(f"give a command with `-m {_MODULE} run --data-dir DIR`")
    _patch_process(FaultSwitches.open(data_dir))
    sys.argv = [_MODULE, *sys.argv[at + 1 :]]
    runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
