"""Where a supervisor lives: private directories, its data directory with the lock on it, and its control socket."""

import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from errors import PoolError, UsageError
from wire.files import LOCK_NAME
from wire.framing import DECODE_ERRORS

_MAX_RECORD_BYTES = 64 * 1024


def make_private_dir(path: Path) -> None:
    """Make the directory (mode 0700) unless it is there; raise UsageError when others could replace what lies in it.

    The mode of an existing directory is its owner's business, as long as it is not open to all without the sticky bit.
    Its owner must be this user or root: any other could be listening there.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as exc:
        raise UsageError(f"cannot make the directory {path}: {exc.strerror}") from exc
    mode = status.st_mode
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f"the directory {path} belongs to another user ({status.st_uid}); chown it, or name one of your own"
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise UsageError(f"the directory {path} can be written by others; run: chmod go-w {path}")


class AlreadyRunning(PoolError):
    """Another supervisor serves this data directory, or listens on this socket."""

    code: ClassVar[str] = "already_running"


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a data directory: its process id and the control socket it serves."""

    pid: int
    socket: str


class DataDirLock:
    """Holds a data directory from construction to ``close``; a context manager.

    The lock belongs to the open file, not to the process: it ends with the last copy of the descriptor, and children
    get none, since Python opens files close-on-exec. The file itself stays: removing it would let two supervisors
    lock two files of the same name.

    Raises:
        AlreadyRunning: another supervisor holds it; the message names its pid and socket.
        UsageError: the directory cannot be made or written.
    """

    def __init__(self, data_dir: Path, control_socket: Path) -> None:
        make_private_dir(data_dir)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = self._sessions_fd = -1
        try:
            self._fd = os.open(data_dir / LOCK_NAME, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write(msgspec.json.encode(LockHolder(os.getpid(), str(control_socket))))
        except OSError as exc:
            if self._fd >= 0:
                os.close(self._fd)
            if isinstance(exc, BlockingIOError):
                raise _already_running(data_dir) from None
            raise UsageError(f"cannot write to the data directory {data_dir}: {LOCK_NAME}: {exc.strerror}") from exc
        try:
            self._sessions_fd = _lock_transcripts(data_dir)
        except PoolError:
            self.close()
            raise

    def close(self) -> None:
        """Give the directory back."""
        if self._fd >= 0:
            self._write(b"")
            os.close(self._fd)
            self._fd = -1
        if self._sessions_fd >= 0:
            os.close(self._sessions_fd)
            self._sessions_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write(self, record: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, record, 0)


def _lock_transcripts(data_dir: Path) -> int:
    """Hold the transcripts' directory too: in a copied data directory it may be a link to that of the original."""
    sessions = data_dir / "sessions"
    make_private_dir(sessions)
    descriptor = os.open(sessions, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        real = sessions.resolve()
        raise AlreadyRunning(f"another supervisor writes the transcripts in {real}; give {data_dir} its own") from None
    except OSError:  # a file system whose directories cannot be locked
        os.close(descriptor)
        return -1
    return descriptor


def read_lock_holder(data_dir: Path) -> LockHolder | None:
    """The last holder of the directory's lock, alive or not; None if there was none, or it released the lock."""
    try:
        with (data_dir / LOCK_NAME).open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_RECORD_BYTES), type=LockHolder)
    except (OSError, *DECODE_ERRORS):
        return None  # a courtesy to people and a hint to clients; the lock itself never depends on it


def _already_running(data_dir: Path) -> AlreadyRunning:
    holder = read_lock_holder(data_dir)
    if holder is None:
        return AlreadyRunning(
            f"another supervisor holds the data directory {data_dir}; stop it, or use another --data-dir"
        )
    return AlreadyRunning(
        f"the supervisor with pid {holder.pid} already serves the data directory {data_dir} "
        f"on {holder.socket}; stop it with `pool stop`, or use another --data-dir",
        pid=holder.pid,
        socket=holder.socket,
    )


# --- the control socket -----------------------------------------------------------------------------------------------

MAX_SOCKET_PATH_BYTES = 107
"""``sun_path`` of Linux holds 108 bytes, the last one a NUL."""


def resolve_socket(flag: str | None, env: Mapping[str, str], configured: str | None, data_dir: Path) -> Path:
    """Where the supervisor of ``data_dir`` listens: flag, ``$POOL_SOCKET``, settings, runtime or data directory.

    An empty text counts as absent. Raises UsageError for a path that no socket can have.
    """
    path = socket_path(flag, env, configured, data_dir)
    check_socket_path(path)
    return path


def socket_path(flag: str | None, env: Mapping[str, str], configured: str | None, data_dir: Path) -> Path:
    """The same without looking at the path's length."""
    named = flag or env.get("POOL_SOCKET") or configured
    if named:
        return Path(named).expanduser().absolute()
    if runtime := env.get("XDG_RUNTIME_DIR"):
        digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
        return Path(runtime) / "pool" / f"{digest}.sock"
    return data_dir / "control.sock"


def check_socket_path(path: Path) -> None:
    """Raise UsageError when the kernel would refuse the path for its length."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH_BYTES:
        raise UsageError(
            f"the socket path {path} has {size} bytes and sockets allow {MAX_SOCKET_PATH_BYTES}; "
            "name a shorter one with --socket, $POOL_SOCKET or `socket` in the settings"
        )


def is_listening(path: Path) -> bool:
    """Whether a process accepts connections at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def find_supervisor_socket(expected: Path, data_dir: Path) -> Path:
    """The socket to connect to: the expected one, or, where there is none, the one the directory's holder names.

    They differ when the supervisor was started with another environment, say without a runtime directory.
    """
    if expected.exists():
        return expected
    holder = read_lock_holder(data_dir)
    return expected if holder is None else Path(holder.socket)
