"""What ``pool top`` knows: the latest status, the sessions' last lines, events, how much happens. Pure: no clock."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from doors.event_texts import TEXT_KINDS, data_of, piece_of, tell
from doors.top.sparks import Series
from wire.envelope import EventEnvelope

__all__ = ["Picture"]

_KEPT_EVENTS = 500
_KEPT_SESSIONS = 5_000
_KEPT_RUNS = 5_000
_KEPT_TEXT = 400

_SILENT = frozenset({"state_changed", "token_usage", "session_bound", "session_parked", "run:accepted", "background"})
"""Events that say nothing about what a session does."""

Record = dict[str, Any]


class Picture:
    """Everything that is drawn. ``trouble``: why the supervisor cannot be asked, while it cannot."""

    def __init__(self) -> None:
        self.status: Record | None = None
        self.trouble: str | None = None
        self.lines: dict[str, str] = {}
        """What each session said last."""
        self.events: deque[EventEnvelope] = deque(maxlen=_KEPT_EVENTS)
        self.load: dict[str, float] = {}
        """The share of a processor that each worker has used between the last two documents, in percent."""
        self.wait, self.turn, self.turns, self.told = Series(), Series(), Series(), Series()
        self._runs: dict[str | None, float] = {}
        self._started: dict[str | None, float] = {}

    def take_status(self, status: Record) -> None:
        """A status document."""
        before, self.status, self.trouble = self.status, status, None
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

    def take_events(self, events: Sequence[EventEnvelope]) -> None:
        """Events in their order."""
        self.events.extend(events[-_KEPT_EVENTS:])
        for event in events:
            self.told.add(event.ts)
            self._time(event)
            if event.session and event.type not in _SILENT:
                self._note(event)

    def workers(self) -> list[Record]:
        """Those of the status, with the load instead of the processor seconds used so far."""
        workers = [] if self.status is None else self.status["workers"]
        return [{**worker, "cpu": self.load.get(worker["id"])} for worker in workers]

    def sessions(self) -> list[Record]:
        """Those of the status, who waits for a person first, then those at work, each with its last line."""
        if self.status is None:
            return []
        asking = {asked["session"] for asked in self.status["gateway"]["permissions"]}
        at_work = {worker["session"] for worker in self.status["workers"] if worker["turn_age"] is not None}
        found = [
            {**session, "state": _state(session, asking, at_work), "line": self.lines.get(session["key"], "")}
            for session in self.status["sessions"]
        ]
        recency = {key: place for place, key in enumerate(self.lines)}
        return sorted(found, key=lambda one: (_RANKS[one["state"]], -recency.get(one["key"], -1)))

    def _time(self, event: EventEnvelope) -> None:
        match event.type:
            case "run:accepted":
                self._runs[event.run_id] = event.ts
            case "run:start":
                self._started[event.run_id] = event.ts
                if event.run_id in self._runs:
                    self.wait.add(event.ts, event.ts - self._runs.pop(event.run_id))
            case "done":
                self.turns.add(event.ts)
                self._runs.pop(event.run_id, None)
                if event.run_id in self._started:
                    self.turn.add(event.ts, event.ts - self._started.pop(event.run_id))
        _drop_oldest(self._runs, _KEPT_RUNS)
        _drop_oldest(self._started, _KEPT_RUNS)

    def _note(self, event: EventEnvelope) -> None:
        before = self.lines.pop(event.session, "")
        if TEXT_KINDS.get(event.type) == "text":
            text = (before if event.type == "text_chunk" else "") + piece_of(event)
        elif event.type == "done" and (said := _said_at_last(event)):
            text = said
        elif event.type == "run:start" or event.type in TEXT_KINDS:
            text = ""
        else:
            text = tell(event)[0]
        self.lines[event.session] = text[-_KEPT_TEXT:]
        _drop_oldest(self.lines, _KEPT_SESSIONS)


def _said_at_last(event: EventEnvelope) -> str:
    """The answer of a run that went well; how another one ended is the news."""
    data = data_of(event)
    return str(data.get("text") or "") if data.get("reason") == "completed" else ""


_RANKS = {"PAUSED": 0, "WORKING": 1, "waiting": 2, "failed": 3, "READY": 4}


def _state(session: Record, asking: set[str], at_work: set[str | None]) -> str:
    if session["key"] in asking:
        return "PAUSED"
    if session["key"] in at_work:
        return "WORKING"
    if session["failed"]:
        return "failed"
    return "waiting" if session["waiting"] else "READY"


def _drop_oldest(known: dict[Any, Any], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]
