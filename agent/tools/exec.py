"""The tool ``exec``: runs a shell command, waits as long as the call allows, then leaves it in the background."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import trio

from agent.policy import may_be_set
from agent.processes.exec_session import ExecSession
from agent.processes.registry import ProcessRegistry
from agent.processes.spawn import ShellCommand, SpawnFailed
from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from agent.tools.pages import shorten
from agent.tools.paths import resolve_path
from wire.call_page import CallPart

_DEFAULT_TIMEOUT = 1800.0


class ExecInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``workdir`` is taken from the working directory; ``pty`` gives the command a terminal.

    The call waits ``yield_ms`` milliseconds (default 10,000), with ``background`` not at all; a command that still
    runs then goes on in the background. ``timeout`` in seconds, 0 for none, ends it there too.
    """

    command: str
    workdir: str = "."
    env: dict[str, str] = {}
    yield_ms: float | None = None
    background: bool = False
    timeout: Annotated[float, msgspec.Meta(ge=0)] = _DEFAULT_TIMEOUT
    pty: bool = False


class ExecTool(Tool):
    """Run a command with the shell; its output is the result, or the name under which it goes on."""

    name = "exec"
    description = (
        "Run a shell command. Returns stdout and stderr, the end of it if it is long. A command that takes longer than "
        "yield_ms goes on in the background, where the process tool follows it up; servers and watchers belong there "
        "from the start (background: true). What a command leaves running when it ends is stopped. timeout: seconds "
        "until it is stopped, in the background too (default 1800, 0 for never). pty: true gives it a terminal."
    )
    effects = "run"
    timeout = None
    input_type = ExecInput

    async def run(self, arguments: ExecInput, context: ToolContext) -> ToolOutput:
        """Start the command and wait for it, within the window."""
        registry = context.processes
        session = _start(arguments, context, registry)
        warnings = _warnings(arguments, session, registry)
        await _wait_or_stop(session, context, wait_window(arguments, registry))
        if session.exited:
            return _result(session, warnings, context.outputs)
        registry.move_to_background(session)
        return ToolOutput(_still_running(session, warnings), session.details())

    async def describe(self, arguments: ExecInput, context: ToolContext) -> list[CallPart]:
        """What the call would run, where and how."""
        try:
            workdir = resolve_path(context, arguments.workdir).path
        except ToolError as exc:
            workdir = f"{arguments.workdir} (the call will fail: {exc})"
        env = [CallPart("env", f"{name}={value}") for name, value in arguments.env.items()]
        how = ", ".join(_option_words(arguments))
        options = [CallPart("how", how)] if how else []
        return [CallPart("workdir", workdir), *env, *options, CallPart("command", arguments.command)]


def _option_words(arguments: ExecInput) -> Iterator[str]:
    """The options of the call that differ from the defaults, in words."""
    if arguments.background:
        yield "in the background"
    if arguments.pty:
        yield "with a terminal"
    if arguments.timeout != _DEFAULT_TIMEOUT:
        yield f"stopped after {arguments.timeout:g} s" if arguments.timeout else "without a time limit"


def wait_window(arguments: ExecInput, registry: ProcessRegistry) -> float:
    """Seconds that the call waits before its command goes to the background; infinite where it may not."""
    asks_for_it = arguments.background or arguments.yield_ms is not None
    may_go = registry.allow_background and (registry.yields or asks_for_it)
    if not may_go:
        return float("inf")
    if arguments.background:
        return 0.0
    asked = 10_000 if arguments.yield_ms is None else arguments.yield_ms
    return min(max(asked, 10), 120_000) / 1000


def _start(arguments: ExecInput, context: ToolContext, registry: ProcessRegistry) -> ExecSession:
    workdir = resolve_path(context, arguments.workdir).path
    if not Path(workdir).is_dir():
        raise ToolError(f"workdir {arguments.workdir} is no directory", "validation")
    for name in arguments.env:
        if not may_be_set(name):
            raise ToolError(f"the variable {name} may not be set", "validation")
    command = ShellCommand(
        line=arguments.command,
        cwd=workdir,
        environment={**context.environment, **arguments.env},
        timeout=arguments.timeout or None,
        terminal=arguments.pty,
        takes_input=registry.allow_background,
    )
    try:
        return registry.start(command, scope_key=context.scope_key)
    except SpawnFailed as exc:
        raise ToolError(str(exc)) from exc


def _warnings(arguments: ExecInput, session: ExecSession, registry: ProcessRegistry) -> str:
    warnings = [] if session.warning is None else [session.warning]
    if arguments.background and not registry.allow_background:
        warnings.append("nothing may go to the background here; the call waited for the end of the command")
    return "".join(f"Warning: {warning}.\n" for warning in warnings)


async def _wait_or_stop(session: ExecSession, context: ToolContext, window: float) -> None:
    """Wait for the end, or for the window to pass, telling progress meanwhile. Cancelled, it ends the command first."""
    try:
        await session.wait_ended(context.report, window)
    except BaseException:  # a nursery makes a group of what cancels it
        session.stop()
        with trio.CancelScope(shield=True):  # its registry bounds it
            await session.ended.wait()
        raise


def _result(session: ExecSession, warnings: str, outputs: str) -> ToolOutput:
    said = shorten(session.output.text(), keep="end", outputs=outputs, lost=session.output.truncated)
    note = _end_note(session)
    text = warnings + ("\n".join(part for part in (said, note) if part) or "(no output)")
    if session.status == "failed":
        raise ToolError(text, details=session.details())
    return ToolOutput(text, session.details())


def _end_note(session: ExecSession) -> str:
    if session.timed_out:
        return f"(Command timed out after {session.command.timeout:g} s)"
    if session.exit_signal is not None:
        return f"(Command was killed by signal {session.exit_signal})"
    return f"(Command exited with code {session.exit_code})" if session.exit_code else ""


def _still_running(session: ExecSession, warnings: str) -> str:
    return (
        f"{warnings}The command still runs in the background (session {session.id}, pid {session.pid}). "
        "Follow it up with the process tool: poll, log, write, submit, send_keys, paste, kill."
    )
