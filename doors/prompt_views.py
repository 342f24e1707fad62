"""How a run looks while it goes on: the answer as it comes, everything else dim beside it; or JSON lines."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Protocol, TextIO

import msgspec

from doors.envelopes import read_envelopes, split_envelopes
from doors.event_texts import TEXT_KINDS, approve_command, call_text, data_of, piece_of, tell
from doors.styles import BOLD, DIM, PLAIN, wants_styles
from doors.texts import clean, clean_stream
from errors import PoolError
from wire.envelope import EventEnvelope

__all__ = ["JsonView", "TextView", "View"]

_PREVIEW_CHARS = 100


class View(Protocol):
    """Where a followed run is shown."""

    def show(self, events: msgspec.Raw) -> None:
        """Draw the envelopes of one push (a JSON array), and flush once."""
        ...

    def end(self, outcome: dict[str, Any]) -> None:
        """Draw the run's outcome, whether or not it went well."""
        ...

    def fail(self, error: PoolError) -> None:
        """Draw that there is no outcome."""
        ...

    def close(self) -> None:
        """End the line that was begun."""
        ...


class TextView:
    """The answer's text on ``out``; what the agent does besides on ``err``."""

    def __init__(
        self, out: TextIO, err: TextIO, env: Mapping[str, str], *, thinking: bool = False, place: str = ""
    ) -> None:
        """``thinking``: show the reasoning too. ``place``: the options by which shown commands find the supervisor."""
        self._out = out
        self._err = err
        self._kinds = frozenset({"text", "think"} if thinking else {"text"})
        self._place = place
        self._filter = clean_stream if out.isatty() else str
        self._is_shared = out.isatty() and err.isatty()
        self._is_coloured = err.isatty() and wants_styles(env)
        self._at_line_start = True
        self._is_thinking = False
        self._has_text = False

    def show(self, events: msgspec.Raw) -> None:
        """Draw the envelopes of one push, and flush once."""
        for kind, group in groupby(read_envelopes(events), key=_text_kind):
            if kind is None:
                for event in group:
                    self._tell(event)
            elif kind in self._kinds:
                (self._write if kind == "text" else self._think)("".join(map(piece_of, group)))
        self._out.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """The last line end, the whole text where no pieces of it came, and the files that came beside it."""
        if not self._has_text:
            self._write(outcome.get("text") or "")
        self.close()
        for media in outcome.get("media") or ():
            self._note(f"· file {media['path']}", cut=False)

    def fail(self, error: PoolError) -> None:  # noqa: ARG002  # the command line prints the error itself
        """Leave the cursor at the start of a line."""
        self.close()

    def close(self) -> None:
        """End the line that was begun."""
        self._end_thought()
        if not self._at_line_start:
            self._write("\n")
        self._out.flush()

    def _write(self, text: str) -> None:
        text = self._filter(text)
        if text:
            self._end_thought()
            self._out.write(text)
            self._has_text = True
            self._at_line_start = text.endswith("\n")

    def _think(self, text: str) -> None:
        if not self._is_thinking:
            self._make_room()
            self._is_thinking = True
        text = clean_stream(text)
        self._err.write(f"{DIM}{text}{PLAIN}" if self._is_coloured else text)
        self._err.flush()

    def _end_thought(self) -> None:
        if self._is_thinking:
            self._is_thinking = False
            self._err.write("\n")
            self._err.flush()

    def _tell(self, event: EventEnvelope) -> None:
        match event.type:
            case "tool:start":
                self._note(f"· {call_text(data_of(event))}")
            case "tool:error":
                self._note(f"! {tell(event)[0]}")
            case "error" if data_of(event).get("severity") == "warn":  # a graver one ends the run, and is told then
                self._note(f"! {tell(event)[0]}")
            case "permission_required":
                data = data_of(event)
                self._note(f"? needs your approval: {call_text(data)}")
                self._note(f"  {approve_command(data, event.session, self._place)}", cut=False, style=BOLD)
            case "permission_decided":
                self._note(f"· {tell(event)[0]}")

    def _note(self, text: str, *, cut: bool = True, style: str = DIM) -> None:
        line = clean(text)[:_PREVIEW_CHARS] if cut else clean(text)
        self._end_thought()
        self._make_room()
        self._err.write(f"{style}{line}{PLAIN}\n" if self._is_coloured else f"{line}\n")
        self._err.flush()

    def _make_room(self) -> None:
        """On a terminal both streams share the line that the answer has begun."""
        self._out.flush()
        if self._is_shared and not self._at_line_start:
            self._err.write("\n")
            self._at_line_start = True


def _text_kind(event: EventEnvelope) -> str | None:
    return TEXT_KINDS.get(event.type)


class JsonView:
    """One JSON object a line: each event's envelope as it came, last ``{"outcome"}`` or ``{"error"}``."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, events: msgspec.Raw) -> None:
        """Write the envelopes of one push, and flush once."""
        self._out.write("".join(f"{str(line, 'utf-8')}\n" for line in split_envelopes(events)))
        self._out.flush()

    def end(self, outcome: dict[str, Any]) -> None:
        """Write the outcome."""
        self._line({"outcome": outcome})

    def fail(self, error: PoolError) -> None:
        """Write the error as the outcome."""
        self._line({"error": {"code": error.code, "message": error.message, "data": error.details}})

    def close(self) -> None:
        """Nothing is left open between lines."""

    def _line(self, value: Any) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()
