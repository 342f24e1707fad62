"""The command that drives a pool hard."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from commands.options import as_seconds

_DEFAULT_REPORT = Path("artefacts/stress.html")


def _as_scale(ctx: click.Context, param: click.Parameter, value: str) -> float:
    from stress.plan import read_scale

    try:
        return read_scale(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


def _as_names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip().upper() for name in value.split(",") if name.strip()))


class _StressCommand(click.Command):
    """Its help names all loads, faults and promises."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        from stress.outcome import INVARIANTS
        from stress.plan import FAULTS, LOADS

        for title, named in (("Loads", LOADS), ("Faults", FAULTS), ("Promises", INVARIANTS)):
            with formatter.section(title):
                formatter.write_dl([*named.items()])


@click.command(cls=_StressCommand)
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
    default=_DEFAULT_REPORT,
    show_default=True,
    help="Write a page that shows what came of it.",
)
@click.pass_context
def stress(ctx: click.Context, /, attach: str | None, json_file: Path | None, report: Path, **wish: Any) -> None:
    """Drive a pool hard, harm it, and check from outside what it promises; 1 when a promise was broken.

    A supervisor of its own with real workers, unless --attach names another one.
    """
    from stress.command import stress as run
    from stress.plan import StressOptions

    with _default_report_folder() if report == _DEFAULT_REPORT else nullcontext():
        code = run(StressOptions(**wish), attach=_socket(attach), json_file=json_file, report=report)
    ctx.exit(code)


@contextmanager
def _default_report_folder() -> Iterator[None]:
    """Make the folder of the usual report, where there is none; a run that is refused or ended does not leave it."""
    folder, is_ours = _DEFAULT_REPORT.parent, False
    with suppress(OSError):  # that no report can be written there is told when it is tried
        folder.mkdir()
        is_ours = True
    try:
        yield
    finally:
        with suppress(OSError):  # a report is in it
            if is_ours:
                folder.rmdir()


def _socket(attach: str | None) -> Path | None:
    """The socket to drive; None = a supervisor of our own."""
    from commands.options import find_socket

    return None if attach is None else find_socket(attach or os.environ.get("POOL_SOCKET"), None, None)
