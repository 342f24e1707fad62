"""Followed events: as lines of a terminal, running text gathered into full lines; or as JSON lines."""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TextIO

import msgspec

from commands.event_text import describe_event, event_data, event_text, hidden_text, shown_page
from doors.control.client import last_seq, read_envelopes, split_envelopes
from wire.call_page import STYLES, page_lines
from wire.events import TEXT_KINDS, EventChannel, display_of
from wire.messages import EventEnvelope
from wire.terminal import (
    BOLD,
    DIM,
    GREEN,
    PLAIN,
    RED,
    YELLOW,
    clean,
    clean_stream,
    display_width,
    fit,
    fitting_length,
    name_colour,
    wants_styles,
)

_WIDE = 100
_LEAST_TEXT = 20
_SUBLINE_INDENT = " " * 9
"""Before what belongs to the line above: as wide as the time."""
_TONE_STYLES = {"": DIM, "good": GREEN, "warn": BOLD + YELLOW, "bad": RED}


class _PartialLine(NamedTuple):
    """The last, unfinished line of a session's running text."""

    first: EventEnvelope
    text: str


class EventFormatter:
    """Turns batches of envelopes into lines. Of each session it keeps at most one unfinished line of text."""

    def __init__(self, width: int, *, is_coloured: bool, place: str = "") -> None:
        """``width``: columns of the terminal. ``place``: the options by which shown commands find the supervisor."""
        self._is_coloured = is_coloured
        self._connection_flags = place
        self._partial_lines: dict[str, _PartialLine] = {}
        self.set_width(width)

    def set_width(self, width: int) -> None:
        """Lines from now on are made for a terminal of this width."""
        self._session_width, self._kind_width = (24, 19) if width >= _WIDE else (14, 14)
        self._indent = 8 + self._session_width + self._kind_width + 3
        self._text_width = max(_LEAST_TEXT, width - self._indent)

    def feed(self, events: Iterable[EventEnvelope]) -> list[str]:
        """The lines that these events complete, in order."""
        return [line for event in events for line in self._feed(event)]

    def _feed(self, event: EventEnvelope) -> Iterator[str]:
        before = self._partial_lines.get(event.session)
        if before is not None and not _continues(before.first, event):
            yield from self._end_text(event.session)
        yield from self._add_text(event) if event.type in TEXT_KINDS else self._describe(event)

    def flush(self) -> list[str]:
        """The unfinished lines, as they are."""
        return [line for session in list(self._partial_lines) for line in self._end_text(session)]

    def _add_text(self, event: EventEnvelope) -> list[str]:
        before = self._partial_lines.pop(event.session, None)
        first = event if before is None else before.first
        text = event_text(event)
        if not text.isprintable():
            text = clean_stream(text).replace("\t", "    ")
        full, rest = fill_lines(text if before is None else before.text + text, self._text_width)
        if full:
            first = event
        if rest:
            self._partial_lines[event.session] = _PartialLine(first, rest)
        return [self._line(event, line) for line in full]

    def _end_text(self, session: str) -> list[str]:
        first, text = self._partial_lines.pop(session)
        return [self._line(first, text)] if text.strip() else []

    def _describe(self, event: EventEnvelope) -> list[str]:
        essential, *commands = describe_event(event, self._connection_flags)
        overhang = max(0, display_width(clean(event.type)) - self._kind_width)
        line = self._line(event, shorten(essential, max(_LEAST_TEXT, self._text_width - overhang)))
        return [line, *self._approval_lines(event), *(_SUBLINE_INDENT + self._style(text, BOLD) for text in commands)]

    def _approval_lines(self, event: EventEnvelope) -> Iterator[str]:
        """What a call would do that waits for a person, all that the event shows of it."""
        if event.type == "permission_required":
            data = event_data(event)
            for line in page_lines(shown_page(data), self._indent + self._text_width - len(_SUBLINE_INDENT)):
                yield _SUBLINE_INDENT + self._style(line.text, STYLES[line.tone])
            if hidden := hidden_text(data):
                yield _SUBLINE_INDENT + hidden

    def _line(self, event: EventEnvelope, text: str) -> str:
        kind = TEXT_KINDS.get(event.type, event.type)
        session = _pad(shorten(clean(event.session or "-"), self._session_width, keep_end=True), self._session_width)
        parts = (
            self._style(time.strftime("%H:%M:%S", time.localtime(event.ts)), DIM),
            self._style(session, name_colour(event.session)),
            self._style(
                _pad(clean(kind), self._kind_width), "" if kind == "text" else _TONE_STYLES[display_of(event.type).tone]
            ),
            self._style(text, DIM if _is_dim(event, kind) else ""),
        )
        return " ".join(parts).rstrip()

    def _style(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_coloured and style and text else text


def fill_lines(text: str, width: int) -> tuple[list[str], str]:
    """Break running text into lines of at most ``width`` cells, without blank ones; and what begins the next one."""
    if len(text) <= width and text.isascii() and "\n" not in text:
        return [], text  # nearly always, so that it pays to look first
    *ended, last = text.split("\n")
    full = [line for paragraph in ended for line in _wrap(paragraph, width)]
    *more, rest = _wrap(last, width) or [""]
    return [line for line in full + more if line.strip()], rest


def shorten(text: str, width: int, *, keep_end: bool = False) -> str:
    """At most ``width`` cells; what is cut is marked, at the end, or at the start to ``keep_end``."""
    if not keep_end or display_width(text) <= width:
        return fit(text, width)
    return "…" + text[len(text) - fitting_length(text[::-1], width - 1) :]


def _is_dim(event: EventEnvelope, kind: str) -> bool:
    return kind == "think" or (event.channel is EventChannel.MONITOR and kind != "error")


def _continues(first: EventEnvelope, event: EventEnvelope) -> bool:
    """Whether the event continues the text that ``first`` began."""
    kind = TEXT_KINDS.get(event.type)
    return kind is not None and kind == TEXT_KINDS[first.type] and event.run_id == first.run_id


def _wrap(paragraph: str, width: int) -> list[str]:
    lines = []
    while display_width(paragraph) > width:
        fits = max(1, fitting_length(paragraph, width))
        cut = paragraph.rfind(" ", 1, fits + 1)
        cut = fits if cut <= 0 else cut
        lines.append(paragraph[:cut].rstrip())
        paragraph = paragraph[cut:].lstrip(" ")
    return [*lines, paragraph]


def _pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


class EventTextView:
    """Lines on the terminal ``out``, as wide as it is at the moment."""

    def __init__(self, out: TextIO, env: Mapping[str, str], *, place: str = "") -> None:
        """``place``: the options by which shown commands find the supervisor."""
        self._out = out
        self._is_coloured = wants_styles(env)
        self._lines = EventFormatter(_terminal_columns(), is_coloured=self._is_coloured, place=place)

    def show(self, events: msgspec.Raw) -> int:
        """Show the envelopes of one push, and flush; the seq of the last one."""
        envelopes = read_envelopes(events)
        self._lines.set_width(_terminal_columns())
        self._write(self._lines.feed(envelopes))
        return envelopes[-1].seq

    def show_notice(self, text: str) -> None:
        """A line of our own among the events."""
        self._write([*self._lines.flush(), f"{DIM}-- {text}{PLAIN}" if self._is_coloured else f"-- {text}"])

    def close(self) -> None:
        """Show the lines that were not yet full."""
        self._write(self._lines.flush())

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()


class EventJsonView:
    """One envelope a line, as it came; notes go to ``err``."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def show(self, events: msgspec.Raw) -> int:
        """Write the envelopes of one push, and flush; the seq of the last one."""
        envelopes = split_envelopes(events)
        self._out.write("".join(f"{str(line, 'utf-8')}\n" for line in envelopes))
        self._out.flush()
        return last_seq(envelopes)

    def show_notice(self, text: str) -> None:
        """A note on stderr."""
        self._err.write(f"pool: {text}\n")
        self._err.flush()

    def close(self) -> None:
        """Nothing is kept back."""


def open_events_view(*, as_json: bool, place: str) -> EventTextView | EventJsonView:
    """Lines where stdout is a terminal, JSON into a pipe or where it is asked for."""
    if as_json or not sys.stdout.isatty():
        return EventJsonView(sys.stdout, sys.stderr)
    return EventTextView(sys.stdout, os.environ, place=place)


def _terminal_columns() -> int:
    return shutil.get_terminal_size().columns
