"""Tokens that a peer shows: where they are kept in files, and what can be one."""

import os
import stat
from pathlib import Path

from errors import UsageError

_LEAST_CHARS = 16
_MOST_BYTES = 4096


def read_token(path: Path) -> str:
    """The token in a file. Raises UsageError where it is none, or others may read or change it."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for its writer
                raise UsageError(f"the token file {path} is no regular file")
            text = file.read(_MOST_BYTES + 1)
    except OSError as exc:
        raise UsageError(f"cannot read the token file {path}: {exc.strerror}") from exc
    if status.st_uid not in (0, os.geteuid()):
        raise UsageError(f"the token file {path} belongs to another user, who knows what is in it")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"others may use the token file {path}; run: chmod 600 {path}")
    return checked_token(text.decode("utf-8", "replace").strip(), f"the token in {path}")


def checked_token(token: str, where: str) -> str:
    """The token. Raises UsageError that says where it is from, where it is none."""
    problem = token_problem(token)
    if problem is not None:
        raise UsageError(f"{where} {problem}")
    return token


def token_problem(token: str) -> str | None:
    """Why a text is no token: it could not be sent in a header, or could be guessed by trying. None = it is one."""
    if len(token) < _LEAST_CHARS:
        return f"is too short: a token has {_LEAST_CHARS} characters or more"
    if len(token) > _MOST_BYTES or not (token.isascii() and token.isprintable()) or " " in token:
        return f"is no token: it has visible ASCII characters without spaces, at most {_MOST_BYTES}"
    return None
