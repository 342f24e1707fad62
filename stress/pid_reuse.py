"""A process that takes the pid of one that has died, and reports whether it is signalled.

    python -m stress.pid_reuse PID

As soon as the pid is free it starts a child with it (``clone3`` with ``set_tid``, which needs CAP_SYS_ADMIN or
CAP_CHECKPOINT_RESTORE), which lives until stdin ends or a signal arrives. It prints a line ``there``, or the reason of
its failure; then ``let alone`` or ``signalled``. Linux, standard library only.
"""

import ctypes
import errno
import os
import platform
import select
import signal
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

COMMAND = (sys.executable, "-P", "-m", "stress.pid_reuse")
"""Starts it from any directory; its arguments follow."""
THERE, LET_ALONE, SIGNALLED = "there", "let alone", "signalled"

_CLONE3 = 435
"""The same number on every architecture that has the call."""
_ARGUMENTS = struct.Struct("11Q")
_CAPABILITIES = (21, 40)
"""CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE: either suffices."""
_PR_SET_PDEATHSIG = 1
_END_SIGNAL = signal.SIGRTMAX
_FORK_TIMEOUT = 30.0
_PAUSE = 0.005


def unavailable_reason() -> str:
    """Why this machine, or this user, cannot choose a pid; empty = it can."""
    if not sys.platform.startswith("linux"):
        return f"{platform.system()} has no way to choose a pid"
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    if any(int(effective, 16) >> bit & 1 for bit in _CAPABILITIES):
        return ""
    return "choosing a pid needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE"


def _fork_as(pid: int) -> int:
    """Fork into that pid: 0 in the child. Raises OSError, with EEXIST while the pid is taken."""
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = (ctypes.c_int * 1)(pid)
    arguments = _ARGUMENTS.pack(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1, 0)
    buffer = ctypes.create_string_buffer(arguments, len(arguments))
    made: int = libc.syscall(ctypes.c_long(_CLONE3), buffer, ctypes.c_size_t(len(arguments)))
    if made < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return made


def _fork_when_free(pid: int) -> int:
    """Poll, as no event reports a free pid; raises OSError after some seconds."""
    deadline = time.monotonic() + _FORK_TIMEOUT
    while True:
        try:
            return _fork_as(pid)
        except OSError as exc:
            if exc.errno != errno.EEXIST or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def _run_child() -> NoReturn:
    """Wait in the child for any signal, or the end of its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    heard = signal.sigwaitinfo(signal.valid_signals())
    os._exit(0 if (heard.si_signo, heard.si_pid) == (_END_SIGNAL, os.getppid()) else 1)


def _wait_unsignalled(child: int) -> bool:
    """Wait for the end of stdin or of the child; whether it was left without a signal.

    The child receives the farewell signal last, and reports by its exit code whether it was the only one.
    """
    select.select([sys.stdin.fileno(), os.pidfd_open(child)], [], [])
    os.kill(child, _END_SIGNAL)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return status == 0


def main() -> int:
    """The exit code: 0, or 1 where it could not be done."""
    pid = int(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        child = _fork_when_free(pid)
    except OSError as exc:
        _print_line(f"pid {pid}: {exc.strerror}")
        return 1
    if child == 0:
        _run_child()
    _print_line(THERE)
    _print_line(LET_ALONE if _wait_unsignalled(child) else SIGNALLED)
    return 0


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
