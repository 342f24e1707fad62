"""Where the control socket lies: the order of places to look, and what a place must be like to be trusted."""

import hashlib
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from errors import UsageError

__all__ = [
    "MAX_SOCKET_PATH_BYTES",
    "check_socket_path",
    "is_listened_to",
    "make_private_dir",
    "place_socket",
    "resolve_socket",
]

MAX_SOCKET_PATH_BYTES = 107
"""``sun_path`` of Linux holds 108 bytes, the last one a NUL."""


def resolve_socket(flag: str | None, env: Mapping[str, str], configured: str | None, data_dir: Path) -> Path:
    """Where the supervisor of ``data_dir`` listens: flag, ``$POOL_SOCKET``, settings, runtime or data directory.

    The same inputs give the same path to ``pool run``, which binds there, and to every command that connects. An empty
    text counts as absent. Raises UsageError for a path that no socket can have.
    """
    path = place_socket(flag, env, configured, data_dir)
    check_socket_path(path)
    return path


def place_socket(flag: str | None, env: Mapping[str, str], configured: str | None, data_dir: Path) -> Path:
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


def make_private_dir(path: Path) -> None:
    """Make the directory (mode 0700) unless it is there; raise UsageError when others could replace what lies in it.

    The mode of an existing directory is its owner's business, as long as it is not open to all without the sticky bit.
    Its owner must be ourselves or root, whoever we are: anybody else could be waiting for what is put there.
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


def is_listened_to(path: Path) -> bool:
    """Whether somebody accepts connections at this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _digest(data_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
