"""``pool nodes``: list the machines of the cluster; drain one, let it take workers again."""

from typing import Any

import click

from commands.completion import complete_nodes
from commands.groups import CommandGroup
from commands.listing import OF_GROUP, ListingOptions, SortKey, choose_records, listing_options
from commands.options import as_seconds, connection_options, json_option, print_answer, with_client
from doors.control.client import ControlClient

NODE_STATES = ("up", "draining", "lost", "refused")
NODE_SORT_KEYS = {
    "name": SortKey(lambda node: node["name"]),
    "group": SortKey(lambda node: node["group"]),
    "state": SortKey(lambda node: node["state"]),
    "free": SortKey(lambda node: node["slots"] - node["used"], is_descending=True),
    "slots": SortKey(lambda node: node["slots"], is_descending=True),
    "load": SortKey(lambda node: node["load"], is_descending=True),
    "rtt": SortKey(lambda node: node["rtt"], is_descending=True),
}
_with_listing_options = listing_options(NODE_STATES, NODE_SORT_KEYS, of=OF_GROUP)
_node_name = click.argument("name", metavar="NAME", shell_complete=complete_nodes)


@click.group(cls=CommandGroup, invoke_without_command=True)
@_with_listing_options
@json_option
@connection_options
@click.pass_context
def nodes(ctx: click.Context, /, **options: Any) -> None:
    """List the machines of the cluster; drain one, let it take workers again."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_nodes, **options)


@nodes.command("list")
@_with_listing_options
@json_option
@with_client
def list_nodes(client: ControlClient, *, as_json: bool, **options: Any) -> None:
    """List the machines of the cluster, those that were lost or refused among them."""
    from commands.output import show_records

    wanted = ListingOptions(**options)
    known = client.call("nodes.list")
    if wanted.quiet:
        known = [node for node in known if node["name"]]  # this machine has no name, and cannot be drained alone
    found = choose_records(known, wanted, NODE_SORT_KEYS, state_of=lambda node: str(node["state"]), owner="group")
    show_records("nodes.list", found, names="name" if wanted.quiet else None, as_json=as_json)


@nodes.command("drain")
@_node_name
@click.option("--timeout", callback=as_seconds, metavar="TIME", help="End what still runs there after this long.")
@json_option
@with_client
def drain_node(client: ControlClient, name: str, *, timeout: float | None, as_json: bool) -> None:
    """Start nothing more on a node: idle workers end now, others with their turns. It stays linked."""
    result = client.call("nodes.drain", {"node": name, "timeout": timeout})
    text = f"node {name} is being drained; `pool nodes resume {name}` lets it take workers again"
    print_answer(result, text, as_json=as_json)


@nodes.command("resume")
@_node_name
@json_option
@with_client
def resume_node(client: ControlClient, name: str, *, as_json: bool) -> None:
    """Let a drained node take workers again."""
    result = client.call("nodes.resume", {"node": name})
    print_answer(result, f"node {name} takes workers again", as_json=as_json)
