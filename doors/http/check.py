"""What the ``[http]`` settings say that cannot be meant. Pure."""

from collections.abc import Iterator

from doors.http.binding import parse_bind
from doors.http.hosts import host_name, is_site
from doors.http.settings import HttpSettings, HttpToken
from doors.http.tokens import FIRST, token_problem
from errors import UsageError

__all__ = ["http_problems"]

_Path = tuple[str | int, ...]


def http_problems(settings: HttpSettings) -> Iterator[tuple[_Path, str]]:
    """Every problem: the path of its setting, as ``("http", "bind")``, and what is wrong with it."""
    for path, text in (*_bind(settings), *_first_token(settings), *_tokens(settings), *_names(settings)):
        yield ("http", *path), text


def _bind(settings: HttpSettings) -> Iterator[tuple[_Path, str]]:
    if settings.bind:
        try:
            parse_bind(settings.bind)
        except UsageError as exc:
            yield ("bind",), exc.message


def _first_token(settings: HttpSettings) -> Iterator[tuple[_Path, str]]:
    if settings.token and settings.token_file:
        yield ("token_file",), "there is a token too; keep one of them"
    elif settings.token and (problem := token_problem(settings.token)):
        yield ("token",), problem


def _tokens(settings: HttpSettings) -> Iterator[tuple[_Path, str]]:
    seen = {settings.token} - {""}
    for name, each in settings.tokens.items():
        place = ("tokens", name)
        if name == FIRST:
            yield place, "is what the token that may do everything is called; choose another name"
        yield from (((*place, *path), text) for path, text in _token(each, seen))
        seen.add(each.token)


def _token(token: HttpToken, seen: set[str]) -> Iterator[tuple[_Path, str]]:
    if bool(token.token) == bool(token.token_file):
        yield (), "needs a token_file, or else a token"
    elif token.token and (problem := token_problem(token.token)):
        yield ("token",), problem
    elif token.token in seen - {""}:
        yield ("token",), "is the same as another one; each name needs its own"


def _names(settings: HttpSettings) -> Iterator[tuple[_Path, str]]:
    for index, host in enumerate(settings.allowed_hosts):
        if host_name(host) is None or (":" in host and not host.startswith("[")):
            yield ("allowed_hosts", index), f"must be a name without scheme and port, not {host!r}"
    for index, origin in enumerate(settings.allowed_origins):
        if not is_site(origin):
            yield ("allowed_origins", index), f'must be a site such as "https://ops.example", not {origin!r}'
