"""``pool dashboard``: print the dashboard's link with the token, and open it in a browser."""

import html
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from commands.options import connection_options, find_socket, json_option, load_with_flags, print_answer
from doors.control.client import ControlClient
from errors import PoolError, UsageError

_PAGE_FILE = "dashboard.html"


@click.command()
@click.option("--open", "opens", is_flag=True, help="Open it in the browser ($BROWSER).")
@json_option
@connection_options
def dashboard(socket: str | None, config: str | None, data_dir: str | None, *, opens: bool, as_json: bool) -> None:
    """Print the dashboard's link with the token, which may do everything: do not pass it on."""
    with ControlClient(find_socket(socket, config, data_dir)) as client:
        supervisor = client.call("status")["supervisor"]
    http = supervisor.get("http")
    if http is None:
        raise PoolError(
            "this supervisor serves no dashboard: [http] bind is not set; type `pool config set http.bind "
            "127.0.0.1:8765`, and start it again"
        )
    link = f"{http['url'].rstrip('/')}/#token={quote(_find_token(http, config, data_dir), safe='')}"
    print_answer({"url": link}, link, as_json=as_json)
    if opens:
        _open_privately(link, Path(supervisor["data_dir"]))


def _find_token(http: dict[str, Any], config: str | None, data_dir: str | None) -> str:
    """From where the supervisor has it; its environment is its own. Raises UsageError where it cannot be read."""
    from doors.http.tokens import TOKEN_VARIABLE, read_token

    if http["token_path"] is not None:
        return read_token(Path(http["token_path"]))
    token = os.environ.get(TOKEN_VARIABLE) or load_with_flags(config, data_dir).http.token
    if not token:
        raise UsageError(f"the token is in the supervisor's environment; set ${TOKEN_VARIABLE} here too")
    return token


def _open_privately(link: str, data_dir: Path) -> None:
    """A browser shows its arguments to every user of the machine: it gets a file that only this user can read."""
    import webbrowser

    from wire.files import replace_file

    target = html.escape(link, quote=True)
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={target}">\n'
    file = data_dir / _PAGE_FILE
    replace_file(file, page.encode())
    if not webbrowser.open(file.as_uri()):
        raise PoolError("no browser could be started; open the link yourself")
