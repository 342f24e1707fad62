"""The picture as exactly so many lines and columns of a terminal. Pure: a picture in, a renderable out."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from doors.event_lines import EventLines, shorten
from doors.layout import Column, Rows, make_table
from doors.questions import question_lines, short_key
from doors.tables import waiting_table, workers_table
from doors.texts import clean, span
from doors.top.picture import Picture
from doors.top.sparks import spark

__all__ = ["LEAST_COLUMNS", "LEAST_LINES", "draw"]

LEAST_COLUMNS, LEAST_LINES = 60, 22
_LEAST_PART = 4
"""Lines of a table that is cut: its heading, a row, how many more there are, a blank one."""
_WIDE = 150
_BESIDE_THE_LINE = 46
"""Columns that a session's line leaves to the others of its row, at least."""
_KEYS = "q quit   space hold"
_STATE_STYLES = {"WORKING": "green", "PAUSED": "yellow", "waiting": "yellow", "failed": "red", "READY": "dim"}

Record = dict[str, Any]
Lines = list[RenderableType]


class _Frame:
    """What all parts are drawn with."""

    def __init__(self, picture: Picture, now: float, *, is_coloured: bool, ascii_only: bool, place: str) -> None:
        self.picture = picture
        self.now = now
        self.is_coloured = is_coloured
        self.ascii_only = ascii_only
        self.place = place


def draw(
    picture: Picture,
    width: int,
    height: int,
    *,
    now: float,
    held: bool = False,
    is_coloured: bool = True,
    ascii_only: bool = False,
    place: str = "",
) -> RenderableType:
    """The whole screen, at most ``height`` lines. ``now``: Unix time. ``held``: it says that it does not move.

    ``place``: the options by which shown commands find the supervisor.
    """
    if width < LEAST_COLUMNS or height < LEAST_LINES:
        return Text(f"pool top needs {LEAST_COLUMNS} columns and {LEAST_LINES} lines; q quits", "yellow")
    frame = _Frame(picture, now, is_coloured=is_coloured, ascii_only=ascii_only, place=place)
    foot = Text.assemble((_KEYS, "dim"), ("   held" if held else "", "yellow"))
    if picture.status is None:
        return Group(Text("pool", "bold"), Text(picture.trouble or "asking the supervisor", "yellow"), foot)
    head = _head(frame, width)
    room = height - len(head) - 1
    asked = _questions(frame, width, room)
    body = (_wide if width >= _WIDE else _narrow)(frame, width, room - len(asked))
    return Group(*head, *asked, body, foot)


def _head(frame: _Frame, width: int) -> list[Text]:
    """Three lines: how the pool stands, two lines of figures; a fourth where something is wrong."""
    status = frame.picture.status or {}
    pool = status["pool"]
    mode_style = "green" if pool["mode"] == "running" else "yellow"
    parts = [f"{pool[name]} {name}" for name in ("leased", "idle", "starting", "stopping", "waiting") if pool[name]]
    runs = f"{status['gateway']['runs']} runs"
    up = f"up {span(status['supervisor']['uptime'])}"
    first = Text.assemble(
        ("pool ", "bold"), (pool["mode"], mode_style), (f"  {pool['total']}/{pool['max']} workers  ", "bold")
    )
    first.append("  ".join([*parts, runs, up]))
    lines = [first, *_figures(frame, width), Text()]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    if frame.picture.trouble is not None:
        lines.insert(1, Text(clean(frame.picture.trouble), "bold red", no_wrap=True, overflow="ellipsis"))
    return lines


def _figures(frame: _Frame, width: int) -> list[Text]:
    picture, now = frame.picture, frame.now
    latency = (picture.status or {})["latency"]
    turns, told = picture.turns.sums(now), picture.told.sums(now)
    half = (width - 2) // 2
    cells: list[tuple[str, str, Sequence[float | None]]] = [
        ("wait", _quantiles(latency["acquire"]), picture.wait.means(now)),
        ("turn", _quantiles(latency["turn"]), picture.turn.means(now)),
        ("turns", f"{sum(turns[-30:]):.0f}/min", turns),
        ("events", f"{sum(told[-5:]) / 10:.0f}/s", told),
    ]
    texts = [_figure(frame, name, text, values, half) for name, text, values in cells]
    return [Text.assemble(texts[0], "  ", texts[1]), Text.assemble(texts[2], "  ", texts[3])]


def _figure(frame: _Frame, name: str, text: str, values: Sequence[float | None], width: int) -> Text:
    head = f"{name:<6} {text:<21} "
    line = spark(values, max(0, width - len(head)), ascii_only=frame.ascii_only)
    return Text.assemble((f"{name:<6} ", "dim"), (f"{text:<21} ", "bold"), (f"{line:<{width - len(head)}}", "cyan"))


def _quantiles(latency: Record) -> str:
    return f"p50 {span(latency['p50'])} p99 {span(latency['p99'])}" if latency["count"] else "-"


def _questions(frame: _Frame, width: int, room: int) -> list[Text]:
    """As many as leave two thirds of the room. What is asked is cut at the edge; what is to be typed is not."""
    asked = (frame.picture.status or {})["gateway"]["permissions"]
    beside = 3 * _LEAST_PART  # workers, waiters, sessions; a question has two lines, and a blank one is below the last
    most = max(1, min(len(asked), room // 6, (room - beside - 1) // 2))
    lines = list(question_lines(asked[:most], frame.place, columns=width))
    for line in lines:
        line.no_wrap, line.overflow = True, line.overflow or "ellipsis"
    return [*lines, Text()] if lines else []


# --- the parts --------------------------------------------------------------------------------------------------------


def _narrow(frame: _Frame, width: int, room: int) -> RenderableType:
    """One below the other: workers get two fifths at most, waiters and sessions what is fair, events the rest."""
    waiting = (frame.picture.status or {})["waiting"]
    workers = _part(frame.picture.workers(), workers_table, width, max(_LEAST_PART, room * 2 // 5))
    waiters = _part(waiting, waiting_table, width, max(_LEAST_PART, room // 6)) if waiting else []
    left = room - _lines(workers) - _lines(waiters)
    sessions = _part(frame.picture.sessions(), _sessions_table, width, max(_LEAST_PART, left // 2))
    events = _events(frame, width, left - _lines(sessions))
    return Group(*workers, *waiters, *sessions, *events)


def _wide(frame: _Frame, width: int, room: int) -> RenderableType:
    """Workers and waiters to the left; sessions and events to the right."""
    left_width = width * 11 // 20
    right_width = width - left_width - 2
    waiting = (frame.picture.status or {})["waiting"]
    waiters = _part(waiting, waiting_table, left_width, max(_LEAST_PART, room // 3)) if waiting else []
    workers = _part(frame.picture.workers(), workers_table, left_width, room - _lines(waiters))
    sessions = _part(frame.picture.sessions(), _sessions_table, right_width, max(_LEAST_PART, room // 2))
    events = _events(frame, right_width, room - _lines(sessions))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=left_width)
    grid.add_column(width=right_width)
    grid.add_row(Group(*workers, *waiters), Group(*sessions, *events))
    return grid


def _part(
    records: Sequence[Record], table: Callable[[Sequence[Record], int], RenderableType], width: int, most: int
) -> Lines:
    """A table of at most ``most`` lines, its heading and a blank line below among them; says how many are left out."""
    fitting = len(records) if len(records) + 2 <= most else max(1, most - 3)
    parts: Lines = [table(records[:fitting], width)]
    if fitting < len(records):
        parts.append(Text(f"and {len(records) - fitting} more", "dim"))
    return [*parts, Text()]


def _lines(parts: Lines) -> int:
    """How many lines they take: a table one for each row and one for its heading."""
    return sum(each.line_count if isinstance(each, Rows) else 1 for each in parts)


def _sessions_table(sessions: Sequence[Record], width: int) -> RenderableType:
    columns = [
        Column("SESSION", lambda s: short_key(s["key"]), stretches=True),
        Column("STATE", lambda s: Text(s["state"], _STATE_STYLES[s["state"]])),
        Column("WORKER", lambda s: clean(s["worker"]), optional=1),
        Column("WAITING", lambda s: clean(s["waiting"] or "-"), right=True, optional=2),
        Column("LAST LINE", lambda s: clean(_last_line(s["line"], max(20, width - _BESIDE_THE_LINE))), stretches=True),
    ]
    return make_table(columns, sessions, width, empty="no sessions")


def _last_line(text: str, width: int) -> str:
    """The end of it: what came last is what is new."""
    line = (text.rstrip().splitlines() or ["-"])[-1] or "-"
    return shorten(line, width, keep_end=True)


def _events(frame: _Frame, width: int, room: int) -> Lines:
    """The latest lines of the stream, filling what room is left."""
    if room < 2:
        return [Text()] * room
    lines = EventLines(width, is_coloured=frame.is_coloured)
    shown = [*lines.take(frame.picture.events), *lines.rest()]
    texts = [Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in shown[-(room - 1) :]]
    return [Text("EVENTS", "bold"), *texts, *(Text() for _ in range(room - 1 - len(texts)))]
