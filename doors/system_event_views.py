"""What a session is to be told with its next turn, on the terminal. Pure: documents in, renderables out."""

import time
from typing import Any

from rich.text import Text

from doors.layout import Column, Rows, make_table
from doors.texts import clean

__all__ = ["system_events_table"]


def system_events_table(answer: dict[str, Any], width: int) -> Rows | Text:
    """One line an event of ``events.peek``, in the order in which they will be told."""
    columns = [
        Column("CAME", lambda e: time.strftime("%H:%M:%S", time.localtime(e["ts"]))),
        Column("KIND", lambda e: clean(e["kind"])),
        Column("TEXT", lambda e: clean(e["text"]), stretches=True),
        Column("CONTEXT", lambda e: clean(e.get("context")), stretches=True, optional=1),
        Column("ID", lambda e: clean(e["id"]), optional=2),
    ]
    return make_table(columns, answer["events"], width, empty="nothing waits to be told")
