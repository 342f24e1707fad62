"""The page of the WebSocket's methods, from the table that serves them."""

import inspect
from functools import partial

import msgspec

from doors.websocket import events as websocket_events
from doors.websocket.methods import METHODS
from manual.markdown import describe_structs, field_rows, prose, structs_in, table

_INTRODUCTION = """# WebSocket

`/ws` on the HTTP port speaks the gateway protocol, version 4 or 3. The first frame of a client is the request `connect`
(`minProtocol`, `maxProtocol`, `auth.token`); then requests `{"type": "req", "id", "method", "params"}` are answered
`{"type": "res", "id", "ok", "payload" | "error"}`, and events arrive as `{"type": "event", "event", "payload", "seq"}`.
`agent` and `chat.send` answer twice: accepted, and done. The [README](../../README.md#doors) has a program to copy.
"""


def websocket_page() -> str:
    """The page."""
    lines = [_INTRODUCTION]
    inner: list[type[msgspec.Struct]] = []
    for name, method in sorted(METHODS.items()):
        needs = "the right to approve" if method.scope is None else f"scope `{method.scope.name.lower()}`"
        function = method.run.func if isinstance(method.run, partial) else method.run
        lines += [f"## {name}", "", prose(inspect.getdoc(function) or ""), "", f"Needs {needs}.", ""]
        lines += table(("parameter", "type", "default", ""), field_rows(method.params))
        if method.ignored:
            lines += [f"Taken without effect: {', '.join(f'`{each}`' for each in sorted(method.ignored))}.", ""]
        inner += [each for field in msgspec.structs.fields(method.params) for each in structs_in(field.type)]
    lines += ["## Events", "", prose((websocket_events.__doc__ or "").partition("\n\n")[2]), ""]
    return "\n".join([*lines, *(["## Objects", "", *describe_structs(inner)] if inner else [])])
