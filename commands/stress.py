"""``pool stress``: options of the load test; the ``stress`` package runs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from commands.options import as_seconds, find_socket
from stress.agents import AGENTS
from stress.outcome import INVARIANTS
from stress.plan import FAULTS, LOADS, StressOptions, read_scale

_DEFAULT_REPORT = Path("artefacts/stress.html")


def _as_scale(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return read_scale(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


def _as_names(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip().upper() for name in value.split(",") if name.strip()))


class _StressCommand(click.Command):
    """Its help names all loads, faults, agents and promises."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        agents = {name: kind.description for name, kind in AGENTS.items()}
        for title, named in (("Loads", LOADS), ("Faults", FAULTS), ("Agents", agents), ("Promises", INVARIANTS)):
            with formatter.section(title):
                formatter.write_dl([*named.items()])


@click.command(cls=_StressCommand)
@click.option(
    "--load",
    default="L1",
    show_default=True,
    callback=lambda _ctx, _param, value: value.upper(),
    metavar="L1",
    help="The load; listed below.",
)
@click.option("--faults", default="", callback=_as_names, metavar="F1,F2", help="Faults to inject; listed below.")
@click.option(
    "--agents",
    default="native",
    show_default=True,
    callback=lambda _ctx, _param, value: value.lower(),
    metavar="native",
    help="What the workers run; listed below.",
)
@click.option("--scale", default="1", show_default=True, callback=_as_scale, help="Share of the load's size, as 1/20.")
@click.option("--seed", default=7, show_default=True, help="Seed of all random choices.")
@click.option("--sessions", type=int, metavar="N", help="Number of sessions.")
@click.option("--workers", type=int, metavar="N", help="Maximum number of workers.")
@click.option("--seconds", callback=as_seconds, metavar="TIME", help="Duration of new requests.")
@click.option("--requests", type=int, metavar="N", help="Maximum number of requests.")
@click.option("--rate", type=float, metavar="N", help="Requests per second.")
@click.option("--attach", is_flag=False, flag_value="", metavar="[SOCKET]", help="Test a running supervisor.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all figures to a JSON file.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    default=_DEFAULT_REPORT,
    show_default=True,
    help="Write an HTML report.",
)
@click.pass_context
def stress(ctx: click.Context, /, attach: str | None, json_file: Path | None, report: Path, **wish: Any) -> None:
    """Load-test a pool, inject faults, and check its promises from outside; exit code 1 when one is broken.

    Starts a supervisor of its own with real workers, unless --attach names a running one.
    """
    from stress.command import stress as run  # trio and all machinery: the help needs none of it

    with _default_report_folder() if report == _DEFAULT_REPORT else nullcontext():
        code = run(StressOptions(**wish), attach=_socket(attach), json_file=json_file, report=report)
    ctx.exit(code)


@contextmanager
def _default_report_folder() -> Iterator[None]:
    """Create the folder of the default report; remove it again if it stays empty."""
    folder, is_ours = _DEFAULT_REPORT.parent, False
    with suppress(OSError):  # writing the report gives the error
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
    return None if attach is None else find_socket(attach or os.environ.get("POOL_SOCKET"), None, None)
