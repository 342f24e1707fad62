"""The command line ``pool``: one small function a command; what they do is in ``app`` and ``doors``, imported late."""

import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from errors import PoolError, UsageError
from wire.units import Seconds

if TYPE_CHECKING:
    from doors.control_client import ControlClient
    from settings import Settings

__all__ = ["main"]

_SECTIONS = {
    "Supervisor": ("run", "stop", "pause", "resume", "drain"),
    "Conversations": ("prompt",),
    "What is going on": ("status", "workers", "sessions", "waiting", "explain", "worker"),
    "This machine": ("doctor", "demo"),
}
_EPILOG = """\b
Exit codes: 0 ok, 1 what was asked for failed, 2 usage, 3 no supervisor, 4 saturated or timed out, 130 interrupted.
Completion: eval "$(_POOL_COMPLETE=bash_source pool)"  (or zsh_source, fish_source)."""


class Commands(click.Group):
    """The commands under their headings; the one place where errors become exit codes."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section."""
        for heading, names in _SECTIONS.items():
            with formatter.section(heading):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl([(name, command.get_short_help_str(90)) for name, command in commands if command])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from doors.streams import fill_standard_streams

        fill_standard_streams()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows what to do with these
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001  # the last stop: whatever it is, it becomes a line and an exit code
            if ctx.params["debug"]:
                traceback.print_exc()
            ctx.exit(_report(error))


def _report(error: Exception) -> int:
    """Print one clear line about the error; the exit code that its kind has."""
    from doors.texts import error_line, exit_code, single_cause

    cause = single_cause(error)
    if isinstance(cause, PoolError):
        click.echo(f"pool: {error_line(cause)}", err=True)
        return exit_code(cause)
    click.echo(f"pool: unexpected {type(cause).__name__}: {cause} (pool --debug shows where)", err=True)
    return 1


def _as_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read an option such as ``30s`` or ``5m``."""
    try:
        return None if value is None else float(Seconds.parse(value))
    except ValueError as exc:
        raise click.BadParameter(str(exc), ctx, param) from exc


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--data-dir", metavar="DIR", help="The supervisor's data directory."),
        click.option("--config", metavar="FILE", help="The settings file ($POOL_CONFIG)."),
        click.option("--socket", metavar="PATH", help="The control socket ($POOL_SOCKET)."),
    ):
        command = option(command)
    return command


def _load(config: str | None, data_dir: str | None, **limits: int | None) -> "Settings":
    from settings import find_settings_file, load_settings

    return load_settings(find_settings_file(config, os.environ, Path.cwd()), data_dir=data_dir, **limits)


def _find_socket(socket: str | None, config: str | None, data_dir: str | None) -> Path:
    from doors.lock import find_supervisor
    from doors.paths import resolve_socket

    if socket or os.environ.get("POOL_SOCKET"):
        return resolve_socket(socket, os.environ, None, Path())
    settings = _load(config, data_dir)
    where = Path(settings.data_dir)
    return find_supervisor(resolve_socket(None, os.environ, settings.socket, where), where)


def _with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command a connection to the supervisor, found by ``--socket``, ``--config``, ``--data-dir``."""

    @_place_options
    @functools.wraps(command)
    def connected(socket: str | None, config: str | None, data_dir: str | None, **rest: Any) -> None:
        from doors.control_client import ControlClient

        with ControlClient(_find_socket(socket, config, data_dir)) as client:
            command(client, **rest)

    return connected


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(package_name="agent-pool")
def main(*, debug: bool) -> None:  # the flag is read where errors are shown
    """A bounded pool of coding agents for any number of conversations."""


# --- supervisor -----------------------------------------------------------------------------------------------------


@main.command()
@_place_options
@click.option("--min", "min_workers", type=int, metavar="N", help="Idle workers to keep (pool.min).")
@click.option("--max", "max_workers", type=int, metavar="N", help="Worker processes at most (pool.max).")
@click.pass_context
def run(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, **limits: int | None
) -> None:
    """Run a supervisor in the foreground, until SIGTERM, Ctrl-C or `pool stop`."""
    import app
    from doors.paths import resolve_socket

    settings = _load(config, data_dir, **limits)
    where = Path(settings.data_dir)
    path = resolve_socket(socket, os.environ, settings.socket, where)
    ctx.exit(app.run(settings, data_dir=where, socket=path, live=sys.stderr.isatty()))


@main.command()
@click.option(
    "--timeout", callback=_as_seconds, metavar="TIME", help="Give up waiting after this; the supervisor still stops."
)
@_with_client
def stop(client: "ControlClient", timeout: float | None) -> None:
    """Stop the supervisor: turns in flight end first (pool.drain_timeout), then its workers."""
    from doors.requests import stop_supervisor

    stop_supervisor(client, timeout)
    click.echo("the supervisor has stopped")


@main.command()
@_with_client
def pause(client: "ControlClient") -> None:
    """Grant no more workers until `pool resume`; turns in flight go on."""
    client.call("pause")
    click.echo("paused")


@main.command()
@_with_client
def resume(client: "ControlClient") -> None:
    """Undo `pool pause` or `pool drain`."""
    client.call("resume")
    click.echo("running")


@main.command()
@click.option(
    "--timeout", callback=_as_seconds, metavar="TIME", help="How long turns may take to end (pool.drain_timeout)."
)
@_with_client
def drain(client: "ControlClient", timeout: float | None) -> None:
    """Take nothing new, let turns in flight end, stop all workers; the supervisor stays."""
    from doors.requests import drain_supervisor

    drain_supervisor(client, timeout)
    click.echo("drained")


# --- conversations --------------------------------------------------------------------------------------------------


@main.command()
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
    "--timeout", callback=_as_seconds, metavar="TIME", help="For waiting and running together (gateway.run_timeout)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one event a line, the outcome last.")
@click.argument("text")
@_with_client
def prompt(client: "ControlClient", text: str, *, as_json: bool, **params: Any) -> None:
    """Say TEXT (or what stdin holds, with -) in a conversation and stream the answer."""
    from doors.prompting import JsonView, TextView, follow_prompt, read_text

    view = JsonView(sys.stdout) if as_json else TextView(sys.stdout, sys.stderr, os.environ)
    follow_prompt(client, {**params, "text": read_text(text, sys.stdin.buffer)}, view)


# --- what is going on -----------------------------------------------------------------------------------------------


@main.command()
@click.option("--watch", is_flag=True, help="Draw it anew every second until Ctrl-C.")
@_json_option
@_with_client
def status(client: "ControlClient", *, watch: bool, as_json: bool) -> None:
    """Show the pool: figures, workers, waiters, profiles, latencies."""
    from doors.console import show, watch_status

    if watch and as_json:
        raise UsageError("--watch draws a screen and --json prints a document; choose one")
    if watch:
        watch_status(client)
    else:
        show(client, "status", as_json=as_json)


@main.command()
@_json_option
@_with_client
def workers(client: "ControlClient", *, as_json: bool) -> None:
    """List the worker processes."""
    from doors.console import show

    show(client, "workers.list", as_json=as_json)


@main.command()
@_json_option
@_with_client
def sessions(client: "ControlClient", *, as_json: bool) -> None:
    """List the conversations and where they are."""
    from doors.console import show

    show(client, "sessions.list", as_json=as_json)


@main.command()
@_json_option
@_with_client
def waiting(client: "ControlClient", *, as_json: bool) -> None:
    """List who waits for a worker, and why."""
    from doors.console import show

    show(client, "waiting.list", as_json=as_json)


@main.command()
@click.option("-s", "--session", metavar="KEY", help="For this conversation.")
@click.option("-a", "--agent", metavar="NAME", help="For this agent definition.")
@click.option("-r", "--role", metavar="NAME", help="In this role.")
@_json_option
@_with_client
def explain(client: "ControlClient", *, as_json: bool, **params: str | None) -> None:
    """Show for every worker how well it fits a conversation or an agent, and what rules it out."""
    from doors.console import show_explanation

    show_explanation(client, params, as_json=as_json)


@main.group()
def worker() -> None:
    """Stop or recycle one worker."""


@worker.command("stop")
@click.argument("worker_id", metavar="ID")
@_with_client
def stop_worker(client: "ControlClient", worker_id: str) -> None:
    """End the worker now; a turn in flight fails, its conversation goes on elsewhere."""
    client.call("workers.stop", {"worker": worker_id})
    click.echo(f"worker {worker_id} is being stopped")


@worker.command("recycle")
@click.argument("worker_id", metavar="ID")
@_with_client
def recycle_worker(client: "ControlClient", worker_id: str) -> None:
    """Replace the worker at its next turn boundary."""
    client.call("workers.recycle", {"worker": worker_id})
    click.echo(f"worker {worker_id} will be replaced")


# --- this machine ---------------------------------------------------------------------------------------------------


@main.command()
@_place_options
@_json_option
@click.pass_context
def doctor(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, *, as_json: bool
) -> None:
    """Say what this machine lacks for these settings; 1 when something required is missing."""
    from doors.console import show_checks
    from doors.doctor import examine
    from doors.facts import gather_facts
    from doors.paths import place_socket

    settings = _load(config, data_dir)
    where = Path(settings.data_dir)
    path = place_socket(socket, os.environ, settings.socket, where)
    checks = examine(gather_facts(settings.pool, settings, data_dir=where, socket=path))
    ctx.exit(0 if show_checks(checks, as_json=as_json) else 1)


@main.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show it: a supervisor, prompts, a worker killed and replaced, a clean end. Needs nothing."""
    from doors.demo import run_demo

    ctx.exit(run_demo())


if __name__ == "__main__":
    main(prog_name="pool")
