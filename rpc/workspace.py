"""Files of a worker's workspace, read for others: regular ones only, bounded, and none that lies outside it."""

import errno
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import trio

from wire.files import open_regular

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


async def fetch_workspace_file(root: str, name: str, limit: int, limiter: trio.CapacityLimiter) -> bytes:
    """``read_workspace_file`` in a thread, which is left behind where the caller is cancelled.

    A thread that hangs in a file system keeps its place in ``limiter``.
    """
    read = partial(read_workspace_file, Path(root), name, limit)
    return await trio.to_thread.run_sync(read, limiter=limiter, abandon_on_cancel=True)


def read_workspace_file(root: Path, name: str, limit: int) -> bytes:
    """At most the first ``limit`` bytes of the file that ``name`` means in ``root``; blocks.

    Links are followed where they lead to a file inside. Raises OSError, ValueError for an impossible path.
    """
    file = _open(root, name)
    with os.fdopen(file, "rb") as opened:
        return opened.read(limit)


def _open(root: Path, name: str) -> int:
    """Open what the path leads to, name by name: what is exchanged for a link meanwhile is refused."""
    top = os.path.realpath(root, strict=True)
    found = Path(os.path.realpath(Path(top) / name, strict=True))
    if not found.is_relative_to(top):
        raise PermissionError(errno.EACCES, "it lies outside the workspace", name)
    *above, last = found.relative_to(top).parts or (".",)
    with ExitStack() as opened:
        directory = None
        for part in (top, *above):
            directory = os.open(part, _DIRECTORY, dir_fd=directory)
            opened.callback(os.close, directory)
        return open_regular(Path(last), os.O_RDONLY, follow=False, within=directory)
