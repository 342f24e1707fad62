"""Where followed events are shown: lines for a person on a terminal, envelopes as JSON lines for a program."""

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

import msgspec

from doors.envelopes import last_seq, read_envelopes, split_envelopes
from doors.event_lines import EventLines
from doors.styles import DIM, PLAIN, wants_styles

__all__ = ["EventJson", "EventText", "open_view"]


class EventText:
    """Lines on the terminal ``out``, as wide as it is at the moment."""

    def __init__(self, out: TextIO, env: Mapping[str, str], *, place: str = "") -> None:
        """``place``: the options by which shown commands find the supervisor."""
        self._out = out
        self._is_coloured = wants_styles(env)
        self._lines = EventLines(_columns(), is_coloured=self._is_coloured, place=place)

    def show(self, events: msgspec.Raw) -> int:
        """Show the envelopes of one push, and flush; the seq of the last one."""
        envelopes = read_envelopes(events)
        self._lines.fit(_columns())
        self._write(self._lines.take(envelopes))
        return envelopes[-1].seq

    def note(self, text: str) -> None:
        """A line of our own among the events."""
        self._write([*self._lines.rest(), f"{DIM}-- {text}{PLAIN}" if self._is_coloured else f"-- {text}"])

    def close(self) -> None:
        """Show the lines that were not yet full."""
        self._write(self._lines.rest())

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()


class EventJson:
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

    def note(self, text: str) -> None:
        """A line for whoever watches the program."""
        self._err.write(f"pool: {text}\n")
        self._err.flush()

    def close(self) -> None:
        """Nothing is kept back."""


def open_view(*, as_json: bool, place: str) -> EventText | EventJson:
    """Lines where stdout is a terminal, JSON into a pipe or where it is asked for."""
    if as_json or not sys.stdout.isatty():
        return EventJson(sys.stdout, sys.stderr)
    return EventText(sys.stdout, os.environ, place=place)


def _columns() -> int:
    return shutil.get_terminal_size().columns
