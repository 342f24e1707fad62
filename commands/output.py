"""Results of listing methods as tables, or as JSON where that is asked for."""

import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from commands.autonomy_view import heartbeats_view, job_text, jobs_view
from commands.nodes_view import nodes_view
from commands.options import print_json
from commands.session_view import history_view, processes_table, system_events_table
from commands.tables import sessions_view, status_view, waiting_table, workers_table
from doors.control.client import ControlClient
from wire.terminal import clean

_PIPE_WIDTH = 500
_REFRESH_SECONDS = 1.0
_VIEWS: dict[str, Callable[[Any, int], RenderableType]] = {
    "workers.list": workers_table,
    "nodes.list": nodes_view,
    "waiting.list": waiting_table,
    "sessions.history": history_view,
    "events.peek": system_events_table,
    "process": processes_table,
    "heartbeat.status": heartbeats_view,
    "cron.list": jobs_view,
    "cron.get": job_text,
}
_APPROVAL_VIEWS: dict[str, Callable[[Any, int, str], RenderableType]] = {
    "status": status_view,
    "sessions.list": sessions_view,
}
"""Views that show pending tool calls with the commands to decide about them."""


def open_console() -> Console:
    """A console on stdout; into a pipe tables are as wide as they need, unless ``$COLUMNS`` says otherwise."""
    width = None if sys.stdout.isatty() else shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
    return Console(width=width, highlight=False, soft_wrap=False)


def show_result(
    client: ControlClient, method: str, params: dict[str, Any] | None = None, *, as_json: bool, place: str = ""
) -> None:
    """Call a method of ``_VIEWS`` or ``_APPROVAL_VIEWS`` and print its result.

    ``place``: the options by which shown commands find the same supervisor.
    """
    show_records(method, client.call(method, params), as_json=as_json, place=place)


def show_records(method: str, result: Any, *, as_json: bool, place: str = "", names: str | None = None) -> None:
    """Print the result of such a method, or some of its records; ``names``: this field of each alone."""
    if as_json:
        print_json(result)
    elif names is not None:
        sys.stdout.write("".join(f"{clean(record[names])}\n" for record in result))
    else:
        console = open_console()
        asking = _APPROVAL_VIEWS.get(method)
        view = _VIEWS[method](result, console.width) if asking is None else asking(result, console.width, place)
        console.print(view, crop=False)  # a command to be copied may be wider than the terminal


def watch_status(client: ControlClient, *, place: str = "") -> None:
    """Draw the status in place, once a second, until interrupted."""
    console = open_console()
    tick = threading.Event()  # never set: its wait ends with the time, or with Ctrl-C
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            live.update(status_view(client.call("status"), console.width, place), refresh=True)
            tick.wait(_REFRESH_SECONDS)
