"""A session, its messages, background commands and system events on the terminal. Pure: documents in, views out."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.event_text import format_fields, resumption_text
from commands.layout import Column, TableRows, make_table, short_key
from commands.report_text import report_rows
from commands.session_states import listed_state
from wire.terminal import clean, clean_stream, format_duration, format_size

Record = dict[str, Any]

_ROLES = {"user": "bold cyan", "assistant": "bold green"}
_PREVIEW_CHARS = 200


def session_view(session: Record) -> RenderableType:
    """What is known of a session, a line each, but for what it asks people."""
    return record_view({**session, "state": listed_state(session)})


def record_view(record: Record) -> RenderableType:
    """What is known of a session or a worker, a line each, but for what it asks people."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in record.items():
        if name not in ("pending_permissions", "report", "context") and value not in (None, "", [], {}):
            table.add_row(Text(clean(name), "dim"), Text(_format_value(name, value), overflow="fold"))
    for name, text in report_rows({**(record.get("report") or {}), "context": record.get("context")}):
        if name != "model" or not record.get(name):  # the session's own model is the worker's
            table.add_row(Text(name, "dim"), Text(text, overflow="fold"))
    return table


def history_view(history: Record, _width: int) -> RenderableType:
    """The messages, oldest first. Each agent keeps its own shape of them; what is not known here is left out."""
    messages = history["messages"]
    if not messages:
        return Text("nothing was said yet", "dim")
    parts = [part for message in messages for part in _message(message)]
    return Group(*parts[:-1])  # the last one is the empty line behind a message


_FORMATS: dict[str, Callable[[Any], str]] = {
    "age": format_duration,
    "turn_age": format_duration,
    "last_ping": format_duration,
    "rss": format_size,
    "cpu": format_duration,
}
"""Of fields whose numbers have a unit; ``cpu`` is processor time."""


def _format_value(name: str, value: Any) -> str:
    if name in _FORMATS:
        return _FORMATS[name](value)
    if name.endswith("_at") and isinstance(value, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return format_fields(value) if isinstance(value, dict) else clean(value)


def _message(message: Record) -> Iterator[RenderableType]:
    role = str(message.get("role", ""))
    lines = [line for block in _blocks(message.get("content")) for line in _block(block)]
    if lines:
        if resumption := resumption_text(message.get("strategy")):
            yield _dim_line(f"({resumption})")
            yield Text()
        joined = ", into the running turn" if message.get("origin") == "steer" else ""
        yield Text(clean(role) + joined, _ROLES.get(role, "bold"))
        yield from lines
        yield Text()


def _blocks(content: Any) -> list[Record]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _block(block: Record) -> Iterator[Text]:
    match block:
        case {"type": "text", "text": str(text)}:
            if text.strip():
                yield Text(clean_stream(text).strip("\n"), overflow="fold")
        case {"type": "thinking"}:
            yield _dim_line(f"({block.get('thinking') or block.get('text') or '...'})")
        case {"type": "tool_use" | "toolCall", "name": name}:
            yield _dim_line(f"· {name} {_preview(block.get('input', block.get('arguments')))}")
        case {"type": "tool_result", "content": content}:
            yield _dim_line(f"{'!' if block.get('is_error') else '='} {_preview(content)}")
        case {"type": "image"}:
            yield _dim_line("(an image)")


def _dim_line(text: str) -> Text:
    return Text(clean(text)[:_PREVIEW_CHARS], "dim", overflow="fold")


def _preview(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def system_events_table(answer: dict[str, Any], width: int) -> TableRows | Text:
    """One line for each event of ``events.peek``, in the order of delivery."""
    columns = [
        Column("CAME", lambda e: time.strftime("%H:%M:%S", time.localtime(e["ts"]))),
        Column("KIND", lambda e: clean(e["kind"])),
        Column("TEXT", lambda e: clean(e["text"]), stretches=True),
        Column("CONTEXT", lambda e: clean(e.get("context")), stretches=True, optional=1),
        Column("ID", lambda e: clean(e["id"]), optional=2),
    ]
    return make_table(columns, answer["events"], width, empty="no system events queued")


def processes_table(processes: Sequence[Record], width: int, now: float | None = None) -> TableRows | Text:
    """One line a background command. ``now``: Unix time."""
    moment = time.time() if now is None else now
    columns = [
        Column("PROCESS", lambda p: clean(p["id"])),
        Column("STATE", lambda p: Text(clean(_process_state(p)), _PROCESS_STYLES.get(p["state"], ""))),
        Column("SESSION", lambda p: short_key(p["session"]), stretches=True),
        Column("STARTED", lambda p: f"{format_duration(max(moment - p['started_at'], 0.0))} ago", right=True),
        Column("PID", lambda p: clean(p["pid"]), right=True, optional=1),
        Column("COMMAND", lambda p: clean(" ".join(p["command"].split())), stretches=True),
        Column(
            "LAST LINE", lambda p: clean(p["tail"].rstrip().rpartition("\n")[2] or None), stretches=True, optional=2
        ),
    ]
    return make_table(columns, processes, width, empty="no commands in the background")


_PROCESS_STYLES = {"running": "green", "completed": "dim", "failed": "red"}


def _process_state(process: Record) -> str:
    """Of one that has failed with its exit code, or the signal that ended it."""
    end = process.get("exit_signal") or process.get("exit_code")
    return f"{process['state']} ({end})" if end else str(process["state"])
