"""Checks settings against this machine and environment: memory, tokens, secrets, workspaces.

``pool config check`` runs it, and the supervisor before it starts and at every reload; client commands do not.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from doors.http.binding import parse_bind
from doors.http.hosts import is_loopback
from doors.http.tokens import TOKEN_VARIABLE, place_of_token, read_token, token_problem
from errors import UsageError
from heartbeat.delivery.settings import signing_key
from router.workspaces import find_workspace, workspace_problem
from settings_problems import Problem
from settings_tables import Settings
from settings_text import KeyPath
from wire.regular_file import open_regular

__all__ = ["machine_problems"]


def machine_problems(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    """Every problem, under its path in the file. Reads files and creates none."""
    from pool.memory import check_memory  # noqa: PLC0415  # psutil, which clients need not wait for

    yield from _refused(("pool", "max"), check_memory, settings.pool)
    for name, hook in settings.delivery.webhooks.items():
        yield from _refused(("delivery", "webhooks", name, "secret_env"), signing_key, name, hook, env)
    if settings.http.bind:
        yield from _tokens(settings, env)
    for agent, role in _kept_warm(settings):
        yield from _workspace(settings, agent, role)
    yield from _hooks(settings)


def _refused(path: KeyPath, check: Callable[..., Any], *args: Any) -> Iterator[Problem]:
    """The problem that ``check`` raises, without the name of the setting."""
    try:
        check(*args)
    except UsageError as exc:
        yield Problem(path, exc.message.removeprefix(f"{path[0]}.{path[1]} = "))


def _tokens(settings: Settings, env: Mapping[str, str]) -> Iterator[Problem]:
    http = settings.http
    given = env.get(TOKEN_VARIABLE)
    if given and (problem := token_problem(given)):
        yield Problem(("http",), f"${TOKEN_VARIABLE} {problem}")
    place = place_of_token(http, env, Path(settings.data_dir))
    if place.file is not None and not place.is_made:
        yield from _refused(("http", "token_file"), read_token, place.file)
    if place.is_made and not is_loopback(parse_bind(http.bind)[0]):
        text = "other machines can reach it: set http.token_file (or http.token) to a token of your choice first, or "
        yield Problem(("http", "bind"), f"is {http.bind}, and {text}bind 127.0.0.1")
    for name, each in http.tokens.items():
        if each.token_file:
            yield from _refused(("http", "tokens", name, "token_file"), read_token, Path(each.token_file))


def _hooks(settings: Settings) -> Iterator[Problem]:
    """Files of hooks that are not there or no Python; nothing of them is run. A program of one's own has its own."""
    if settings.gateway.hooks:
        yield from _code(("gateway", "hooks"), settings.gateway.hooks)
    for name, agent in settings.agents.items():
        for index, file in enumerate(agent.hooks if not agent.command else ()):
            yield from _code(("agents", name, "hooks", index), file)


def _code(path: KeyPath, file: str) -> Iterator[Problem]:
    try:
        with os.fdopen(open_regular(Path(file), os.O_RDONLY), "rb") as opened:
            compile(opened.read(), file, "exec", dont_inherit=True)
    except OSError as exc:
        yield Problem(path, f"cannot read {file}: {exc.strerror}")
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None) or 1
        yield Problem(path, f"cannot load {file}:{line}: {getattr(exc, 'msg', None) or exc}")


def _kept_warm(settings: Settings) -> list[tuple[str, str]]:
    """The agents and roles whose workers the supervisor starts without a request."""
    default = [(settings.router.default_agent, "default")] if settings.pool.min else []
    return [(warm.agent, warm.role) for warm in settings.pool.prewarm] or default


def _workspace(settings: Settings, agent: str, role: str) -> Iterator[Problem]:
    try:
        found = find_workspace(settings.router, settings, agent, role, Path(settings.data_dir))
    except UsageError as exc:
        yield Problem(("agents", agent), exc.message)
        return
    problem = workspace_problem(found)
    if problem is not None:
        yield Problem(tuple(found.source.split(".")), f"the workspace {found.path} {problem}")
