"""Where the control socket of a supervisor lies, and the directories around it."""

import hashlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from doors.data_dir_lock import read_lock_holder
from errors import UsageError

MAX_SOCKET_PATH_BYTES = 107
"""``sun_path`` of Linux holds 108 bytes, the last one a NUL."""


def resolve_socket(flag: str | None, env: Mapping[str, str], configured: str | None, data_dir: Path) -> Path:
    """Where the supervisor of ``data_dir`` listens: flag, ``$POOL_SOCKET``, settings, runtime or data directory.

    The same inputs give the same path to ``pool run``, which binds there, and to every command that connects. An empty
    text counts as absent. Raises UsageError for a path that no socket can have.
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
        return Path(runtime) / "pool" / f"{_digest(data_dir)}.sock"
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


def _digest(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
