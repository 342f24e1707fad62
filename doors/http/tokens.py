"""Tokens: their three scopes and the right to approve, where they are read from, and checks of ``[http]``."""

import os
import stat
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from doors.http.settings import HttpSettings, HttpToken, host_name, is_origin, parse_bind
from errors import UsageError
from wire.files import replace_file


class Scope(IntEnum):
    """From looking to everything."""

    READ = 1
    WRITE = 2
    ADMIN = 3


_READ_METHODS = (
    *("ping", "status", "metrics", "agent.wait", "explain", "route", "events.peek", "subscribe", "unsubscribe"),
    *("sessions.list", "sessions.get", "sessions.options", "sessions.history"),
    *("agents.list", "workers.list", "waiting.list"),
    *("heartbeat.status", "cron.list", "cron.get", "approvals.list", "approvals.show"),
)
_WRITE_METHODS = (
    *("agent", "prompt", "steer", "abort", "delegate", "process", "sessions.reset", "sessions.patch", "events.inject"),
    *("acquire", "release", "decide", "ui.respond", "heartbeat.run"),
)

METHOD_SCOPES = {**dict.fromkeys(_READ_METHODS, Scope.READ), **dict.fromkeys(_WRITE_METHODS, Scope.WRITE)}
"""What a method needs; one that is not named needs ``ADMIN``."""

APPROVAL_METHODS = frozenset({"decide", "ui.respond"})
"""Methods that need the right to approve instead of a scope."""


def scope_of(method: str) -> Scope:
    """The scope that a method needs, of those that are not for approvals."""
    return METHOD_SCOPES.get(method, Scope.ADMIN)


TOKEN_FILE = "http-token"  # noqa: S105  # a file's name
TOKEN_VARIABLE = "POOL_HTTP_TOKEN"  # noqa: S105  # a variable's name
PRIMARY_TOKEN_NAME = "http"  # noqa: S105  # a name
"""What the token that may do everything is called."""
_LEAST_CHARS = 16
_MOST_BYTES = 4096


class TokenGrant(NamedTuple):
    """A token and what it may do."""

    name: str
    token: str
    scope: Scope
    approvals: bool


class TokenSource(NamedTuple):
    """Where the first token comes from, in words, and its file where it is one."""

    description: str
    file: Path | None = None
    is_made: bool = False
    """Whether the file is the supervisor's own, which is made when it is not there."""


def find_token_source(settings: HttpSettings, env: Mapping[str, str], data_dir: Path) -> TokenSource:
    """Environment, settings, the file that the settings name, else the one in the data directory."""
    if env.get(TOKEN_VARIABLE):
        return TokenSource(f"${TOKEN_VARIABLE}")
    if settings.token:
        return TokenSource("http.token in the settings")
    if settings.token_file:
        return TokenSource(settings.token_file, Path(settings.token_file))
    return TokenSource(str(data_dir / TOKEN_FILE), data_dir / TOKEN_FILE, is_made=True)


def load_grants(settings: HttpSettings, env: Mapping[str, str], data_dir: Path) -> list[TokenGrant]:
    """Every token with what it may do, the first one first; it is made (32 bytes, mode 0600) where none is set.

    The settings have been checked. Raises UsageError for one in the environment or in a file that is no token, for a
    file that cannot be read, or can be by others too, and where two are the same.
    """
    grants = [TokenGrant(PRIMARY_TOKEN_NAME, _load_primary_token(settings, env, data_dir), Scope.ADMIN, approvals=True)]
    for name, each in settings.tokens.items():
        token = each.token or read_token(Path(each.token_file))
        scope = Scope[each.scope.upper()]
        grants.append(TokenGrant(name, token, scope, each.approvals or scope is Scope.ADMIN))
    if len({grant.token for grant in grants}) < len(grants):
        raise UsageError("two tokens of [http] are the same; each name needs its own")
    return grants


def _load_primary_token(settings: HttpSettings, env: Mapping[str, str], data_dir: Path) -> str:
    place = find_token_source(settings, env, data_dir)
    if place.file is None:
        return _validated(env.get(TOKEN_VARIABLE) or settings.token, place.description)
    if place.is_made and not os.path.lexists(place.file):  # a dangling link is there, too
        import secrets  # noqa: PLC0415  # commands that only look at the settings need not pay for it

        replace_file(place.file, f"{secrets.token_urlsafe(32)}\n".encode())
    return read_token(place.file)


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
    return _validated(text.decode("utf-8", "replace").strip(), f"the token in {path}")


def _validated(token: str, where: str) -> str:
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


_SettingPath = tuple[str | int, ...]


def http_problems(settings: HttpSettings) -> Iterator[tuple[_SettingPath, str]]:
    """Every problem: the path of its setting, as ``("http", "bind")``, and what is wrong with it."""
    if settings.bind:
        try:
            parse_bind(settings.bind)
        except UsageError as exc:
            yield ("http", "bind"), exc.message
    if settings.token and settings.token_file:
        yield ("http", "token_file"), "there is a token too; keep one of them"
    elif settings.token and (problem := token_problem(settings.token)):
        yield ("http", "token"), problem
    seen = {settings.token} - {""}
    for name, each in settings.tokens.items():
        place = ("http", "tokens", name)
        if name == PRIMARY_TOKEN_NAME:
            yield place, "is what the token that may do everything is called; choose another name"
        yield from (((*place, *path), text) for path, text in _token_table_problems(each, seen))
        seen.add(each.token)
    yield from _allowlist_problems(settings)


def _allowlist_problems(settings: HttpSettings) -> Iterator[tuple[_SettingPath, str]]:
    for index, host in enumerate(settings.allowed_hosts):
        if host_name(host) is None or (":" in host and not host.startswith("[")):
            yield ("http", "allowed_hosts", index), f"must be a name without scheme and port, not {host!r}"
    for index, origin in enumerate(settings.allowed_origins):
        if not is_origin(origin):
            text = f'must be a site such as "https://ops.example", not {origin!r}'
            yield ("http", "allowed_origins", index), text


def _token_table_problems(token: HttpToken, seen: set[str]) -> Iterator[tuple[_SettingPath, str]]:
    if bool(token.token) == bool(token.token_file):
        yield (), "needs a token_file, or else a token"
    elif token.token and (problem := token_problem(token.token)):
        yield ("token",), problem
    elif token.token in seen - {""}:
        yield ("token",), "is the same as another one; each name needs its own"
