"""Paths in profiles: two spellings of one place become one text, so that they share their workers."""

import os
from pathlib import Path

from errors import UsageError

__all__ = ["expand_home", "is_uri_like", "resolve_cwd", "resolve_resource"]


def resolve_cwd(path: str) -> str:
    """The working directory absolute, ``~`` expanded, symbolic links resolved; it need not exist yet."""
    if "\0" in path:
        raise UsageError(f"{path[:80]!r} holds a NUL character; it is no path")
    return os.path.realpath(expand_home(path))


def resolve_resource(name: str, cwd: str) -> str:
    """A skill, extension, template or directory as an absolute path; a URI-like name is left alone.

    A relative path starts at ``cwd``, where the worker itself would look. Symbolic links stay: what a resource is
    called can be part of its meaning, and a link such as ``current`` must outlive a change of its target. ``..`` stays
    for the same reason: behind a link it is not the parent that the text shows.
    """
    return name if is_uri_like(name) else str(Path(cwd) / expand_home(name))


def is_uri_like(name: str) -> bool:
    """Whether a resource is named otherwise than by path: ``npm:x``, ``git:host/x``, ``https://x``, ``git@host:x``."""
    head, colon, _ = name.partition(":")
    return bool(colon and head) and "/" not in head and not head.startswith(("~", "."))


def expand_home(path: str) -> str:
    """The path with a leading ``~`` or ``~user`` replaced, where that home is known."""
    return os.path.expanduser(path)  # noqa: PTH111  # Path.expanduser raises where HOME is unknown; this leaves the text
