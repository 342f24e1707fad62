"""``pool top``: its model (status, last lines, events, rates) and the screen of exact size. Pure: no clock."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.event_lines import EventFormatter, shorten
from commands.event_text import describe_event, event_data, event_text
from commands.layout import Column, TableRows, approval_lines, make_table, short_key
from commands.nodes_view import nodes_summary
from commands.session_states import STATE_STYLES, states_in_status
from commands.tables import waiting_table, workers_table
from commands.top_controls import Pane, TopControls
from commands.top_session import SessionLines
from wire.events import TEXT_KINDS, display_of, is_listed
from wire.messages import EventEnvelope
from wire.sparkline import TimeSeries, sparkline
from wire.terminal import clean, format_duration, format_percent

_KEPT_EVENTS = 500
_KEPT_SESSIONS = 5_000
_KEPT_RUNS = 5_000
_KEPT_TEXT = 400

Record = dict[str, Any]


class TopModel:
    """Everything that is drawn. ``error``: why the supervisor cannot be asked, while it cannot."""

    def __init__(self) -> None:
        self.status: Record | None = None
        self.error: str | None = None
        self.events_error: str | None = None
        """Why no events will come any more."""
        self.last_lines: dict[str, str] = {}
        """What each session said last."""
        self.last_seqs: dict[str, int] = {}
        """The latest event of each session."""
        self.events: deque[EventEnvelope] = deque(maxlen=_KEPT_EVENTS)
        """Those that are listed."""
        self.load: dict[str, float] = {}
        """The share of a processor that each worker has used between the last two documents, in percent."""
        self.wait, self.turn, self.turns, self.events_seen = TimeSeries(), TimeSeries(), TimeSeries(), TimeSeries()
        self._accepted_at: dict[str | None, float] = {}
        self._started_at: dict[str | None, float] = {}

    def update_status(self, status: Record) -> None:
        """A status document."""
        before, self.status, self.error = self.status, status, None
        seconds = 0.0 if before is None else status["supervisor"]["uptime"] - before["supervisor"]["uptime"]
        if before is None or seconds <= 0:
            self.load = {}
            return
        used = {worker["id"]: worker["cpu"] for worker in before["workers"]}
        self.load = {
            worker["id"]: 100 * max(0.0, worker["cpu"] - used[worker["id"]]) / seconds
            for worker in status["workers"]
            if worker["cpu"] is not None and used.get(worker["id"]) is not None
        }

    def add_events(self, events: Sequence[EventEnvelope]) -> None:
        """Events in their order."""
        self.events.extend(event for event in events if is_listed(event.type))
        for event in events:
            self.events_seen.add(event.ts)
            self.last_seqs.pop(event.session, None)
            self.last_seqs[event.session] = event.seq
            _drop_oldest(self.last_seqs, _KEPT_SESSIONS)
            self._record_timing(event)
            if event.session and display_of(event.type).is_activity:
                self._record_last_line(event)

    def workers(self) -> list[Record]:
        """Those of the status, with the load instead of the processor seconds used so far."""
        workers = [] if self.status is None else self.status["workers"]
        return [{**worker, "cpu": self.load.get(worker["id"])} for worker in workers]

    def sessions(self) -> list[Record]:
        """Those of the status, who waits for a person first, then those at work, each with its last line.

        Of those in the same state the one used last is the first; of those not used since ``pool top`` began, the one
        that the status names last.
        """
        if self.status is None:
            return []
        states = states_in_status(self.status)
        recency = {key: place for place, key in enumerate(self.last_lines)}
        sessions = self.status["sessions"]
        found = [
            {
                **session,
                "state": states[session["key"]],
                "line": self.last_lines.get(session["key"], ""),
                "used": recency.get(session["key"], place - len(sessions)),
            }
            for place, session in enumerate(sessions)
        ]
        return sorted(found, key=lambda one: (_RANKS[one["state"]], -one["used"]))

    def _record_timing(self, event: EventEnvelope) -> None:
        match event.type:
            case "run:accepted":
                self._accepted_at[event.run_id] = event.ts
            case "run:start":
                self._started_at[event.run_id] = event.ts
                if event.run_id in self._accepted_at:
                    self.wait.add(event.ts, event.ts - self._accepted_at.pop(event.run_id))
            case "done":
                self.turns.add(event.ts)
                self._accepted_at.pop(event.run_id, None)
                if event.run_id in self._started_at:
                    self.turn.add(event.ts, event.ts - self._started_at.pop(event.run_id))
        _drop_oldest(self._accepted_at, _KEPT_RUNS)
        _drop_oldest(self._started_at, _KEPT_RUNS)

    def _record_last_line(self, event: EventEnvelope) -> None:
        before = self.last_lines.pop(event.session, "")
        if TEXT_KINDS.get(event.type) == "text":
            text = (before if event.type == "text_chunk" else "") + event_text(event)
        elif event.type == "done" and (said := _final_text(event)):
            text = said
        elif event.type == "run:start" or event.type in TEXT_KINDS:
            text = ""
        else:
            text = describe_event(event)[0]
        self.last_lines[event.session] = text[-_KEPT_TEXT:]
        _drop_oldest(self.last_lines, _KEPT_SESSIONS)


def _final_text(event: EventEnvelope) -> str:
    """The answer of a run that went well; how another one ended is the news."""
    data = event_data(event)
    return str(data.get("text") or "") if data.get("reason") == "completed" else ""


_RANKS = {"approval": 0, "working": 1, "waiting": 2, "failed": 3, "idle": 4}


def _drop_oldest(known: dict[Any, Any], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]


LEAST_COLUMNS, LEAST_LINES = 60, 22
_MIN_TABLE_LINES = 4
"""Lines of a table that is cut: its heading, a row, how many more there are, a blank one."""
_WIDE = 150
_OTHER_COLUMNS_WIDTH = 46
"""Columns that a session's line leaves to the others of its row, at least."""
_KEYS = "q quit  space hold  tab pane  s sort  / filter  enter open  a approve  r recycle"
_SHORT_KEYS = "q quit  tab  s sort  / find  enter  a approve  r recycle"

Lines = list[RenderableType]


class _DrawContext(NamedTuple):
    """What all parts are drawn with."""

    model: TopModel
    now: float
    is_coloured: bool
    ascii_only: bool
    connection_flags: str
    controls: TopControls


def draw(
    picture: TopModel,
    width: int,
    height: int,
    *,
    now: float,
    controls: TopControls | None = None,
    opened: SessionLines | None = None,
    is_coloured: bool = True,
    ascii_only: bool = False,
    place: str = "",
) -> RenderableType:
    """The whole screen, at most ``height`` lines. ``now``: Unix time. ``controls``: what the keys have set.

    ``opened``: the messages of the opened session. ``place``: the options by which shown commands find the supervisor.
    """
    if width < LEAST_COLUMNS or height < LEAST_LINES:
        return Text(f"pool top needs {LEAST_COLUMNS} columns and {LEAST_LINES} lines; q quits", "yellow")
    controls = controls or TopControls()
    frame = _DrawContext(picture, now, is_coloured, ascii_only, connection_flags=place, controls=controls)
    foot = _foot(controls, width)
    if picture.status is None:
        return Group(Text("pool", "bold"), Text(picture.error or "asking the supervisor", "yellow"), foot)
    head = _head(frame, width)
    room = height - len(head) - 1
    if controls.opened is not None:
        return Group(*head, *_opened(controls, opened or SessionLines(), width, room), foot)
    asked = _approval_lines(frame, width, room)
    body = (_wide if width >= _WIDE else _narrow)(frame, width, room - len(asked))
    return Group(*head, *asked, body, foot)


def _foot(controls: TopControls, width: int) -> Text:
    """One line: the question or what was said last, else the keys and what they have set."""
    if controls.question is not None:
        return Text(controls.question.text, "bold yellow", no_wrap=True, overflow="ellipsis")
    if controls.message:
        return Text(clean(controls.message), "yellow", no_wrap=True, overflow="ellipsis")
    parts = ["held"] if controls.held else []
    if controls.is_typing or controls.filter:
        parts.append(f"filter: {controls.filter}{'_' if controls.is_typing else ''}")
    if controls.sorted_by is not None:
        parts.append(f"{controls.pane} by {controls.sorted_by}")
    keys = "q quit  up/down scroll  esc back" if controls.opened else _KEYS if width > len(_KEYS) else _SHORT_KEYS
    said = "  ".join(parts)
    line = Text(keys, "dim", no_wrap=True, overflow="ellipsis")
    line.truncate(width - (len(said) + 2 if said else 0), overflow="ellipsis")
    return Text.assemble(line, (f"  {said}" if said else "", "yellow"), no_wrap=True, overflow="ellipsis")


def _opened(controls: TopControls, session: SessionLines, width: int, room: int) -> Lines:
    """The end of a session's messages, or what lies ``scrolled`` lines above it."""
    title = Text(f"SESSION {short_key(controls.opened)}", "bold", no_wrap=True, overflow="ellipsis")
    if not session.has_messages:
        return [title, Text("its messages cannot be read", "yellow"), *(Text() for _ in range(room - 2))]
    lines = session.lines(width)
    fitting = room - 1
    controls.scrolled = min(controls.scrolled, max(0, len(lines) - fitting))
    end = len(lines) - controls.scrolled
    shown = lines[max(0, end - fitting) : end]
    return [title, *shown, *(Text() for _ in range(fitting - len(shown)))]


def _head(frame: _DrawContext, width: int) -> list[Text]:
    """Three lines: how the pool stands, two lines of figures; a fourth where something is wrong."""
    status = frame.model.status or {}
    pool = status["pool"]
    mode_style = "green" if pool["mode"] == "running" else "yellow"
    parts = [f"{pool[name]} {name}" for name in ("leased", "idle", "starting", "stopping", "waiting") if pool[name]]
    runs = f"{status['gateway']['runs']} runs"
    up = f"up {format_duration(status['supervisor']['uptime'])}"
    first = Text.assemble(
        ("pool ", "bold"), (pool["mode"], mode_style), (f"  {pool['total']}/{pool['max']} workers  ", "bold")
    )
    first.append("  ".join([*parts, runs, *nodes_summary(status["groups"]), up]))
    lines = [first, *_stats_lines(frame, width), Text()]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    if frame.model.error is not None:
        lines.insert(1, Text(clean(frame.model.error), "bold red", no_wrap=True, overflow="ellipsis"))
    return lines


def _stats_lines(frame: _DrawContext, width: int) -> list[Text]:
    picture, now = frame.model, frame.now
    latency = (picture.status or {})["latency"]
    turns, events = picture.turns.sums(now), picture.events_seen.sums(now)
    half = (width - 2) // 2
    cells: list[tuple[str, str, Sequence[float | None]]] = [
        ("wait", _quantiles(latency["acquire"]), picture.wait.means(now)),
        ("turn", _quantiles(latency["turn"]), picture.turn.means(now)),
        ("turns", f"{sum(turns[-30:]):.0f}/min", turns),
        ("events", f"{sum(events[-5:]) / 10:.0f}/s", events),
    ]
    texts = [_stat_cell(frame, name, text, values, half) for name, text, values in cells]
    return [Text.assemble(texts[0], "  ", texts[1]), Text.assemble(texts[2], "  ", texts[3])]


def _stat_cell(frame: _DrawContext, name: str, text: str, values: Sequence[float | None], width: int) -> Text:
    head = f"{name:<6} {text:<21} "
    line = sparkline(values, max(0, width - len(head)), ascii_only=frame.ascii_only)
    return Text.assemble((f"{name:<6} ", "dim"), (f"{text:<21} ", "bold"), (f"{line:<{width - len(head)}}", "cyan"))


def _quantiles(latency: Record) -> str:
    return f"p50 {format_duration(latency['p50'])} p99 {format_duration(latency['p99'])}" if latency["count"] else "-"


def _approval_lines(frame: _DrawContext, width: int, room: int) -> list[Text]:
    """As many as leave two thirds of the room. What is asked is cut at the edge; what is to be typed is not."""
    asked = (frame.model.status or {})["gateway"]["permissions"]
    beside = 3 * _MIN_TABLE_LINES  # workers, waiters, sessions
    # a question has two lines, and a blank one is below the last
    most = max(1, min(len(asked), room // 6, (room - beside - 1) // 2))
    lines = list(approval_lines(asked[:most], frame.connection_flags, columns=width))
    for line in lines:
        line.no_wrap, line.overflow = True, line.overflow or "ellipsis"
    return [*lines, Text()] if lines else []


# --- the parts --------------------------------------------------------------------------------------------------------


def _narrow(frame: _DrawContext, width: int, room: int) -> RenderableType:
    """One below the other: workers get two fifths at most, waiters and sessions what is fair, events the rest."""
    waiting = (frame.model.status or {})["waiting"]
    workers = _pane(frame, "workers", width, max(_MIN_TABLE_LINES, room * 2 // 5))
    waiters = _cut_table(waiting, waiting_table, width, max(_MIN_TABLE_LINES, room // 6)) if waiting else []
    left = room - _line_count(workers) - _line_count(waiters)
    sessions = _pane(frame, "sessions", width, max(_MIN_TABLE_LINES, left // 2))
    events = _events(frame, width, left - _line_count(sessions))
    return Group(*workers, *waiters, *sessions, *events)


def _wide(frame: _DrawContext, width: int, room: int) -> RenderableType:
    """Workers and waiters to the left; sessions and events to the right."""
    left_width = width * 11 // 20
    right_width = width - left_width - 2
    waiting = (frame.model.status or {})["waiting"]
    waiters = _cut_table(waiting, waiting_table, left_width, max(_MIN_TABLE_LINES, room // 3)) if waiting else []
    workers = _pane(frame, "workers", left_width, room - _line_count(waiters))
    sessions = _pane(frame, "sessions", right_width, max(_MIN_TABLE_LINES, room // 2))
    events = _events(frame, right_width, room - _line_count(sessions))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=left_width)
    grid.add_column(width=right_width)
    grid.add_row(Group(*workers, *waiters), Group(*sessions, *events))
    return grid


def _pane(frame: _DrawContext, pane: Pane, width: int, most: int) -> Lines:
    """One of the tables in which the keys move."""
    is_sessions = pane == "sessions"
    records = frame.controls.arrange(pane, frame.model.sessions() if is_sessions else frame.model.workers())
    selected = frame.controls.position(pane, records)
    if not records and frame.controls.filter:
        return [Text(f"no {pane} with {frame.controls.filter!r}", "dim", no_wrap=True, overflow="ellipsis"), Text()]
    table = _sessions_table if is_sessions else partial(workers_table, cpu=format_percent)
    return _cut_table(records, table, width, most, selected=selected)


def _cut_table(
    records: Sequence[Record],
    table: Callable[[Sequence[Record], int], RenderableType],
    width: int,
    most: int,
    *,
    selected: int | None = None,
) -> Lines:
    """A table of at most ``most`` lines, its heading and a blank line below among them; says how many are left out.

    ``selected``: this record is inverted, and the part of the table that is shown holds it.
    """
    fitting = len(records) if len(records) + 2 <= most else max(1, most - 3)
    first = 0 if selected is None else max(0, min(selected - fitting // 2, len(records) - fitting))
    drawn = table(records[first : first + fitting], width)
    if selected is not None and isinstance(drawn, TableRows):
        drawn.selected = selected - first
    parts: Lines = [drawn]
    if fitting < len(records):
        above = f", {first} of them above" if first else ""
        parts.append(Text(f"and {len(records) - fitting} more{above}", "dim"))
    return [*parts, Text()]


def _line_count(parts: Lines) -> int:
    """How many lines they take: a table one for each row and one for its heading."""
    return sum(each.line_count if isinstance(each, TableRows) else 1 for each in parts)


def _sessions_table(sessions: Sequence[Record], width: int) -> RenderableType:
    columns = [
        Column("SESSION", lambda s: short_key(s["key"]), stretches=True),
        Column("STATE", lambda s: Text(s["state"], STATE_STYLES[s["state"]])),
        Column("WORKER", lambda s: clean(s["worker"]), optional=1),
        Column("WAITING", lambda s: clean(s["waiting"] or "-"), right=True, optional=2),
        Column(
            "LAST LINE", lambda s: clean(_last_line(s["line"], max(20, width - _OTHER_COLUMNS_WIDTH))), stretches=True
        ),
    ]
    return make_table(columns, sessions, width, empty="no sessions")


def _last_line(text: str, width: int) -> str:
    """The end of it: what came last is what is new."""
    line = (text.rstrip().splitlines() or ["-"])[-1] or "-"
    return shorten(line, width, keep_end=True)


def _events(frame: _DrawContext, width: int, room: int) -> Lines:
    """The latest lines of the stream, filling what room is left."""
    if room < 2:
        return [Text()] * room
    latest = [*frame.model.events][1 - room :]
    shown = EventFormatter(width, is_coloured=frame.is_coloured).feed(latest)
    texts = [Text.from_ansi(line, no_wrap=True, overflow="ellipsis") for line in shown[-(room - 1) :]]
    title = Text("EVENTS", "bold", no_wrap=True, overflow="ellipsis")
    if frame.model.events_error is not None:
        title.append(f"  have ended: {clean(frame.model.events_error)}", "bold red")
    return [title, *texts, *(Text() for _ in range(room - 1 - len(texts)))]
