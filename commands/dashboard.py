"""``pool dashboard``: print the dashboard's link with the token, and open it in a browser."""

import html
import os
from pathlib import Path
from typing import Any, NamedTuple
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
    found = _find_token(http, socket, config, data_dir)
    link = f"{http['url'].rstrip('/')}/#token={quote(found.token, safe='')}"
    print_answer({"url": link}, link, as_json=as_json)
    if opens and not found.is_on_disk:
        raise PoolError("--open would write the token to a file, and it is in none; open the link yourself")
    if opens:
        _open_privately(link, Path(supervisor["data_dir"]))


class _FoundToken(NamedTuple):
    token: str
    is_on_disk: bool


def _find_token(http: dict[str, Any], socket: str | None, config: str | None, data_dir: str | None) -> _FoundToken:
    """From where the supervisor has it; its environment is its own. Raises UsageError where it cannot be read.

    Settings that are not named may be another supervisor's than that of a socket that is.
    """
    from doors.http.tokens import TOKEN_VARIABLE
    from wire.tokens import read_token

    if http["token_path"] is not None:
        return _FoundToken(read_token(Path(http["token_path"])), is_on_disk=True)
    if token := os.environ.get(TOKEN_VARIABLE):
        return _FoundToken(token, is_on_disk=False)
    if (socket or os.environ.get("POOL_SOCKET")) and not config:
        raise UsageError(f"the token is in no file of its own; set ${TOKEN_VARIABLE}, or name the settings (--config)")
    token = load_with_flags(config, data_dir).http.token
    if not token:
        raise UsageError(f"the token is in the supervisor's environment; set ${TOKEN_VARIABLE} here too")
    return _FoundToken(token, is_on_disk=True)


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
