"""What is shown of the machines of a cluster and of their groups. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from commands.layout import Column, TableRows, make_table
from wire.terminal import clean, format_duration, format_size

Record = dict[str, Any]
_STATE_STYLES = {"up": "green", "draining": "yellow", "lost": "red", "refused": "red"}
_STATES = tuple(_STATE_STYLES)


def nodes_view(nodes: Sequence[Record], width: int) -> Group:
    """One line a node, this machine among them; what does not fit of why one is not there stands below."""
    table = _nodes_table(nodes, width)
    cut = table.cut_records("NOTE") if isinstance(table, TableRows) else []
    notes = [Text.assemble((f"{_name(nodes[at])}: ", "bold"), clean(nodes[at]["note"]), overflow="fold") for at in cut]
    return Group(table, *([Text()] if notes else []), *notes)


def _name(node: Record) -> str:
    return clean(node["name"] or ("(here)" if node["engine"] == "local" else "-"))


def _nodes_table(nodes: Sequence[Record], width: int) -> TableRows | Text:
    columns = [
        Column("NODE", _name),
        Column("GROUP", lambda n: clean(n["group"] or None), optional=1),
        Column("ENGINE", lambda n: clean(n["engine"] or None), optional=3),
        Column("STATE", _node_state),
        Column("SLOTS", _slots, right=True),
        Column("LOAD", lambda n: "-" if n["load"] is None else f"{n['load']:.1f}", right=True, optional=4),
        Column("MEM", _memory, right=True, optional=2),
        Column("RTT", lambda n: format_duration(n["rtt"]), right=True, optional=5),
        Column("NOTE", lambda n: clean(n["note"] or None), stretches=True),
    ]
    return make_table(columns, nodes, width, empty="no other machines; [cluster] in the settings names some")


def node_column(workers: Sequence[Record]) -> list[Column]:
    """Where each worker runs; no column where all of them run here."""
    if not any(worker.get("node") for worker in workers):
        return []
    return [Column("NODE", lambda w: clean(w.get("node") or "(here)"), stretches=True, optional=2)]


def group_lines(groups: Sequence[Record]) -> Iterator[Text]:
    """A line for each group of a status document."""
    for number, group in enumerate(groups):
        states = "  ".join(f"{group['nodes'][state]} {state}" for state in _STATES if group["nodes"].get(state))
        name = group["group"] or "(none)"
        heading = "groups    " if number == 0 else "          "
        yield Text(clean(f"{heading}{name}  {group['used']}/{group['slots']} slots  nodes: {states}"))


def nodes_summary(groups: Sequence[Record]) -> list[str]:
    """How many nodes there are in each state, this machine among them; nothing where there is no other."""
    sums = {state: sum(group["nodes"].get(state, 0) for group in groups) for state in _STATES}
    said = [f"{count} {state}" for state, count in sums.items() if count]
    return [f"nodes {', '.join(said)}"] if said else []


def _node_state(node: Record) -> Text:
    state, until = node["state"], node["until"]
    left = "" if until is None else f", {'fenced in ' if state == 'lost' else ''}{format_duration(until)}"
    return Text(clean(f"{state}{left}{' left' if left and state != 'lost' else ''}"), _STATE_STYLES.get(state, ""))


def _slots(node: Record) -> str:
    """Used and all; one that was lost or refused has none."""
    return f"{node['used']}/{node['slots']}" if node["slots"] else "-"


def _memory(node: Record) -> str:
    """What is used of how much."""
    size, free = node["memory"], node["memory_free"]
    if size is None:
        return "-"
    return format_size(size) if free is None else f"{format_size(max(0, size - free))} of {format_size(size)}"
