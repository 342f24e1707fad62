"""Completion of names: sessions, workers, nodes, agents, roles, jobs, calls, commands in the background, settings.

All questions together have half a second; what is known by then is offered, and nothing is ever printed.
"""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, suppress
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, add_completion_class, split_arg_string

_PATIENCE_SECONDS = 0.5
_DEADLINE = "pool.completion.deadline"
"""Where a command's context has it, on the monotonic clock."""
_MOST_NAMES = 500

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(find: Callable[[click.Context], Iterable[tuple[str, str]]]) -> Completer:
    """Offers the names with their descriptions, as far as the supervisor or the settings can be read."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from errors import PoolError
        from wire.terminal import clean  # a shell reads an answer a line: a command must not bring its own

        found = []
        ctx.meta[_DEADLINE] = time.monotonic() + _PATIENCE_SECONDS
        # A warning would stand in the middle of the typed line.
        with suppress(PoolError, OSError), redirect_stderr(io.StringIO()):
            for name, text in find(ctx):
                if name.startswith(incomplete):
                    found.append((name, text))
        return [CompletionItem(name, help=clean(text) if text else None) for name, text in found[:_MOST_NAMES]]

    return complete


def _ask(ctx: click.Context, method: str, params: Any = None) -> Any:
    """What a running supervisor answers. Raises PoolError where none does in time."""
    from commands.options import find_socket
    from doors.control.client import ControlClient

    with ControlClient(find_socket(*(_given(ctx, name) for name in ("socket", "config", "data_dir")))) as client:
        return client.call(method, params, timeout=max(0.0, ctx.meta[_DEADLINE] - time.monotonic()))


def _given(ctx: click.Context, name: str) -> str | None:
    """An option of the command that is being typed, or of its group."""
    return ctx.params.get(name) or (ctx.parent and _given(ctx.parent, name)) or None


def _sessions(ctx: click.Context) -> Iterator[tuple[str, str]]:
    from commands.session_states import listed_state

    for session in _ask(ctx, "sessions.list"):
        yield session["key"], f"{listed_state(session)}, agent {session['agent']}"


def _workers(ctx: click.Context) -> Iterator[tuple[str, str]]:
    for worker in _ask(ctx, "workers.list"):
        yield worker["id"], f"{worker['state']}, {worker['session'] or 'no session'}"


def _nodes(ctx: click.Context) -> Iterator[tuple[str, str]]:
    for node in _ask(ctx, "nodes.list"):
        if node["name"]:
            yield node["name"], f"{node['state']}, {node['used']} of {node['slots']} slots used"


def _groups(ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield from ((name, "") for name in _settings(ctx).cluster.groups)


def _jobs(ctx: click.Context) -> Iterator[tuple[str, str]]:
    for job in _ask(ctx, "cron.list")["jobs"]:
        yield job["id"], job["when"]


def _calls(ctx: click.Context) -> Iterator[tuple[str, str]]:
    for asked in _ask(ctx, "approvals.list"):
        yield asked["call"]["id"], f"{asked['call']['name']} of session {asked['session']}"


def _processes(ctx: click.Context) -> Iterator[tuple[str, str]]:
    keys = [worker["session"] for worker in _ask(ctx, "workers.list") if worker["session"] and worker["background"]]
    wanted = _given(ctx, "session")
    for key in keys[:4] if wanted is None else [wanted]:  # each is a question to a worker
        for process in _ask(ctx, "process", {"session": key, "action": "list"})["sessions"]:
            yield process["session_id"], f"{process['command']} (session {key})"


def _agents(ctx: click.Context) -> Iterator[tuple[str, str]]:
    settings = _settings(ctx)
    for name in settings.agent_names():
        yield name, "the bundled agent" if name not in settings.agents else ""


def _roles(ctx: click.Context) -> Iterator[tuple[str, str]]:
    yield "default", ""
    yield from ((name, "") for name in _settings(ctx).roles if name != "default")


def _settings(ctx: click.Context) -> Any:
    from commands.options import load_with_flags

    return load_with_flags(_given(ctx, "config"), _given(ctx, "data_dir"))


def _setting_keys(_ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Each with the first sentence about it."""
    from settings.description import own_fields, tables, texts_of
    from settings.schema import Settings

    for path, kind in (((), Settings), *tables(Settings, ())):
        texts = texts_of(kind)
        for field in own_fields(kind):
            sentence = " ".join(texts.get(field.name, "").split()).partition(". ")[0].removesuffix(".")
            yield ".".join((*path, field.encode_name)), sentence


complete_sessions = _completer(_sessions)
complete_workers = _completer(_workers)
complete_nodes = _completer(_nodes)
complete_groups = _completer(_groups)
complete_jobs = _completer(_jobs)
complete_calls = _completer(_calls)
complete_processes = _completer(_processes)
complete_agents = _completer(_agents)
complete_roles = _completer(_roles)
complete_setting_keys = _completer(_setting_keys)


class ColonBashComplete(BashComplete):
    """Bash takes a session's key apart at its colons: the words are those of the line instead.

    What bash replaces begins behind the last colon of the typed word, so that the answers begin there too.
    """

    source_template = BashComplete.source_template.replace(
        "response=$(env ", 'response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" '
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is typed, and that one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        value = incomplete.partition("=")[2] if incomplete.startswith("--") and "=" in incomplete else incomplete
        self._kept = value.rfind(":") + 1 if ":" in os.environ.get("COMP_WORDBREAKS", "") else 0
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Type and value of an answer."""
        return f"{item.type},{item.value[self._kept :]}"


class WholeFishComplete(FishComplete):
    """Fish gets the whole description: click's own script ends it at its first comma."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def register_shells() -> None:
    """Have click use these instead of its own."""
    add_completion_class(ColonBashComplete)
    add_completion_class(WholeFishComplete)
