"""Tokens: their three scopes and the right to approve, where they are read from, and checks of ``[http]``."""

import os
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from doors.http.settings import HttpSettings, HttpToken, host_name, is_origin
from errors import UsageError
from wire.addresses import parse_bind
from wire.files import replace_file
from wire.tokens import checked_token, read_token, token_problem


class Scope(IntEnum):
    """From looking to everything."""

    READ = 1
    WRITE = 2
    ADMIN = 3


_READ_METHODS = (
    *("ping", "status", "metrics", "agent.wait", "explain", "route", "events.peek", "subscribe", "unsubscribe"),
    *("sessions.list", "sessions.get", "sessions.options", "sessions.history"),
    *("agents.list", "workers.list", "nodes.list", "waiting.list"),
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
        return checked_token(env.get(TOKEN_VARIABLE) or settings.token, place.description)
    if place.is_made and not os.path.lexists(place.file):  # a dangling link is there, too
        import secrets  # noqa: PLC0415  # commands that only look at the settings need not pay for it

        replace_file(place.file, f"{secrets.token_urlsafe(32)}\n".encode())
    return read_token(place.file)


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
