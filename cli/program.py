"""The command ``pool`` as a whole: its commands under their headings, and errors as one line and an exit code."""

import sys
import traceback
from contextlib import suppress
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
_EPILOG = """\b
Exit codes: 0 ok, 1 what was asked for failed, 2 usage, 3 no supervisor,
            4 saturated or timed out, 5 cut short (max_steps, length),
            130 interrupted.
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

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; ``--help`` and ``--version`` print here, and that may fail."""
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:
            sys.exit(_report(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from wire.streams import fill_standard_streams

        fill_standard_streams()
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
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
    from doors.texts import exit_code
    from errors import single_cause
    from wire.streams import drop_output

    cause = single_cause(error)
    with suppress(OSError):  # stderr takes nothing either
        click.echo(f"pool: {_words_of(cause)}", err=True)
    drop_output()
    return exit_code(cause) if isinstance(cause, PoolError) else 1


def _words_of(cause: BaseException) -> str:
    from doors.texts import error_line
    from wire.streams import CANNOT_WRITE

    if isinstance(cause, PoolError):
        return error_line(cause)
    if isinstance(cause, OSError) and cause.errno in CANNOT_WRITE:
        where = f" {cause.filename}" if cause.filename else ""  # stdout has no file name
        return f"cannot write{where}: {cause.strerror}"
    return f"unexpected {type(cause).__name__}: {cause} (pool --debug shows where)"


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
