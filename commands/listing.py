"""What the listings share: options that filter, sort and cut, and names alone for scripts. The choice is pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from commands.completion import complete_agents, complete_groups
from commands.options import inherited_option

Record = dict[str, Any]


class SortKey(NamedTuple):
    """What a listing can be sorted by; a record without a value comes last."""

    value: Callable[[Record], Any]
    is_descending: bool = False


class ListingOptions(NamedTuple):
    """How a listing is wanted. Empty and None: everything, in the supervisor's order."""

    states: tuple[str, ...] = ()
    owner: str | None = None
    sort: str | None = None
    limit: int | None = None
    quiet: bool = False


_OF_AGENT = inherited_option(
    "-a", "--agent", "owner", metavar="NAME", shell_complete=complete_agents, help="Of this agent definition."
)
OF_GROUP = inherited_option(
    "-g", "--group", "owner", metavar="NAME", shell_complete=complete_groups, help="Of this group."
)


def listing_options(
    states: Sequence[str], sort_keys: Mapping[str, SortKey], *, of: Callable[[Any], Any] = _OF_AGENT
) -> Callable[[Any], Any]:
    """Add ``--state``, ``--agent`` (or ``of``), ``--sort``, ``--limit`` and ``--quiet`` to a command and its group."""
    options = (
        inherited_option(
            "--state", "states", multiple=True, type=click.Choice(states), help="In this state (repeatable)."
        ),
        of,
        inherited_option("--sort", type=click.Choice(list(sort_keys)), help="Largest, latest or first name first."),
        inherited_option("--limit", type=click.IntRange(min=1), metavar="N", help="The first N only."),
        inherited_option("-q", "--quiet", is_flag=True, help="Names only, one a line."),
    )

    def add_options(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options


def choose_records(
    records: Sequence[Record],
    wanted: ListingOptions,
    sort_keys: Mapping[str, SortKey],
    *,
    state_of: Callable[[Record], str],
    owner: str = "agent",
) -> list[Record]:
    """The records that are wanted, in the order that is wanted; those that are equal keep theirs.

    ``owner``: the field of a record that has to be ``wanted.owner``.
    """
    found = [
        record
        for record in records
        if (not wanted.states or state_of(record) in wanted.states) and wanted.owner in (None, record.get(owner, ""))
    ]
    return sort_records(found, None if wanted.sort is None else sort_keys[wanted.sort])[: wanted.limit]


def sort_records(records: Sequence[Record], key: SortKey | None) -> list[Record]:
    """Sorted by the key; those without a value last, in the order they came."""
    if key is None:
        return list(records)
    valued = [record for record in records if key.value(record) is not None]
    rest = [record for record in records if key.value(record) is None]
    return [*sorted(valued, key=key.value, reverse=key.is_descending), *rest]
