"""``pool run``, ``stop``, ``pause``, ``resume``, ``drain``, ``reload``: commands for the supervisor itself."""

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from commands.options import as_seconds, connection_options, json_option, load_with_flags, print_answer, with_client
from doors.control.client import SLOW_ANSWER_SECONDS, ControlClient
from errors import RequestTimeout
from wire.terminal import clean


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
@click.pass_context
@_no_garbage_collection()
def run(
    ctx: click.Context, /, socket: str | None, config: str | None, data_dir: str | None, **limits: int | None
) -> None:
    """Run a supervisor in the foreground, until SIGTERM, Ctrl-C or `pool stop`."""
    # trio and the pool: no client command may pay for them
    from app import supervisor
    from app.console import exit_if_output_blocked
    from app.hardening import bound_heap, harden
    from doors.locations import resolve_socket

    harden()
    bound_heap(os.environ)
    read = functools.partial(load_with_flags, config, data_dir, machine=os.environ, **limits)
    settings = read()
    where = Path(settings.data_dir)
    path = resolve_socket(socket, os.environ, settings.socket, where)
    with exit_if_output_blocked():
        code = supervisor.run(settings, data_dir=where, socket=path, live=sys.stderr.isatty(), reread=read)
    ctx.exit(code)


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
@with_client
def pause(client: ControlClient) -> None:
    """Grant no more workers until `pool resume`; turns in flight go on."""
    client.call("pause")
    click.echo("paused")


@click.command()
@with_client
def resume(client: ControlClient) -> None:
    """Undo `pool pause` or `pool drain`."""
    client.call("resume")
    click.echo("running")


@click.command()
@click.option(
    "--timeout", callback=as_seconds, metavar="TIME", help="How long turns may take to end (pool.drain_timeout)."
)
@with_client
def drain(client: ControlClient, timeout: float | None) -> None:
    """Take nothing new, let turns in flight end, stop all workers; the supervisor stays."""
    if not client.call("drain", {"timeout": timeout}, timeout=None)["drained"]:
        raise RequestTimeout("turns are still running; the pool goes on draining")
    click.echo("drained")


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
