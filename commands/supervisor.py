"""Commands for the supervisor itself: ``pool run``, ``stop``, ``restart``, ``scale``, ``pause`` and the like."""

import gc
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.options import (
    as_seconds,
    connection_flags,
    connection_options,
    current_arguments,
    json_option,
    load_with_flags,
    print_answer,
    with_client,
)
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import NoSupervisor, PoolClosed, PoolError, RequestTimeout, UsageError
from wire.terminal import clean

if TYPE_CHECKING:
    from settings.schema import Settings


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A tenth of the start: all that is imported and loaded stays. The supervisor begins to collect when it serves."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@click.command()
@connection_options
@click.option("--min", "min_workers", type=int, metavar="N", help="Idle workers to keep (pool.min).")
@click.option("--max", "max_workers", type=int, metavar="N", help="Worker processes at most (pool.max).")
@click.option("--detach", is_flag=True, help="Start it in the background; return when it is ready.")
@click.pass_context
@_no_garbage_collection()
def run(
    ctx: click.Context,
    /,
    socket: str | None,
    config: str | None,
    data_dir: str | None,
    *,
    detach: bool,
    **limits: int | None,
) -> None:
    """Run a supervisor in the foreground, until SIGTERM, Ctrl-C or `pool stop`."""
    if detach:
        _run_detached(Path(load_with_flags(config, data_dir, machine=os.environ, **limits).data_dir))
        return
    # trio and the pool: no client command may pay for them
    from app.console import exit_if_output_blocked
    from app.detach import start_again
    from app.hardening import bound_heap, harden
    from app.run import run as run_supervisor
    from doors.locations import resolve_socket

    def read(max_workers: int | None) -> "Settings":
        given = limits if max_workers is None else {**limits, "max_workers": max_workers}
        return load_with_flags(config, data_dir, machine=os.environ, **given)

    harden()
    bound_heap(os.environ)
    settings = read(None)
    where = Path(settings.data_dir)
    path = resolve_socket(socket, os.environ, settings.socket, where)
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with exit_if_output_blocked():
        if run_supervisor(settings, data_dir=where, socket=path, live=sys.stderr.isatty(), reread=read):
            start_again(ignores_hangup=ignores_hangup)
    ctx.exit(0)


def _run_detached(data_dir: Path) -> None:
    """Start the same command without ``--detach`` in the background."""
    from app.detach import start_detached

    pid = start_detached(current_arguments(leave_out=("detach",)), data_dir)
    place = connection_flags()
    click.echo(f"the supervisor runs in the background (pid {pid})")
    click.echo(f"its log: pool logs --supervisor -f{place}\nend it: pool stop{place}")


@click.command()
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="Give up waiting after this; the supervisor still stops."
)
@with_client
def stop(client: ControlClient, timeout: float | None) -> None:
    """Stop the supervisor: turns in flight end first (pool.drain_timeout), then its workers."""
    stop_supervisor(client, timeout)
    click.echo("the supervisor has stopped")


def stop_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Ask the supervisor to stop and wait for its end. Raises RequestTimeout when it takes longer than ``timeout``."""
    for what in client.call("shutdown")["waits_for"]:
        sys.stderr.write(f"waits for {clean(what)}\n")
    if not client.wait_closed(timeout):
        raise RequestTimeout(f"the supervisor is still ending its turns after {timeout:g} s; it goes on stopping")


@click.command()
@json_option
@with_client
def pause(client: ControlClient, *, as_json: bool) -> None:
    """Grant no more workers until `pool resume`; turns in flight go on."""
    print_answer(client.call("pause"), "paused", as_json=as_json)


@click.command()
@json_option
@with_client
def resume(client: ControlClient, *, as_json: bool) -> None:
    """Undo `pool pause` or `pool drain`."""
    print_answer(client.call("resume"), "running", as_json=as_json)


@click.command()
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="How long turns may take to end (pool.drain_timeout)."
)
@json_option
@with_client
def drain(client: ControlClient, timeout: float | None, *, as_json: bool) -> None:
    """Take nothing new, let turns in flight end, stop all workers; the supervisor stays."""
    answer = client.call("drain", {"timeout": timeout}, timeout=None)
    if not answer["drained"]:
        raise RequestTimeout("turns are still running; the pool goes on draining")
    print_answer(answer, "drained", as_json=as_json)


@click.command()
@json_option
@with_client
def reload(client: ControlClient, *, as_json: bool) -> None:
    """Reload the settings file. A file with an error is refused as a whole."""
    result = client.call("reload", timeout=SLOW_ANSWER_SECONDS)
    text = f"changed: {clean(', '.join(result['changed']) or 'nothing')}"
    if result["needs_restart"]:
        text += f"\ntakes effect at the next start: {clean(', '.join(result['needs_restart']))}"
    print_answer(result, text, as_json=as_json)


@click.command()
@json_option
@click.argument("workers", metavar="N", type=click.IntRange(1, 100_000))
@with_client
def scale(client: ControlClient, workers: int, *, as_json: bool) -> None:
    """Have at most N worker processes (pool.max), at once and until the supervisor ends; the settings file stays.

    With fewer, idle workers stop at once and others when their turns have ended. Sessions go on.
    """
    answer = client.call("scale", {"max": workers}, timeout=SLOW_ANSWER_SECONDS)
    keep = f"pool config set pool.max {answer['max']}"
    text = f"pool.max: {answer['before']} -> {answer['max']}, until the supervisor ends; to keep it: {keep}"
    print_answer(answer, text, as_json=as_json)


@click.command()
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="Give up waiting after this; it goes on restarting."
)
@with_client
def restart(client: ControlClient, timeout: float | None) -> None:
    """Stop the supervisor as `pool stop` does, then start it again in place: same options, terminal, environment.

    A supervisor that a service manager has started is restarted by that. Settings with an error are refused before.
    """
    restart_supervisor(client, timeout)
    click.echo("the supervisor has restarted")


def restart_supervisor(client: ControlClient, timeout: float | None) -> None:
    """Have the supervisor stop and start again; returns when it serves. Raises PoolError where it does not."""
    deadline = None if timeout is None else time.monotonic() + timeout
    answer = client.call("restart", timeout=SLOW_ANSWER_SECONDS)
    if not answer["restarting"]:
        _restart_service(answer["service"]["unit"], answer["service"]["manager"])
        return
    for what in answer["waits_for"]:
        sys.stderr.write(f"waits for {clean(what)}\n")
    process = client.open_process()
    try:
        if not client.wait_closed(timeout, process_too=False):
            raise RequestTimeout(f"the supervisor is still ending its turns after {timeout:g} s; it goes on restarting")
        _wait_until_served(client.path, process, deadline)
    finally:
        if process is not None:
            os.close(process)


_CONNECT_PAUSE = 0.1


def _wait_until_served(path: Path, process: int | None, deadline: float | None) -> None:
    """Try to reach the process that starts in the old one's place; its end ends the wait at once."""
    while True:
        try:
            with ControlClient(path) as client:
                client.call("ping")
                return
        except (NoSupervisor, PoolClosed):
            if deadline is not None and time.monotonic() >= deadline:
                raise RequestTimeout("the supervisor is still starting; it goes on") from None
        if select.select([] if process is None else [process], [], [], _CONNECT_PAUSE)[0]:
            raise PoolError("the supervisor has stopped, and did not start again: pool logs --supervisor says why")


def _restart_service(unit: str, manager: str) -> None:
    """Have systemd restart the unit; its own words go to the terminal. Raises PoolError where it fails."""
    command = ["systemctl", *(["--user"] if manager == "user" else []), "restart", unit]
    try:
        code = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        raise UsageError(
            f"this supervisor is the service {unit}, and there is no systemctl here to restart it"
        ) from None
    if code != 0:
        raise PoolError(f"`{' '.join(command)}` failed with code {code}; `pool service status` says more")
