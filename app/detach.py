"""``pool run --detach``: a supervisor in the background, and whether it came to serve. And starting again in place."""

import os
import signal
import subprocess
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from doors.locations import make_private_dir
from errors import PoolError, UsageError
from wire.files import open_regular
from wire.log_file import LOG_DIR, SUPERVISOR_LOG, json_fields, log_path

READY_VARIABLE = "POOL_READY_FD"
"""Names the descriptor of a pipe that a supervisor writes to when it serves."""
_READY = b"ready"
_MAX_WORDS_BYTES = 64 * 1024
_SHOWN_LINES = 20


def start_detached(arguments: Sequence[str], data_dir: Path) -> int:
    """Start ``pool run`` with these arguments in a session of its own; its pid, once it serves.

    Its output goes to the supervisor's log. Raises PoolError with its last words where it ends before.
    """
    make_private_dir(data_dir)
    make_private_dir(data_dir / LOG_DIR)
    path = log_path(data_dir / LOG_DIR, SUPERVISOR_LOG)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as answer, os.fdopen(_open_log(path), "r+b", buffering=0) as log:
        begin = log.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[theirs],
            start_new_session=True,
            env={**os.environ, READY_VARIABLE: str(theirs)},
        )
        os.close(theirs)
        try:
            if answer.read() == _READY:
                return child.pid
        except BaseException:
            child.terminate()  # it was not waited for: no one knows of it
            raise
        code = child.wait()
        log.seek(begin)
        words = _last_words(log.read(_MAX_WORDS_BYTES).decode("utf-8", "replace"))
    kind = UsageError if code == _USAGE else PoolError
    raise kind(words or f"the supervisor ended with code {code} before it was ready; it said nothing")


_USAGE = 2


def _open_log(path: Path) -> int:
    try:
        return open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, follow=False)
    except OSError as exc:
        raise UsageError(f"cannot write {path}: {exc.strerror}") from exc


def _last_words(text: str) -> str:
    """What it said beside its log: the error it ended with, or the end of a traceback."""
    said = [line for line in text.splitlines() if line.strip() and json_fields(line) is None]
    if said and said[-1].startswith("pool: "):
        return said[-1].removeprefix("pool: ")
    return "\n".join(said[-_SHOWN_LINES:])


def take_ready_fd(env: MutableMapping[str, str]) -> int | None:
    """The descriptor to write to when this process serves, no longer in the environment; None where no one asks."""
    name = env.pop(READY_VARIABLE, "")
    if not (name.isascii() and name.isdigit()):
        return None
    try:
        os.set_inheritable(int(name), False)  # noqa: FBT003  # positional-only
    except OSError:
        return None  # it was inherited from further up
    return int(name)


def announce_ready(fd: int) -> None:
    """Tell who waits that this process serves."""
    try:
        os.write(fd, _READY)
    except BrokenPipeError:
        pass  # it was interrupted meanwhile
    finally:
        os.close(fd)


def start_again(*, ignores_hangup: bool) -> None:
    """Replace this process by the same command, as it was typed. The supervisor has ended, and holds nothing."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores_hangup else signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # no shell is wanted
