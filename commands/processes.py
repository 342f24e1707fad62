"""``pool processes``: the commands that sessions have in the background: list, poll, log, write, kill, delete."""

import re
import sys
from typing import Any

import click

from commands.completion import complete_processes
from commands.groups import CommandGroup
from commands.options import (
    as_seconds,
    connection_options,
    inherited_option,
    json_option,
    print_json,
    read_text,
    session_option,
    with_client,
)
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import PoolError, PoolSaturated, UsageError, WorkerExited
from wire.messages import omit_none
from wire.terminal import clean, clean_stream

Record = dict[str, Any]

_optional_session = session_option(
    "Its session (default: that of the running command with this id).", is_inherited=True
)
_process_id = click.argument("process_id", metavar="ID", shell_complete=complete_processes)


_listed_session = session_option("Of this session, those that have ended lately too.", is_inherited=True)
_quiet = inherited_option("-q", "--quiet", is_flag=True, help="Ids only, one a line.")


@click.group(cls=CommandGroup, invoke_without_command=True)
@_listed_session
@_quiet
@json_option
@connection_options
@click.pass_context
def processes(ctx: click.Context, /, **options: Any) -> None:
    """List the background commands of sessions; poll, log, write, kill, delete one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_processes, **options)


@processes.command("list")
@_listed_session
@_quiet
@json_option
@with_client
def list_processes(client: ControlClient, session: str | None, *, quiet: bool, as_json: bool) -> None:
    """List the running commands of all sessions, or all of one session."""
    from commands.output import show_records

    found = _running_processes(client) if session is None else _processes_of(client, session)
    show_records("process", found, names="id" if quiet else None, as_json=as_json)


@processes.command("poll")
@_process_id
@_optional_session
@click.option(
    "--timeout", callback=as_seconds, default="0s", metavar="TIME", help="Wait for its end, 30 s at most (default: 0s)."
)
@json_option
@with_client
def poll(client: ControlClient, process_id: str, session: str | None, timeout: float, *, as_json: bool) -> None:
    """Print what a command has written since the last poll, and whether it runs. The agent still gets all of it."""
    answer = _act(client, "poll", process_id, session, timeout=timeout)
    said, gap, state = str(answer["text"]).rpartition("\n\n")
    _show(answer, f"{said}{gap}{_without_session(state, process_id)}", as_json=as_json)


@processes.command("log")
@_process_id
@_optional_session
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Leave out the first N lines.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="N lines only (default: the last 200).")
@json_option
@with_client
def log(client: ControlClient, process_id: str, session: str | None, *, as_json: bool, **lines: int | None) -> None:
    """Print the output of a command."""
    answer = _act(client, "log", process_id, session, **lines)
    _show(answer, str(answer["text"]), as_json=as_json)


@processes.command("write")
@_process_id
@_optional_session
@click.option("--no-enter", is_flag=True, help="Without Enter behind the text.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key instead of text: Enter, C-c, Up (repeatable).")
@click.option("--eof", is_flag=True, help="End the command's input.")
@json_option
@click.argument("text", required=False)
@with_client
def write(
    client: ControlClient,
    process_id: str,
    session: str | None,
    text: str | None,
    *,
    no_enter: bool,
    keys: tuple[str, ...],
    eof: bool,
    as_json: bool,
) -> None:
    """Type TEXT and Enter (-: all of stdin as it is) into a command. No approval is asked for."""
    if text is None and not keys and not eof:
        raise UsageError("give TEXT, --key or --eof")
    if text is not None and keys:
        raise UsageError("give either TEXT or --key")
    data = "" if text is None else read_text(text, sys.stdin.buffer)
    enter = text not in (None, "-") and not no_enter
    where = session or _session_of(client, process_id)
    params = {"session": where, "id": process_id, "data": data, "enter": enter, "keys": list(keys), "eof": eof}
    answer = _checked(client.call("process.write", params, timeout=SLOW_ANSWER_SECONDS), process_id)
    _show(answer, f"wrote to {process_id}{', and ended its input' if eof else ''}", as_json=as_json)


@processes.command("kill")
@_process_id
@_optional_session
@json_option
@with_client
def kill(client: ControlClient, process_id: str, session: str | None, *, as_json: bool) -> None:
    """Kill a command; its session gets the notice of its end."""
    _show(_act(client, "kill", process_id, session), f"killed {process_id}", as_json=as_json)


@processes.command("delete")
@_process_id
@_optional_session
@json_option
@with_client
def delete(client: ControlClient, process_id: str, session: str | None, *, as_json: bool) -> None:
    """Kill a command that runs, and forget it with its output."""
    _show(_act(client, "remove", process_id, session), f"deleted {process_id}", as_json=as_json)


def _act(client: ControlClient, action: str, process_id: str, session: str | None, /, **params: Any) -> Record:
    """Have the worker do it. Raises PoolError for what the command does not allow, such as input after its end."""
    where = session or _session_of(client, process_id)
    wanted = {"session_id": process_id, **omit_none(**params)}
    answer = client.call("process", {"session": where, "action": action, "params": wanted}, timeout=SLOW_ANSWER_SECONDS)
    return _checked(answer, process_id)


def _checked(answer: Record, process_id: str) -> Record:
    """A refusal is an answer whose ``error`` says why; a command that has failed has none."""
    if answer.get("error"):
        raise PoolError(_without_session(str(answer["error"]), process_id))
    return answer


def _without_session(text: str, process_id: str) -> str:
    """What the worker says of a command, which it calls a session: to people that is a conversation."""
    return re.sub(rf"[Ss]ession {re.escape(process_id)}\b", process_id, text)


def _show(answer: Record, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        click.echo(clean_stream(text))


def _running_processes(client: ControlClient) -> list[Record]:
    """Those of all sessions whose workers report some; a session that ends meanwhile has none any more."""
    sessions = [
        worker["session"] for worker in client.call("workers.list") if worker["session"] and worker["background"]
    ]
    found = []
    for session in sessions:
        try:
            found += [each for each in _processes_of(client, session) if each["state"] == "running"]
        except (UsageError, PoolSaturated, WorkerExited):  # its session is gone, or its worker is
            continue
    return found


def _processes_of(client: ControlClient, session: str) -> list[Record]:
    answer = client.call("process", {"session": session, "action": "list"}, timeout=SLOW_ANSWER_SECONDS)
    return [_listed(process, session) for process in answer["sessions"]]


def _listed(process: Record, session: str) -> Record:
    """The worker calls the command a session and its state a status; here these words mean something else."""
    facts = {name: value for name, value in process.items() if name not in ("session_id", "status")}
    return {"id": process["session_id"], "session": session, "state": process["status"], **facts}


def _session_of(client: ControlClient, process_id: str) -> str:
    """The session whose running command has this id. Raises UsageError where there is none, or several."""
    found = [each["session"] for each in _running_processes(client) if each["id"] == process_id]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise UsageError(
            f"{len(found)} sessions have a command {process_id}: {clean(', '.join(found))}; name one with -s"
        )
    raise UsageError(f"no session has a running command {process_id}; name the session of one that has ended with -s")
