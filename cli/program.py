"""The command ``pool`` as a whole: its commands under their headings, and errors as one line and an exit code."""

import errno
import os
import sys
import traceback
from typing import Any

import click

from cli import (
    approvals,
    attach,
    config,
    conversations,
    cron,
    events,
    heartbeat,
    machine,
    sessions,
    stress,
    supervisor,
    views,
)
from errors import PoolError

__all__ = ["main"]

_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Supervisor": (
        supervisor.run,
        supervisor.stop,
        supervisor.pause,
        supervisor.resume,
        supervisor.drain,
        supervisor.reload,
    ),
    "Sessions": (
        conversations.prompt,
        conversations.wait,
        conversations.steer,
        conversations.abort,
        conversations.approve,
        conversations.deny,
        approvals.approvals,
        conversations.delegate,
        attach.attach,
        sessions.sessions,
    ),
    "By themselves": (heartbeat.heartbeat, cron.cron),
    "What is going on": (
        views.status,
        views.top,
        views.workers,
        views.waiting,
        events.events,
        views.explain,
        views.route,
        views.worker,
    ),
    "This machine": (config.config, machine.doctor, machine.demo, stress.stress),
}
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_EPILOG = """\b
Exit codes: 0 ok, 1 what was asked for failed, 2 usage, 3 no supervisor,
            4 saturated or timed out, 130 interrupted.
Completion: eval "$(_POOL_COMPLETE=bash_source pool)"  (or zsh_source, fish_source)."""


class Commands(click.Group):
    """The commands under their headings; the one place where errors become exit codes."""

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands section by section."""
        widest = max(len(name) for name in self.commands)
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                rows = [(f"{command.name:{widest}}", command.get_short_help_str(90)) for command in commands]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from wire.streams import fill_standard_streams

        fill_standard_streams()
        try:
            try:
                return super().invoke(ctx)
            finally:
                _finish_output()
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows what to do with these
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(130)
        except Exception as error:  # noqa: BLE001  # the last stop: whatever it is, it becomes a line and an exit code
            if ctx.params["debug"]:
                traceback.print_exc()
            ctx.exit(_report(error))


def _finish_output() -> None:
    """Write what has been printed; raises OSError, with what cannot be written dropped."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, sys.stdout.fileno())  # else Python would try again at its end, and have its own words for it
        os.close(null)
        raise


def _report(error: Exception) -> int:
    """Print one clear line about the error; the exit code that its kind has."""
    from doors.texts import error_line, exit_code, single_cause

    cause = single_cause(error)
    if isinstance(cause, PoolError):
        click.echo(f"pool: {error_line(cause)}", err=True)
        return exit_code(cause)
    if isinstance(cause, OSError) and cause.errno in _CANNOT_WRITE:
        where = f" {cause.filename}" if cause.filename else ""  # of what is printed there is none
        click.echo(f"pool: cannot write{where}: {cause.strerror}", err=True)
        return 1
    click.echo(f"pool: unexpected {type(cause).__name__}: {cause} (pool --debug shows where)", err=True)
    return 1


@click.group(
    cls=Commands,
    commands=[command for commands in _SECTIONS.values() for command in commands],
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(package_name="agent-pool")
def main(*, debug: bool) -> None:  # the flag is read where errors are shown
    """A bounded pool of coding agents for any number of sessions: conversations, each with its key."""
