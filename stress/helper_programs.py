"""Helper programs of a run; standard library only, so that they start fast.

    python -m stress.helper_programs clean-up DATA_DIR FOLDER

Ends the supervisors of a run whose own process was killed, and removes its folder. It waits for the end of its stdin,
which the run holds open while it lives. A run that ends normally kills this process first, and keeps the folder if a
promise was broken. At the end of stdin every process started with ``--data-dir DATA_DIR`` gets SIGTERM, and after a
while SIGKILL; its workers end with it. Then ``FOLDER`` is removed. A parent-death signal (``PR_SET_PDEATHSIG``) would
not do: it comes at the end of the thread that has started the supervisor, and such threads are short-lived.

    python -m stress.helper_programs front-end SOCKET RUN SESSION TEXT

A front end to be killed. It sends one prompt, prints ``granted`` when the run has begun on a worker, and ``answered``
at its end; the exit code is 1 if the connection ends before.

    python -m stress.helper_programs take-pid PID

Takes the pid of a process that has died, and reports whether it is signalled. As soon as the pid is free it starts a
child with it (``clone3`` with ``set_tid``, which needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE), which lives until
stdin ends or a signal arrives. It prints a line ``there``, or the reason of its failure, with exit code 1; then ``let
alone`` or ``signalled``. Linux.
"""

import ctypes
import errno
import json
import os
import platform
import select
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

_COMMAND = (sys.executable, "-P", "-m", "stress.helper_programs")
CLEAN_UP, FRONT_END, TAKE_PID = ((*_COMMAND, name) for name in ("clean-up", "front-end", "take-pid"))
"""Start a program from any directory; its arguments follow."""
ANSWERED, GRANTED = "answered", "granted"
THERE, LET_ALONE, SIGNALLED = "there", "let alone", "signalled"


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# --- clean-up ---------------------------------------------------------------------------------------------------------

_GRACE = 40.0
"""Seconds for a graceful end, longer than the drain timeout."""
_POLL_SECONDS = 0.2
_QUIET_POLLS = 5
"""Polls in a row that must find no supervisor: one that was just forked has no command line yet."""


def _clean_up(data_dir: str, folder: str) -> int:
    os.setsid()  # a signal to the process group of the run does not end this
    while os.read(sys.stdin.fileno(), 1):
        pass
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


# --- front-end --------------------------------------------------------------------------------------------------------


def _ask_once(path: str, run: str, session: str, text: str) -> int:
    prompt = {"id": run, "method": "prompt", "params": {"run": run, "session": session, "text": text}}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(prompt).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message.get("id") == run:
                    _print_line(ANSWERED)
                    return 0
                if any(event["type"] == "run:start" for event in message["data"].get("events", ())):
                    _print_line(GRANTED)
    return 1


# --- take-pid ---------------------------------------------------------------------------------------------------------

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


def _take_pid(pid: int) -> int:
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


def main() -> int:
    """Run the program that the first argument names; its exit code."""
    match sys.argv[1:]:
        case ["clean-up", data_dir, folder]:
            return _clean_up(data_dir, folder)
        case ["front-end", path, run, session, text]:
            return _ask_once(path, run, session, text)
        case ["take-pid", pid]:
            return _take_pid(int(pid))
        case _:
            sys.exit("expected the name of a program with its arguments")


if __name__ == "__main__":
    sys.exit(main())
