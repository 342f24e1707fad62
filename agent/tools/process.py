"""The tool ``process``: lists background commands, shows their output, sends them input, ends them.

A failure is a result that says so, not an error: a command may end at any moment.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import trio

from agent.processes.exec_session import INPUT_ACTIONS, ExecSession, InputClosed, ProcessInput
from agent.processes.registry import ProcessRegistry
from agent.tools.base import Report, Tool, ToolContext, ToolOutput
from agent.tools.pages import shorten
from wire.call_page import CallPart

_COMMAND_CHARS = 80


class ProcessTool(Tool):
    """Follow up commands that ``exec`` left in the background."""

    name = "process"
    description = (
        "Follow up commands in the background. list; poll (new output and status; timeout: seconds to wait for the "
        "end, up to 30); log (offset, limit: lines; without both the last 200); write (data, eof); submit (data and "
        "Enter); send_keys (keys: Enter, C-c, Up, F5, ...); paste (data); kill; clear (forget what has ended); remove "
        "(kill or clear)."
    )
    effects = "run"
    input_type = ProcessInput

    async def run(self, arguments: ProcessInput, context: ToolContext) -> ToolOutput:
        """Perform the action for the agent."""
        return await perform_action(arguments, context.processes, context.scope_key, context.outputs, context.report)

    async def describe(self, arguments: ProcessInput, context: ToolContext) -> list[CallPart]:
        """What the call would do, and to which command."""
        session = context.processes.get(arguments.session_id or "", context.scope_key)
        about = [] if arguments.session_id is None else [CallPart("session", arguments.session_id)]
        command = [] if session is None else [CallPart("running", session.command.line)]
        return [CallPart("action", arguments.action), *about, *command, *_input_parts(arguments)]


def _input_parts(arguments: ProcessInput) -> Iterator[CallPart]:
    """The input for the command; a submit ends with Enter."""
    match arguments.action:
        case "write" | "paste":
            yield CallPart("input", arguments.data)
        case "submit":
            yield CallPart("input", f"{arguments.data}\n")
        case "send_keys":
            yield CallPart("keys", " ".join(arguments.keys))
    if arguments.eof:
        yield CallPart("then", "its input ends")


async def perform_action(
    arguments: ProcessInput,
    registry: ProcessRegistry,
    scope_key: str,
    outputs: str = "",
    report: Report = lambda _: None,
    *,
    observes: bool = False,
) -> ToolOutput:
    """Do it, for the commands of this scope only; ``outputs`` is the directory for output that is too long to show.

    ``observes``: a front end asks. Its polls have a place of their own in the output, and leave to the agent what the
    agent has not seen: output, and the notice of the end.
    """
    if arguments.action == "list":
        return _list(registry, scope_key)
    if arguments.action == "clear" and arguments.session_id is None:
        return _clear_all(registry, scope_key)
    session = registry.get(arguments.session_id or "", scope_key)
    if session is None:
        return _failure(f"there is no session {arguments.session_id!r}; the action list shows those that there are")
    try:
        return await _ACTIONS[arguments.action](_ActionRequest(arguments, registry, session, outputs, report, observes))
    except (InputClosed, UnknownKey) as exc:
        return _failure(str(exc), session)


class _ActionRequest(msgspec.Struct, frozen=True):
    arguments: ProcessInput
    registry: ProcessRegistry
    session: ExecSession
    outputs: str
    report: Report
    observes: bool


def _list(registry: ProcessRegistry, scope_key: str) -> ToolOutput:
    sessions = registry.sessions(scope_key)
    lines = [f"{session.id}  {session.state}  pid {session.pid}  {_short_command(session)}" for session in sessions]
    details = [{**session.details(), "command": session.command.line} for session in sessions]
    text = "\n".join(lines) or "Nothing runs in the background, and nothing there has ended lately."
    return ToolOutput(text, {"status": "completed", "sessions": details})


async def _poll(request: _ActionRequest) -> ToolOutput:
    session = request.session
    said, is_lost = await (_poll_for_front_end(request) if request.observes else _poll_for_agent(request))
    shown = shorten(said, keep="end", outputs=request.outputs, lost=is_lost) if said else "(no new output)"
    return ToolOutput(f"{shown.rstrip(chr(10))}\n\n{_status_line(session)}", session.details())


async def _poll_for_front_end(request: _ActionRequest) -> tuple[str, bool]:
    """What the command has said since a front end's last poll, and whether some of that is lost."""
    session = request.session
    with trio.move_on_after(_wait_seconds(request)):
        await session.ended.wait()
    said, session.observed_chars, is_lost = session.output.since(session.observed_chars)
    return said, is_lost


async def _poll_for_agent(request: _ActionRequest) -> tuple[str, bool]:
    """The same since the agent's last poll; the agent knows of the end then, if it has come.

    While a poll waits, the end is not announced; when the poll is cancelled, it is.
    """
    session = request.session
    session.watchers += 1
    try:
        await session.wait_ended(request.report, _wait_seconds(request))
    except BaseException:  # a cancellation, or a group of them
        session.watchers -= 1
        request.registry.notify_exit(session)
        raise
    session.watchers -= 1
    if session.exited:
        session.exit_notified = True
    return request.registry.read_unseen(session)


def _wait_seconds(request: _ActionRequest) -> float:
    return min(request.arguments.timeout, 30.0)


async def _log(request: _ActionRequest) -> ToolOutput:
    arguments, session = request.arguments, request.session
    lines = session.output.text().removesuffix("\n").split("\n") if session.output.size else []
    first = arguments.offset or 0
    if arguments.offset is None:  # the end
        first = max(0, len(lines) - (200 if arguments.limit is None else arguments.limit))
    last = len(lines) if arguments.limit is None else min(len(lines), first + arguments.limit)
    what = f"[lines {first + 1} to {last} of {len(lines)}]" if last > first else f"[none of {len(lines)} lines]"
    if session.output.truncated:
        what = f"{what} [the beginning of the output is no longer kept]"
    shown = shorten("\n".join(lines[first:last]), keep="start", outputs=request.outputs)
    return ToolOutput(f"{shown}\n{what}".lstrip("\n"), {**session.details(), "total_lines": len(lines)})


async def _send(request: _ActionRequest) -> ToolOutput:
    arguments, session = request.arguments, request.session
    is_terminal = session.stdin.is_terminal
    text = arguments.data
    match arguments.action:
        case "submit":
            text += "\r" if is_terminal else "\n"
        case "send_keys":
            if not is_terminal:
                raise UnknownKey("the command has no terminal (pty: true), so there are no keys; use write or submit")
            text = "".join(encode_key(key) for key in arguments.keys)
        case "paste":
            text = encode_paste(text, bracketed=is_terminal)
    data = text.encode(errors="replace")
    written = await session.stdin.write(data)
    if written < len(data):
        return _failure(f"the command does not read its input: it took {written} of {len(data)} bytes", session)
    if arguments.eof:
        await session.stdin.end()
    end = ", and ended its input" if arguments.eof else ""
    return ToolOutput(f"Wrote {written} bytes to session {session.id}{end}.", session.details())


async def _kill(request: _ActionRequest) -> ToolOutput:
    session = request.session
    if session.exited:
        return _failure(f"session {session.id} has ended already", session)
    await request.registry.kill(session)
    return ToolOutput(f"Killed session {session.id}.", session.details())


async def _clear(request: _ActionRequest) -> ToolOutput:
    session = request.session
    if not session.exited:
        return _failure(f"session {session.id} still runs; kill or remove it", session)
    session.exit_notified = True
    request.registry.forget(session)
    return ToolOutput(f"Cleared session {session.id}.", session.details())


async def _remove(request: _ActionRequest) -> ToolOutput:
    session = request.session
    verb = "Cleared" if session.exited else "Killed and removed"
    if not session.exited:
        await request.registry.kill(session)
    request.registry.forget(session)
    return ToolOutput(f"{verb} session {session.id}.", session.details())


def _clear_all(registry: ProcessRegistry, scope_key: str) -> ToolOutput:
    ended = [session for session in registry.sessions(scope_key) if session.exited]
    for session in ended:
        registry.forget(session)
    return ToolOutput(f"Cleared {len(ended)} sessions that had ended.", {"status": "completed", "cleared": len(ended)})


_ACTIONS: dict[str, Callable[[_ActionRequest], Awaitable[ToolOutput]]] = {
    "poll": _poll,
    "log": _log,
    **dict.fromkeys(INPUT_ACTIONS, _send),
    "kill": _kill,
    "clear": _clear,
    "remove": _remove,
}


def _failure(message: str, session: ExecSession | None = None) -> ToolOutput:
    facts: dict[str, Any] = {} if session is None else session.details()
    return ToolOutput(f"Failed: {message}.", {**facts, "status": "failed", "error": message})


def _status_line(session: ExecSession) -> str:
    if not session.exited:
        return f"(Session {session.id} still runs.)"
    return f"(Session {session.id} has ended: {session.status}, {session.state}.)"


def _short_command(session: ExecSession) -> str:
    line = " ".join(session.command.line.split())
    return line if len(line) <= _COMMAND_CHARS else f"{line[: _COMMAND_CHARS - 3]}..."


# fmt: off
_NAMED = {
    "enter": "\r", "tab": "\t", "btab": "\x1b[Z", "space": " ",
    "escape": "\x1b", "esc": "\x1b", "backspace": "\x7f", "bspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "insert": "\x1b[2~", "delete": "\x1b[3~", "pageup": "\x1b[5~", "pagedown": "\x1b[6~",
    "f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS", "f5": "\x1b[15~", "f6": "\x1b[17~",
    "f7": "\x1b[18~", "f8": "\x1b[19~", "f9": "\x1b[20~", "f10": "\x1b[21~", "f11": "\x1b[23~", "f12": "\x1b[24~",
}
# fmt: on
_CONTROL = ("c-", "ctrl-", "ctrl+", "^")
_META = ("m-", "alt-", "alt+", "meta-")


class UnknownKey(ValueError):
    """An unknown key; the message names it."""


def encode_key(key: str) -> str:
    """What a terminal sends for the key. Raises UnknownKey."""
    name = key.lower()
    if len(key) == 1:
        return key
    if name in _NAMED:
        return _NAMED[name]
    for prefix in _CONTROL:
        if name.startswith(prefix) and name != prefix:
            return _with_control(name.removeprefix(prefix), key)
    for prefix in _META:
        if name.startswith(prefix) and name != prefix:
            return "\x1b" + encode_key(key[len(prefix) :])
    raise UnknownKey(f"there is no key {key!r}; use names such as Enter, C-c, Up, F5, or single characters")


def encode_paste(text: str, *, bracketed: bool) -> str:
    """A pasted text; bracketed, a program can distinguish it from typing, and nothing in it ends it early."""
    return f"\x1b[200~{text.replace(chr(27), '')}\x1b[201~" if bracketed else text


def _with_control(rest: str, key: str) -> str:
    if rest == "space":
        return "\x00"
    if rest == "?":
        return "\x7f"
    if len(rest) == 1 and "@" <= rest.upper() <= "_":
        return chr(ord(rest.upper()) & 0x1F)
    raise UnknownKey(f"there is no key {key!r}: control goes with a letter or one of @[\\]^_?")
