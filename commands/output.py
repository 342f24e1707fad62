"""What the commands print: tables on a terminal, JSON where asked for, one line for an error."""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, RenderableType

from commands.autonomy_view import heartbeats_view, job_text, jobs_view
from commands.doctor_checks import Check, CheckVerdict
from commands.route_view import route_view
from commands.session_view import history_view, system_events_table
from commands.tables import checks_table, explanation_table, sessions_view, status_view, waiting_table, workers_table
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from wire.terminal import clean

_PIPE_WIDTH = 500
_REFRESH_SECONDS = 1.0
_VIEWS: dict[str, Callable[[Any, int], RenderableType]] = {
    "workers.list": workers_table,
    "waiting.list": waiting_table,
    "sessions.history": history_view,
    "events.peek": system_events_table,
    "heartbeat.status": heartbeats_view,
    "cron.list": jobs_view,
    "cron.get": job_text,
}
_APPROVAL_VIEWS: dict[str, Callable[[Any, int, str], RenderableType]] = {
    "status": status_view,
    "sessions.list": sessions_view,
}
"""Those that show what waits for a person, and the commands to type."""


def open_console() -> Console:
    """A console on stdout; into a pipe tables are as wide as they need, unless ``$COLUMNS`` says otherwise."""
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return Console(width=width, highlight=False, soft_wrap=False)


def print_json(value: Any) -> None:
    """One JSON document on stdout, indented."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


def show_result(
    client: ControlClient, method: str, params: dict[str, Any] | None = None, *, as_json: bool, place: str = ""
) -> None:
    """Call a method that shows something and print its result.

    ``place``: the options by which shown commands find the same supervisor.
    """
    result = client.call(method, params)
    if as_json:
        print_json(result)
    else:
        console = open_console()
        asking = _APPROVAL_VIEWS.get(method)
        view = _VIEWS[method](result, console.width) if asking is None else asking(result, console.width, place)
        console.print(view, crop=False)  # a command to be copied may be wider than the terminal


def show_injected(client: ControlClient, params: dict[str, Any], *, as_json: bool) -> None:
    """Queue an event for a session, and print whether it was added."""
    result = client.call("events.inject", params)
    if as_json:
        print_json(result)
    elif result["event"] is None:
        sys.stdout.write(f"the same event is already queued for {clean(result['session'])}; nothing was added\n")
    else:
        sys.stdout.write(f"the event is queued for {clean(result['session'])}\n")


def show_explanation(client: ControlClient, params: dict[str, Any], *, as_json: bool) -> None:
    """Print for every worker how well it fits."""
    result = client.call("explain", params)
    if as_json:
        print_json(result)
    else:
        console = open_console()
        console.print(explanation_table(result, console.width))


def show_route(client: ControlClient, source: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print whose a message from ``source`` would be, and why."""
    decision = client.call("route", {"source": source, "text": text})
    if as_json:
        print_json(decision)
    else:
        open_console().print(route_view(decision))


def show_checks(checks: Sequence[Check], *, as_json: bool) -> bool:
    """Print what the doctor found; whether nothing that is required is missing."""
    records = msgspec.to_builtins(checks)
    if as_json:
        print_json(records)
    else:
        open_console().print(checks_table(records))
    return all(check.verdict is not CheckVerdict.MISSING for check in checks)


def show_problems(file: Path | None, problems: Sequence[str], *, as_json: bool) -> bool:
    """Print what is wrong with a settings file, a line each; whether nothing is."""
    if as_json:
        print_json({"file": None if file is None else str(file), "problems": problems})
    elif problems:
        sys.stderr.write("".join(f"pool: {clean(problem)}\n" for problem in problems))
    else:
        sys.stdout.write(f"{clean(file or 'there is no file; the embedded defaults')}: nothing is wrong\n")
    return not problems


def show_reload(client: ControlClient, *, as_json: bool) -> None:
    """Have the settings read again, and print what came of it."""
    result = client.call("reload", timeout=SLOW_ANSWER_SECONDS)
    if as_json:
        print_json(result)
        return
    sys.stdout.write(f"changed: {clean(', '.join(result['changed']) or 'nothing')}\n")
    if result["needs_restart"]:
        sys.stdout.write(f"holds from the next start on: {clean(', '.join(result['needs_restart']))}\n")


def watch_status(client: ControlClient, *, place: str = "") -> None:
    """Draw the status in place, once a second, until interrupted. ``place``: see ``show_result``."""
    import threading  # only the watching command needs it

    from rich.live import Live  # the same

    console = open_console()
    tick = threading.Event()  # never set: its wait ends with the time, or with Ctrl-C
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            live.update(status_view(client.call("status"), console.width, place), refresh=True)
            tick.wait(_REFRESH_SECONDS)
