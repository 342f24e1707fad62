"""The command line ``pool``: its commands under their headings, imported when used; errors become an exit code."""

import atexit
import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from errors import PoolError, single_cause
from wire.terminal import (
    OUTPUT_ERRNOS,
    discard_unwritable_output,
    error_line,
    exit_code,
    fill_standard_streams,
)
from wire.version import VERSION

atexit.register(gc.freeze)  # the last collections would look at every module once more: a tenth of a short command


class _CommandEntry(NamedTuple):
    """Where a command is defined, and its line in the list of commands: reading the list imports none of them."""

    module: str
    help: str


_SECTIONS: dict[str, dict[str, _CommandEntry]] = {
    "Supervisor": {
        "run": _CommandEntry("commands.supervisor", "Run a supervisor in the foreground."),
        "stop": _CommandEntry("commands.supervisor", "End the turns in flight, then the supervisor."),
        "restart": _CommandEntry("commands.supervisor", "Stop the supervisor and start it again in place."),
        "scale": _CommandEntry("commands.supervisor", "Change the number of workers (pool.max) now."),
        "pause": _CommandEntry("commands.supervisor", "Grant no more workers; turns in flight go on."),
        "resume": _CommandEntry("commands.supervisor", "Undo `pool pause` or `pool drain`."),
        "drain": _CommandEntry("commands.supervisor", "Let turns in flight end and stop all workers."),
        "reload": _CommandEntry("commands.supervisor", "Reload the settings file."),
        "node": _CommandEntry("commands.node", "Run workers on this machine for a supervisor elsewhere."),
    },
    "Sessions": {
        "chat": _CommandEntry("commands.chat.command", "Chat with a session on this terminal."),
        "prompt": _CommandEntry("commands.prompt", "Send a message and stream the answer."),
        "wait": _CommandEntry("commands.prompt", "Wait for a run to end and print its answer."),
        "steer": _CommandEntry("commands.prompt", "Send a message into the running turn."),
        "abort": _CommandEntry("commands.prompt", "End a run."),
        "approve": _CommandEntry("commands.decisions", "Approve a pending tool call."),
        "deny": _CommandEntry("commands.decisions", "Deny a pending tool call."),
        "approvals": _CommandEntry("commands.approvals", "List pending tool calls; show one in full."),
        "delegate": _CommandEntry("commands.prompt", "Delegate a task to another agent and print its answer."),
        "attach": _CommandEntry("commands.attach", "Act as an agent program: its protocol on stdin and stdout."),
        "acp": _CommandEntry("commands.acp", "Act as an ACP agent that an editor starts."),
        "processes": _CommandEntry("commands.processes", "List background commands; read, write, kill one."),
        "sessions": _CommandEntry("commands.sessions", "List sessions; show, reset, delete one; its history."),
    },
    "Automation": {
        "heartbeats": _CommandEntry("commands.autonomy", "List each agent's heartbeat; run one now."),
        "cron": _CommandEntry("commands.autonomy", "List scheduled jobs; add, show, enable, delete, run one."),
    },
    "Observation": {
        "status": _CommandEntry("commands.status", "Show the pool: workers, waiters, profiles, latencies."),
        "top": _CommandEntry("commands.status", "Watch the pool live: workers, waiters, sessions, events."),
        "workers": _CommandEntry("commands.workers", "List the worker processes; show, stop, recycle one."),
        "nodes": _CommandEntry("commands.nodes", "List the machines of the cluster; drain, resume one."),
        "dashboard": _CommandEntry("commands.dashboard", "Print the dashboard's link with its token; open it."),
        "waiting": _CommandEntry("commands.status", "List the requests that wait for a worker, and why."),
        "logs": _CommandEntry("commands.logs", "Show the logs of workers and of the supervisor; follow them."),
        "events": _CommandEntry("commands.events", "Follow events; inject or list system events."),
        "explain": _CommandEntry("commands.status", "Explain how well each worker matches a session."),
        "route": _CommandEntry("commands.status", "Explain how a message is routed."),
    },
    "This machine": {
        "agents": _CommandEntry("commands.agents", "List agent definitions; show, add, delete one."),
        "config": _CommandEntry("commands.config", "The settings file: init, check, show, set."),
        "service": _CommandEntry("commands.service", "Run the supervisor by systemd or launchd."),
        "doctor": _CommandEntry("commands.doctor", "Check this machine's prerequisites."),
        "demo": _CommandEntry("commands.demo", "Run a self-contained demo (30 s)."),
        "stress": _CommandEntry("commands.stress", "Load-test a pool and check its promises."),
    },
}
_ENTRIES = {name: entry for section in _SECTIONS.values() for name, entry in section.items()}
_SYNONYMS = {"ls": ("sessions", "list"), "rm": ("sessions", "delete"), "ps": ("workers", "list")}
_SINGULARS = {
    "agent": "agents",
    "approval": "approvals",
    "event": "events",
    "heartbeat": "heartbeats",
    "log": "logs",
    "process": "processes",
    "session": "sessions",
    "worker": "workers",
}
"""Words that are understood, but not listed: short forms, and the singular of each noun."""
_EPILOG = """\b
Short: pool ls = sessions list, pool rm KEY = sessions delete KEY,
       pool ps = workers list; ls and rm also below each noun.
Exit codes: 0 ok, 1 the request failed, 2 usage, 3 no supervisor,
            4 saturated or timed out, 5 cut short (max_steps, length),
            130 interrupted.
Completion: eval "$(_POOL_COMPLETE=bash_source pool)"  (or zsh_source, fish_source)."""


class Commands(click.Group):
    """The commands under their headings; the one place where errors become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """The names of all commands."""
        return list(_ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name in _ENTRIES and cmd_name not in self.commands:
            entry = _ENTRIES[cmd_name]
            command: click.Command = getattr(import_module(entry.module), cmd_name)
            command.short_help = entry.help
            self.add_command(command)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word stands for."""
        first, *rest = args
        return super().resolve_command(ctx, [*_SYNONYMS.get(first, (_SINGULARS.get(first, first),)), *rest])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names with this prefix; imports no command."""
        names = [CompletionItem(name, help=_ENTRIES[name].help) for name in _ENTRIES if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands section by section."""
        widest = max(map(len, _ENTRIES))
        for heading, entries in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:{widest}}", entry.help) for name, entry in entries.items()])

    def _main_shell_completion(self, *args: Any, **kwargs: Any) -> None:
        """Have the shells of ``commands.completion`` answer, where one asks."""
        if "_POOL_COMPLETE" in os.environ:
            import_module("commands.completion").register_shells()
        super()._main_shell_completion(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; ``--help`` and ``--version`` print here, and that may fail."""
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:
            sys.exit(_report(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
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
        except Exception as error:  # noqa: BLE001  # the last handler: every error becomes a line and an exit code
            if ctx.params["debug"]:
                import_module("traceback").print_exc()
            ctx.exit(_report(error))


def _report(error: Exception) -> int:
    """Print the error on one line; return the exit code of its kind."""
    cause = single_cause(error)
    with suppress(OSError):  # stderr takes nothing either
        click.echo(f"pool: {_error_text(cause)}", err=True)
    discard_unwritable_output()
    return exit_code(cause) if isinstance(cause, PoolError) else 1


def _error_text(cause: BaseException) -> str:
    if isinstance(cause, PoolError):
        return error_line(cause)
    if isinstance(cause, OSError) and cause.errno in OUTPUT_ERRNOS:
        where = f" {cause.filename}" if cause.filename else ""  # stdout has no file name
        return f"cannot write{where}: {cause.strerror}"
    return f"unexpected {type(cause).__name__}: {cause} (pool --debug shows where)"


@click.group(cls=Commands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.version_option(VERSION)
def main(*, debug: bool) -> None:  # the flag is read where errors are shown
    """A bounded pool of coding agents for any number of sessions: conversations, each with its key."""
    del debug


if __name__ == "__main__":
    main(prog_name="pool")
