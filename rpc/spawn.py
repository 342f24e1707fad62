"""Starting a worker: its complete environment, its pipes, and clear words for everything that can go wrong.

``subprocess.Popen`` on the calling thread, without ``preexec_fn``: it then uses vfork, which costs 0.4 ms however
large the supervisor is. No shell, a session of its own, umask 077.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from errors import WorkerStartFailed
from rpc.cgroup import raise_oom_score
from rpc.children import Child
from rpc.rlimit_mark import marking_children
from rpc.settings import RpcSettings
from wire.procfs import MARKER_VARIABLE

OUT_OF_RESOURCES = {
    errno.EMFILE: "the supervisor has no file descriptor left; raise `ulimit -n` or lower `max` in [pool]",
    errno.ENFILE: "the machine has no file handle left",
    errno.EAGAIN: "the limit of processes is reached; raise `ulimit -u` (or the container's pids limit) or lower `max`",
    errno.ENOMEM: "the machine has no memory left for another process",
}
"""Why no process can be started, by errno, and what to do."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to start. ``env`` is the complete environment (``worker_environment`` builds it); ``cwd`` is absolute.

    ``marker`` is ``<instance>:<worker_id>`` and stands in ``env`` too, so that every descendant inherits it.
    ``log_path`` takes the worker's stderr, line by line; None keeps only the tail in memory. ``agent``: the name of its
    definition, for people. ``secrets``: values of ``env`` that are hidden in it. ``may_be_wrapper``: the program may
    exit and leave the worker to a process that it has started (``rpc.wrapper_watch``).
    """

    worker_id: str
    marker: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    log_path: Path | None = None
    agent: str = ""
    secrets: tuple[str, ...] = ()
    may_be_wrapper: bool = False

    def __repr__(self) -> str:
        # Values of environment variables may be secret, arguments may hold whole system prompts.
        return f"WorkerSpec({self.worker_id} {self.argv[:1]} cwd={self.cwd})"


def worker_environment(
    settings: RpcSettings,
    base_env: Mapping[str, str],
    profile_env: Iterable[tuple[str, str]],
    marker: str,
) -> dict[str, str]:
    """The whole environment of a worker: what the settings let through, the profile's own variables, the marker.

    The marker comes first, where a search for it ends soonest, and cannot be overridden.
    """
    passed = {name: base_env[name] for name in settings.env_passthrough if name in base_env}
    return {MARKER_VARIABLE: marker} | passed | dict(profile_env) | {MARKER_VARIABLE: marker}


class SpawnedProcess(NamedTuple):
    """A running child and our ends of its pipes, all non-blocking."""

    popen: Child
    stdin: int
    stdout: int
    stderr: int


def start_process(spec: WorkerSpec) -> SpawnedProcess:
    """Start ``spec``; blocks for about half a millisecond.

    Raises WorkerStartFailed, with nothing left open and no child left behind.
    """
    opened: list[int] = []
    try:
        pipes = [_pipe(opened) for _ in range(3)]
        (child_in, our_in), (our_out, child_out), (our_err, child_err) = pipes
        with marking_children(spec.marker):
            popen = subprocess.Popen(
                spec.argv,
                env=dict(spec.env),
                cwd=spec.cwd,
                stdin=child_in,
                stdout=child_out,
                stderr=child_err,
                umask=0o077,
                start_new_session=True,
                bufsize=0,
            )
    except (OSError, ValueError, IndexError) as exc:
        _close(opened)
        raise _start_error(spec, exc) from exc
    raise_oom_score(popen.pid)
    _close([child_in, child_out, child_err])
    for fd in (our_in, our_out, our_err):
        os.set_blocking(fd, False)
    return SpawnedProcess(popen, our_in, our_out, our_err)


def watch_error(spec: WorkerSpec, exc: OSError) -> WorkerStartFailed:
    """The error for a process that was started and cannot be watched."""
    has_ended = isinstance(exc, ProcessLookupError)  # and was reaped: of those that are forked an orphan reaper knows
    reason = "it has ended already" if has_ended else _transient_reason(exc) or exc.strerror
    return WorkerStartFailed(f"worker {spec.worker_id} could not be watched: {reason}", worker=spec.worker_id)


def _pipe(opened: list[int]) -> tuple[int, int]:
    pair = os.pipe()
    opened.extend(pair)
    return pair


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _start_error(spec: WorkerSpec, exc: Exception) -> WorkerStartFailed:
    """Say in one sentence what is missing and what to mend; ``details["refused"]`` where only a person can mend it."""
    passing = _transient_reason(exc)
    reason = passing or _permanent_reason(spec, exc)
    details = {"worker": spec.worker_id} if passing else {"worker": spec.worker_id, "refused": True}
    return WorkerStartFailed(f"worker {spec.worker_id} could not be started: {reason}", **details)


def _transient_reason(exc: Exception) -> str | None:
    """A want of the machine's that may be over at the next attempt."""
    if not isinstance(exc, OSError) or exc.errno not in OUT_OF_RESOURCES:
        return None
    return f"{OUT_OF_RESOURCES[exc.errno]} ({exc.strerror})"


def _permanent_reason(spec: WorkerSpec, exc: Exception) -> str:
    if not spec.argv:
        return "its command is empty; set `command` in its agent definition"
    if not isinstance(exc, OSError):
        return f"its command, working directory or environment cannot be passed on: {exc}"
    if exc.errno == errno.E2BIG:
        return "its arguments and environment together are too long for the kernel; shorten the system prompt"
    return _cwd_problem(spec) or _program_problem(spec) or f"{spec.argv[0]}: {exc.strerror or exc}"


def _cwd_problem(spec: WorkerSpec) -> str | None:
    directory = Path(spec.cwd)
    if not directory.exists():
        return f"its working directory {spec.cwd} does not exist"
    if not directory.is_dir():
        return f"its working directory {spec.cwd} is not a directory"
    if not os.access(directory, os.X_OK):
        return f"its working directory {spec.cwd} may not be entered"
    return None


def _program_problem(spec: WorkerSpec) -> str | None:
    program = spec.argv[0]
    mend = "mend `command` in its agent definition"
    if "/" not in program:
        path = dict(spec.env).get("PATH", os.defpath)
        if shutil.which(program, path=path) is None:
            found = shutil.which(program, mode=os.F_OK, path=path)
            missing = f"{found} is not executable" if found else f"there is no program {program!r} on PATH"
            return f"{missing}; {mend}"
        program = shutil.which(program, path=path) or program
    place = Path(spec.cwd, program)
    if not place.exists():
        return f"there is no program {place}; {mend}"
    if not place.is_file() or not os.access(place, os.X_OK):
        return f"{place} is not executable; {mend}"
    return f"{place} cannot be run: its interpreter (the #! line) is missing, or it is no program; {mend}"
