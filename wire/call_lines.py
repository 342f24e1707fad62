"""Tool calls of a run as a person sees them: a line when one begins, what it says meanwhile, a line when it is over."""

from wire.call_pages import STYLES, page_lines
from wire.call_parts import CallPage
from wire.call_texts import CallEnd, call_words, end_words, error_words
from wire.messages import CallDetails, ToolCallView
from wire.stage import Stage
from wire.terminal import DIM

__all__ = ["CallLines"]

_ENDED = frozenset({"FAILED", "DENIED"})
"""States of calls whose error was told already when their end is."""
_QUIET = frozenset("✓…")
_BELOW = "  "


class CallLines:
    """Calls may run at the same time; an end names its call unless nothing was shown since that began."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def start(self, call: ToolCallView) -> None:
        """It is there."""
        self._stage.end_line()  # what the model says after it is another text
        self._stage.note(f"· {call_words(call.name, call.input_preview)}", about=call.id)

    def update(self, tail: str) -> None:
        """The end of a call's output so far."""
        self._stage.tail(tail)

    def error(self, call: ToolCallView, error: str | None, details: CallDetails | None) -> None:
        """It has failed, or was denied; its end is told after that."""
        self._end(call, error_words(call, error, details))

    def end(self, call: ToolCallView, details: CallDetails | None) -> None:
        """It is over."""
        if call.state not in _ENDED:
            self._end(call, end_words(call, details))

    def page(self, page: CallPage) -> None:
        """Show a page of a call's description."""
        for line in page_lines(page, self._stage.columns - len(_BELOW)):
            self._stage.note(f"{_BELOW}{line.text}", whole=True, style=STYLES[line.tone])

    def _end(self, call: ToolCallView, end: CallEnd) -> None:
        style = DIM if end.mark in _QUIET else ""
        if self._stage.subject == call.id:
            self._stage.note(f"  {end.mark} {end.words}", style=style)
        else:
            words = call_words(call.name, call.input_preview)
            self._stage.note(f"{end.mark} {words}", f": {end.words}", style=style)
