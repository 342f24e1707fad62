"""Commands that take part in a conversation."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from cli.options import as_seconds, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["prompt"]


@click.command()
@click.option("-s", "--session", required=True, metavar="KEY", help="The conversation; made when it is new.")
@click.option("-a", "--agent", default="main", show_default=True, metavar="NAME", help="Which agent definition.")
@click.option("-r", "--role", default="default", show_default=True, metavar="NAME", help="In which role.")
@click.option(
    "--priority",
    default=5,
    show_default=True,
    type=click.IntRange(-1000, 1000),
    metavar="N",
    help="Higher is served first.",
)
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="For waiting and running together (gateway.run_timeout)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, the outcome last.")
@click.argument("text")
@with_client
def prompt(client: "ControlClient", text: str, *, as_json: bool, **params: Any) -> None:
    """Say TEXT (or what stdin holds, with -) in a conversation and stream the answer."""
    from doors.prompting import JsonView, TextView, follow_prompt, read_text

    view = JsonView(sys.stdout) if as_json else TextView(sys.stdout, sys.stderr, os.environ)
    follow_prompt(client, {**params, "text": read_text(text, sys.stdin.buffer)}, view)
