"""Runs ``pool run`` in this process with a wall clock and a fork that somebody else can tamper with.

    python -m stress.tampered_supervisor [any program] -m cli run --data-dir DIR ...

The monotonic clock is nobody's to set, so it stays as it is; workers have the real wall clock.
"""

import errno
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from stress.tampering import Tampering

__all__ = ["WRAPPER", "main"]

WRAPPER = (sys.executable, "-P", "-m", "stress.tampered_supervisor")
_MODULE = "cli"


def _tamper(tampering: Tampering) -> None:
    """Before anything of the supervisor is imported: some of it takes hold of the clock when it is."""
    real = time.time

    def moved() -> float:
        return real() + tampering.clock_offset

    def moved_ns() -> int:
        return int(moved() * 1e9)

    def refuse(event: str, _arguments: Any) -> None:
        if event == "subprocess.Popen" and tampering.no_processes:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    time.time, time.time_ns = moved, moved_ns
    sys.addaudithook(refuse)


def main() -> None:
    """Never returns normally: the command line ends the process with its exit code."""
    try:
        at = sys.argv.index(_MODULE)
        data_dir = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    except (ValueError, IndexError):
        sys.exit(f"give a command with `-m {_MODULE} run --data-dir DIR`")
    _tamper(Tampering.of(data_dir))
    sys.argv = [_MODULE, *sys.argv[at + 1 :]]
    runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
