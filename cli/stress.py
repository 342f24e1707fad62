"""The command that drives a pool hard."""

import os
from pathlib import Path
from typing import Any

import click

from cli.options import as_seconds

__all__ = ["stress"]

_EPILOG = """\b
Loads:  L1 10,000 sessions over 64 workers, 8 profiles, 3 priorities
        L2 1.5 times what the workers can do
        L3 0 to 3,200 waiters at once
        L4 500 front ends that hang up and connect again
        L5 soak: 1,000,000 requests
        L6 500 front ends of which 50 read 1 KB a second
Faults: F1 workers killed and suspended
        F2 workers that write what is no message
        F3 workers that do not want to end
        F4 no more files, processes or disk space
        F5 the supervisor killed, or told to end twice
        F6 front ends killed between grant and answer
        F7 the wall clock moved, pids reused
"""
_USUAL_REPORT = Path("artefacts/stress.html")


def _as_scale(ctx: click.Context, param: click.Parameter, value: str) -> float:
    from stress.plan import read_scale

    try:
        return read_scale(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


def _as_names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip().upper() for name in value.split(",") if name.strip()))


@click.command(short_help="Drive a pool hard and check what it promises.", epilog=_EPILOG)
@click.option(
    "--load",
    default="L1",
    show_default=True,
    callback=lambda _ctx, _param, value: value.upper(),
    metavar="L1",
    help="What is asked; see below.",
)
@click.option(
    "--faults", default="", callback=_as_names, metavar="F1,F2", help="What is done to it meanwhile; see below."
)
@click.option("--scale", default="1", show_default=True, callback=_as_scale, help="Share of the load's size, as 1/20.")
@click.option("--seed", default=7, show_default=True, help="The same seed makes the same choices.")
@click.option("--sessions", type=int, metavar="N", help="So many sessions.")
@click.option("--workers", type=int, metavar="N", help="So many workers at most.")
@click.option("--seconds", callback=as_seconds, metavar="TIME", help="New requests for so long.")
@click.option("--requests", type=int, metavar="N", help="So many requests at most.")
@click.option("--rate", type=float, metavar="N", help="So many requests a second.")
@click.option(
    "--attach", is_flag=False, flag_value="", metavar="[SOCKET]", help="Drive a supervisor that runs already."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all figures to a file.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    default=_USUAL_REPORT,
    show_default=True,
    help="Write a page that shows what came of it.",
)
@click.pass_context
def stress(ctx: click.Context, /, attach: str | None, json_file: Path | None, report: Path, **wish: Any) -> None:
    """Drive a pool hard, harm it, and check from outside what it promises; 1 when a promise was broken.

    A supervisor of its own with real workers, unless --attach names another one.
    """
    from stress.command import stress as run
    from stress.plan import Wish

    if report == _USUAL_REPORT:
        report.parent.mkdir(exist_ok=True)
    ctx.exit(run(Wish(**wish), attach=_socket(attach), json_file=json_file, report=report))


def _socket(attach: str | None) -> Path | None:
    """The socket to drive; None = a supervisor of our own."""
    from cli.options import find_socket

    return None if attach is None else find_socket(attach or os.environ.get("POOL_SOCKET"), None, None)
