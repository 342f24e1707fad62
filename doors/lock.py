"""The lock of a data directory: one supervisor at a time, freed by the kernel when its holder dies in whatever way."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from doors.paths import make_private_dir
from errors import PoolError, UsageError
from wire.framing import DECODE_ERRORS

__all__ = ["AlreadyRunning", "DataDirLock", "Holder", "find_supervisor", "read_holder"]

_LOCK_NAME = "supervisor.lock"
_MAX_RECORD_BYTES = 64 * 1024


class AlreadyRunning(PoolError):
    """Another supervisor serves this data directory, or listens on this socket."""

    code: ClassVar[str] = "already_running"


class Holder(msgspec.Struct, frozen=True):
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

    def __init__(self, data_dir: Path, socket: Path) -> None:
        make_private_dir(data_dir)
        self._fd = _open_lock(data_dir / _LOCK_NAME)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise _already_running(data_dir) from None
        try:
            self._write(msgspec.json.encode(Holder(os.getpid(), str(socket))))
        except OSError as exc:
            os.close(self._fd)
            raise UsageError(f"cannot write to the data directory {data_dir}: {exc.strerror}") from exc

    def close(self) -> None:
        """Give the directory back."""
        if self._fd >= 0:
            self._write(b"")
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _write(self, record: bytes) -> None:
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, record, 0)


def read_holder(data_dir: Path) -> Holder | None:
    """Who last took the directory's lock, alive or not; None when nobody has, or when it was given back."""
    try:
        with (data_dir / _LOCK_NAME).open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_RECORD_BYTES), type=Holder)
    except (OSError, *DECODE_ERRORS):
        return None  # a courtesy to people and a hint to clients; the lock itself never depends on it


def find_supervisor(expected: Path, data_dir: Path) -> Path:
    """The socket to connect to: the expected one, or, where there is none, the one the directory's holder names.

    They differ when the supervisor was started with another environment, say without a runtime directory.
    """
    if expected.exists():
        return expected
    holder = read_holder(data_dir)
    return expected if holder is None else Path(holder.socket)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise UsageError(f"cannot write to the data directory: {path}: {exc.strerror}") from exc


def _already_running(data_dir: Path) -> AlreadyRunning:
    holder = read_holder(data_dir)
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
