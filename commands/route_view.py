"""What every layer of the router decides about a message, as a picture. Pure: the document in, a renderable out."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wire.terminal import clean

Record = dict[str, Any]


def route_view(decision: Record) -> Table:
    """What each layer found, bold, and below it why."""
    reasons = decision["reasons"]
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, found, why in (
        ("agent", decision["agent"], _agent(reasons["agent"])),
        ("session", decision["session"], _why(reasons["session"]["reason"])),
        ("role", decision["role"], _role(reasons["role"])),
        ("workspace", decision["workspace"], _why(f"from {reasons['workspace']['source']}")),
        ("priority", str(decision["priority"]), _why(reasons["priority"]["reason"])),
        ("text", decision["text"] or "(none)", None),
    ):
        parts: list[RenderableType] = [Text(clean(found), "bold", overflow="fold")]
        table.add_row(Text(name, "dim"), Group(*parts, *([] if why is None else [why])))
    return table


def _agent(finding: Record) -> RenderableType:
    why = _why(finding["reason"])
    return Group(why, _bindings(finding)) if finding["bindings"] else why


def _bindings(finding: Record) -> Table:
    """Every binding that was looked at, the chosen one marked."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for binding in finding["bindings"]:
        is_chosen = binding["index"] == finding["binding"]
        held = binding["score"] is not None
        came_of_it = f"score {binding['score']}" if held else clean(binding["failed"])
        table.add_row(
            Text("*" if is_chosen else " ", "green"),
            Text(f"binding {binding['index'] + 1}", "" if held else "dim"),
            Text(clean(binding["agent"]), "" if held else "dim"),
            Text(came_of_it, "green" if is_chosen else "" if held else "dim", overflow="fold"),
        )
    return table


def _role(finding: Record) -> Text:
    return _why(f"from {finding['source']}{_unset_text(finding['unset'])}")


def _unset_text(places: Sequence[str]) -> str:
    return f"; not set: {', '.join(places)}" if places else ""


def _why(text: str) -> Text:
    return Text(clean(text), "dim", overflow="fold")
