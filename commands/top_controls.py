"""The keys of ``pool top``: selection, order, filter, questions. Pure: keys in, wishes out."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from commands.event_text import call_text
from commands.listing import SortKey, sort_records
from commands.workers import WORKER_SORT_KEYS
from wire.run_view import describes_whole_input
from wire.terminal import clean, display_width

Record = dict[str, Any]
Pane = Literal["sessions", "workers"]

_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_MOVES = {
    **dict.fromkeys(("\x1b[A", "\x1bOA", "k"), -1),
    **dict.fromkeys(("\x1b[B", "\x1bOB", "j"), 1),
    "\x1b[5~": -10,
    "\x1b[6~": 10,
    **dict.fromkeys(("\x1b[H", "\x1b[1~", "\x1bOH", "g"), -1_000_000),
    **dict.fromkeys(("\x1b[F", "\x1b[4~", "\x1bOF", "G"), 1_000_000),
}
_MAX_FILTER = 60
_SESSION_SORT_KEYS = {
    "used": SortKey(lambda session: session["used"], is_descending=True),
    "key": SortKey(lambda session: session["key"]),
    "state": SortKey(lambda session: session["state"]),
    "waiting": SortKey(lambda session: session["waiting"], is_descending=True),
}
SORT_KEYS: dict[Pane, dict[str, SortKey]] = {"sessions": _SESSION_SORT_KEYS, "workers": WORKER_SORT_KEYS}
_NAMES: dict[Pane, str] = {"sessions": "key", "workers": "id"}


class Wish(NamedTuple):
    """What the supervisor is to be asked, with its parameters; ``method`` is ``quit`` for the end of the program."""

    method: Literal["quit", "sessions.history", "decide", "workers.recycle"]
    params: dict[str, Any]


class _PendingWish(NamedTuple):
    """What is done after a y."""

    text: str
    wish: Wish


class TopControls:
    """What the keys have set. ``pane``: which table they move in; ``opened``: the session whose messages are shown."""

    def __init__(self) -> None:
        self.pane: Pane = "sessions"
        self.held = False
        self.filter = ""
        self.is_typing = False
        self.message = ""
        self.opened: str | None = None
        self.scrolled = 0
        """Lines of the opened session that are below the screen."""
        self.question: _PendingWish | None = None
        self._sort: dict[Pane, str | None] = {"sessions": None, "workers": None}
        self._selected: dict[Pane, str | None] = {"sessions": None, "workers": None}

    def arrange(self, pane: Pane, records: Sequence[Record]) -> list[Record]:
        """The records that pass the filter, sorted; without a wish in the order they came."""
        words = self.filter.lower()
        found = [record for record in records if words in _text_of(record)]
        chosen = self._sort[pane]
        return sort_records(found, None if chosen is None else SORT_KEYS[pane][chosen])

    def position(self, pane: Pane, records: Sequence[Record]) -> int | None:
        """The index of the selected one of the arranged records; None where the keys move elsewhere."""
        if pane != self.pane or not records:
            return None
        names = [record[_NAMES[pane]] for record in records]
        selected = self._selected[pane]
        return names.index(selected) if selected in names else 0

    @property
    def sorted_by(self) -> str | None:
        """The wish of the pane in which the keys move."""
        return self._sort[self.pane]

    def press(
        self, keys: str, *, sessions: Sequence[Record], workers: Sequence[Record], asked: Sequence[Record], columns: int
    ) -> Iterator[Wish]:
        """What the keys ask for, in order. ``asked``: ``{session, call}`` each; ``columns``: of the terminal."""
        for key in _KEY.findall(keys):
            self.message = ""
            if self.question is not None:
                yield from self._answer(key)
            elif self.is_typing:
                self._type(key)
            elif self.opened is not None:
                yield from self._press_in_session(key)
            else:
                yield from self._press_in_tables(key, {"sessions": sessions, "workers": workers}, asked, columns)

    def _answer(self, key: str) -> Iterator[Wish]:
        question, self.question = self.question, None
        if question is not None and key in "yY":
            yield question.wish

    def _type(self, key: str) -> None:
        match key:
            case "\r" | "\n":
                self.is_typing = False
            case "\x1b":
                self.is_typing, self.filter = False, ""
            case "\x7f" | "\b":
                self.filter = self.filter[:-1]
            case _ if key.isprintable():
                self.filter = (self.filter + key)[:_MAX_FILTER]

    def _press_in_session(self, key: str) -> Iterator[Wish]:
        if key in _MOVES:
            self.scrolled = max(0, self.scrolled - _MOVES[key])
        elif key in ("\x1b", "\r", "\n", "\x1b[D"):
            self.opened = None
        elif key in "qQ":
            yield Wish("quit", {})

    def _press_in_tables(
        self, key: str, tables: dict[Pane, Sequence[Record]], asked: Sequence[Record], columns: int
    ) -> Iterator[Wish]:
        records = self.arrange(self.pane, tables[self.pane])
        at = self.position(self.pane, records)
        chosen = None if at is None else records[at]
        match key:
            case "q" | "Q":
                yield Wish("quit", {})
            case "\r" | "\n" if chosen is not None:
                yield from self._open(chosen["key"] if self.pane == "sessions" else chosen["session"])
            case "a" if chosen is not None:
                self._ask_approval(chosen["key"] if self.pane == "sessions" else chosen["session"], asked, columns)
            case "r" if chosen is not None:
                self._ask_recycling(chosen["worker"] if self.pane == "sessions" else chosen["id"])
            case _ if key in _MOVES and at is not None:
                self._selected[self.pane] = records[min(max(0, at + _MOVES[key]), len(records) - 1)][_NAMES[self.pane]]
            case _:
                self._change_view(key)

    def _change_view(self, key: str) -> None:
        match key:
            case " ":
                self.held = not self.held
            case "\t" | "\x1b[Z":
                self.pane = "workers" if self.pane == "sessions" else "sessions"
            case "s":
                names = [None, *SORT_KEYS[self.pane]]
                self._sort[self.pane] = names[(names.index(self._sort[self.pane]) + 1) % len(names)]
            case "/":
                self.is_typing = True
            case "\x1b":
                self.filter = ""

    def _open(self, session: str | None) -> Iterator[Wish]:
        if session is None:
            self.message = "this worker has no session"
        else:
            self.opened, self.scrolled = session, 0
            yield Wish("sessions.history", {"session": session})

    def _ask_approval(self, session: str | None, asked: Sequence[Record], columns: int) -> None:
        """Only of a call that the line shows whole: a person must not approve what they have not seen."""
        call = next((each for each in asked if each["session"] == session), None)
        if call is None:
            self.message = "no tool call of this session waits for approval"
            return
        text = f"approve {call_text(call)} of session {clean(session)}?  y yes  n no"
        if not describes_whole_input(call["call"].get("input_preview")) or display_width(text) > columns:
            self.message = "the call is longer than a line; the command above shows all of it"
            return
        wish = Wish("decide", {"session": session, "call_id": call["call"]["id"], "decision": "allow"})
        self.question = _PendingWish(text, wish)

    def _ask_recycling(self, worker: str | None) -> None:
        if worker is None:
            self.message = "this session has no worker"
        else:
            text = f"replace worker {clean(worker)} at its next turn boundary?  y yes  n no"
            self.question = _PendingWish(text, Wish("workers.recycle", {"worker": worker}))


def _text_of(record: Record) -> str:
    """What a filter looks at: the names and states of a record."""
    fields = ("key", "id", "state", "session", "agent", "role", "worker", "line")
    return " ".join(str(record.get(field) or "") for field in fields).lower()
