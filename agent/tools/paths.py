"""Paths confined to the working directory, opened so that no link can lead out of it; and what a file's bytes are.

A path is resolved, symbolic links included, and must lie in the confining directory. The resolved path is then opened
one component at a time, each relative to an open directory and following no link: a component that is replaced by a
link in between makes the call fail.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import trio

from agent.tools.base import ToolContext, ToolError
from agent.tools.names import escape_name, unescape_name
from wire.entries import OUTPUTS_SUFFIX

MAX_PATH = 4096
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class ConfinedPath(NamedTuple):
    """A path that may be used: ``names`` lead from the real directory ``root`` to it, none of them a link (yet)."""

    root: str
    names: tuple[str, ...]
    requested: str
    """As the model gave it, printable."""

    @property
    def path(self) -> str:
        """The real path."""
        return str(Path(self.root, *self.names))

    def relative_to(self, directory: str) -> str:
        """The shortest path the model can use from ``directory``; ``.`` for itself."""
        path = Path(self.path)
        return str(path.relative_to(directory) if path.is_relative_to(directory) else path)


def resolve_path(context: ToolContext, path: str, *, reading: bool = True) -> ConfinedPath:
    """Where ``path`` leads from the working directory; ``~`` is the home directory. Raises ToolError.

    For ``reading``, the directory that holds the conversation's full outputs is open as well, and what else may be
    read. Outputs of other conversations never are.
    """
    _check_syntax(path)
    if not reading and path.endswith("/"):
        raise ToolError(f"path: {escape_name(path)} ends like a directory; a file is wanted", "validation")
    real = Path(os.path.realpath(_absolute_path(context, path)))
    is_output = any(name.endswith(OUTPUTS_SUFFIX) for name in real.parts)
    if is_output and not (reading and context.outputs and real.is_relative_to(context.outputs)):
        raise ToolError(f"path: {escape_name(path)} lies where the outputs of a conversation are kept", "validation")
    if not reading:
        _reject_protected(context, path, real)
    roots = [context.cwd, *(root for root in (context.outputs, *context.readable) if reading and root)]
    for root in ["/"] if context.allow_outside else roots:
        if real.is_relative_to(root):
            return ConfinedPath(root, real.relative_to(root).parts, escape_name(path))
    raise ToolError(
        f"path: {escape_name(path)} lies outside the working directory {escape_name(context.cwd)}",
        "validation",
        recommendations=["Use a path inside the working directory; links that lead out of it are not followed."],
    )


def _reject_protected(context: ToolContext, path: str, real: Path) -> None:
    if any(real.is_relative_to(place) for place in context.protected):
        raise ToolError(
            f"path: {escape_name(path)} belongs to the hooks or skills of this agent, which its tools may not change",
            "denied",
            recommendations=["Leave it as it is; ask the user to change it."],
        )


async def resolve_path_in_thread(context: ToolContext, path: str, *, reading: bool = True) -> ConfinedPath:
    """The same for the event loop, which no slow disk may hold up."""
    return await trio.to_thread.run_sync(lambda: resolve_path(context, path, reading=reading), abandon_on_cancel=True)


def _absolute_path(context: ToolContext, path: str) -> str:
    """The path to resolve; an escaped name is undone where no file has it."""
    given = os.path.join(context.cwd, _with_home(path, context.environment))  # noqa: PTH118 - keeps names as they are
    undone = None if os.path.lexists(given) else unescape_name(path)
    if undone is not None:
        other = os.path.join(context.cwd, undone)  # noqa: PTH118 - the same
        if os.path.lexists(other):
            return other
    return given


def _check_syntax(path: str) -> None:
    reason = None
    if not path:
        reason = "is empty"
    elif "\0" in path:
        reason = "holds a NUL character"
    elif len(path) > MAX_PATH:
        reason = f"has {len(path)} characters, more than {MAX_PATH}"
    elif any("\ud800" <= char <= "\udfff" for char in path):
        reason = "holds half of a surrogate pair, which is no character"
    if reason is not None:
        raise ToolError(f"path: {escape_name(path[:100])!r} {reason}", "validation")


def _with_home(path: str, environment: dict[str, str]) -> str:
    home = environment.get("HOME", "")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    return path


@contextmanager
def open_parent(place: ConfinedPath, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The open directory that holds the place, and the place's name in it; ``make``: with what is missing made.

    Raises OSError, and ToolError for the confining directory itself, which no tool may read or replace as a file.
    """
    if not place.names:
        raise ToolError(f"path: {place.requested} is a directory, not a file", "validation")
    descriptor = _descend(place.root, place.names[:-1], make=make)
    try:
        yield descriptor, place.names[-1]
    finally:
        os.close(descriptor)


def open_directory(place: ConfinedPath) -> int:
    """A descriptor of the directory, to be closed by the caller. Raises OSError."""
    return _descend(place.root, place.names, make=False)


def _descend(root: str, names: tuple[str, ...], *, make: bool) -> int:
    descriptor = os.open(root, _DIRECTORY)
    for name in names:
        try:
            below = _open_subdirectory(descriptor, name, make=make)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _open_subdirectory(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process has just made it
        os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def open_regular(place: ConfinedPath) -> tuple[int, os.stat_result]:
    """A descriptor for reading (to be closed by the caller) and its status. Never waits for a pipe or a device.

    Raises OSError, and ToolError when it is no regular file.
    """
    with open_parent(place) as (parent, name):
        _reject_irregular(place, os.stat(name, dir_fd=parent, follow_symlinks=False))
        descriptor = os.open(name, _REGULAR, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        _reject_irregular(place, status)  # again: another file may have come in its place
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _reject_irregular(place: ConfinedPath, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"path: {place.requested} is {file_kind(status)}, not a file", "validation")


def file_kind(status: os.stat_result) -> str:
    """What a file is, in words."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFLNK: "a symbolic link that cannot be followed",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(status.st_mode), "a special file")


_ADVICE = {
    errno.ENOENT: "Use ls or find to see what there is.",
    errno.ENOTDIR: "A part of the path is a file, or a link that is not followed.",
    errno.ELOOP: "Links made during the call are not followed.",
    errno.ENAMETOOLONG: "A single name may have 255 bytes.",
}


@contextmanager
def tool_errors(verb: str, place: ConfinedPath) -> Iterator[None]:
    """Tell what the system refuses (OSError) as the call's failure: ``cannot read x: No such file or directory``."""
    try:
        yield
    except OSError as exc:
        advice = _ADVICE.get(exc.errno or 0)
        reason = exc.strerror or type(exc).__name__
        message = f"cannot {verb} {place.requested}: {reason}"
        raise ToolError(message, recommendations=[advice] if advice else []) from exc


SAMPLE_BYTES = 8192


def image_type(head: bytes) -> str | None:
    """The MIME type of an image in a format that models take, by its content and not its name."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def looks_binary(head: bytes) -> bool:
    """Whether it is no UTF-8 text: it has a NUL, or more than a tenth of it are controls or undecodable."""
    if b"\0" in head:
        return True
    text = head[:SAMPLE_BYTES].decode(errors="replace").removesuffix("\ufffd")  # the sample may end within a character
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\v\b\x1b"))
    return odd > 0.1 * len(text)
