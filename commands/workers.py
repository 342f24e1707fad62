"""``pool workers``: list the worker processes; show, stop, recycle one."""

from typing import Any

import click

from commands.completion import complete_workers
from commands.groups import CommandGroup
from commands.listing import ListingOptions, SortKey, choose_records, listing_options
from commands.options import connection_options, json_option, print_answer, print_json, with_client
from doors.control.client import ControlClient
from errors import UsageError

WORKER_STATES = ("starting", "idle", "leased", "stopping")
WORKER_SORT_KEYS = {
    "age": SortKey(lambda worker: worker["age"], is_descending=True),
    "turn": SortKey(lambda worker: worker["turn_age"], is_descending=True),
    "turns": SortKey(lambda worker: worker["turns"], is_descending=True),
    "rss": SortKey(lambda worker: worker["rss"], is_descending=True),
    "cpu": SortKey(lambda worker: worker["cpu"], is_descending=True),
    "state": SortKey(lambda worker: worker["state"]),
    "session": SortKey(lambda worker: worker["session"]),
    "agent": SortKey(lambda worker: worker["agent"]),
}
_with_listing_options = listing_options(WORKER_STATES, WORKER_SORT_KEYS)
_worker_id = click.argument("worker_id", metavar="ID", shell_complete=complete_workers)


@click.group(cls=CommandGroup, invoke_without_command=True)
@_with_listing_options
@json_option
@connection_options
@click.pass_context
def workers(ctx: click.Context, /, **options: Any) -> None:
    """List the worker processes; show, stop, recycle one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_workers, **options)


@workers.command("list")
@_with_listing_options
@json_option
@with_client
def list_workers(client: ControlClient, *, as_json: bool, **options: Any) -> None:
    """List the worker processes."""
    from commands.output import show_records

    wanted = ListingOptions(**options)
    found = choose_records(
        client.call("workers.list"), wanted, WORKER_SORT_KEYS, state_of=lambda worker: str(worker["state"])
    )
    show_records("workers.list", found, names="id" if wanted.quiet else None, as_json=as_json)


@workers.command("show")
@_worker_id
@json_option
@with_client
def show_worker(client: ControlClient, worker_id: str, *, as_json: bool) -> None:
    """Show one worker."""
    found = next((each for each in client.call("workers.list") if each["id"] == worker_id), None)
    if found is None:
        raise UsageError(f"there is no worker {worker_id}; `pool workers` lists them")
    if as_json:
        print_json(found)
    else:
        from commands.output import open_console
        from commands.session_view import record_view

        open_console().print(record_view(found))


@workers.command("stop")
@_worker_id
@json_option
@with_client
def stop_worker(client: ControlClient, worker_id: str, *, as_json: bool) -> None:
    """Stop a worker now. A turn in flight fails; its session continues on another worker."""
    answer = client.call("workers.stop", {"worker": worker_id})
    print_answer(answer, f"worker {worker_id} is being stopped", as_json=as_json)


@workers.command("recycle")
@_worker_id
@json_option
@with_client
def recycle_worker(client: ControlClient, worker_id: str, *, as_json: bool) -> None:
    """Replace the worker at its next turn boundary."""
    answer = client.call("workers.recycle", {"worker": worker_id})
    print_answer(answer, f"worker {worker_id} will be replaced", as_json=as_json)
