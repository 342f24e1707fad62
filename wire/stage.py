"""One run on two streams: its answer on one, what happens beside it on the other; often both are the same terminal.

Then neither may write into the other's line. What a tool says while it runs is drawn below everything, over and over in
the same place, and is gone when the next line comes.
"""

import os
from collections.abc import Mapping
from typing import TextIO

from wire.terminal import DIM, PLAIN, can_style, cells, clean, clean_stream, fit, wants_styles

__all__ = ["Stage", "tail_lines"]

_ROWS = 4
_MARGIN = "  │ "
_LEAST_COLUMNS = 12
_PIPE_COLUMNS = 200
_USUAL_COLUMNS = 80


class Stage:
    """``out`` for the answer, ``err`` for the rest. Everything but the answer is flushed at once."""

    def __init__(self, out: TextIO, err: TextIO, env: Mapping[str, str]) -> None:
        """``env`` says whether there may be styles (``NO_COLOR``, ``TERM``), and ``COLUMNS`` where it is set."""
        self._out = out
        self._err = err
        self._env = env
        self._filter = clean_stream if out.isatty() else str
        self._is_shared = out.isatty() and err.isatty()
        self._is_coloured = err.isatty() and wants_styles(env)
        self._can_redraw = err.isatty() and can_style(env)
        self._at_line_start = True
        self._has_aside = False
        self._drawn = 0
        self.has_answer = False
        self.subject: str | None = None
        """What the last note was about; None once something else was shown."""

    def answer(self, text: str) -> None:
        """The next piece of the answer; see ``flush``."""
        text = self._filter(text)
        if text:
            self._clear()
            self._out.write(text)
            self.has_answer = True
            self.subject = None
            self._at_line_start = text.endswith("\n")

    def end_line(self) -> None:
        """What comes next of the answer begins a line."""
        if not self._at_line_start:
            self.answer("\n")

    def aside(self, text: str) -> None:
        """The next piece of a running text beside the answer."""
        if not self._has_aside:
            self._make_room()
            self._has_aside, self.subject = True, None
        self._err.write(self._styled(clean_stream(text), DIM))
        self._err.flush()

    def note(
        self, text: str, end: str = "", *, style: str = DIM, whole: bool = False, about: str | None = None
    ) -> None:
        """A line of its own. ``about``: see ``subject``.

        It is cut to the terminal's width unless it is to be ``whole``: first the text, the ``end`` only where there is
        no room for both.
        """
        text, end = clean(text), clean(end)
        line = text + end if whole else _cut(text, end, self._columns())
        self._make_room()
        self._err.write(self._styled(line, style) + "\n")
        self._err.flush()
        self.subject = about

    def tail(self, text: str) -> None:
        """Draw the end of a tool's output, in place of what was drawn before; only on a terminal that can."""
        lines = tail_lines(text, self._columns()) if self._can_redraw else []
        if not lines:
            return
        before, self._drawn = self._drawn, 0
        if not before:
            self._make_room()
        drawn = "".join(f"{self._styled(line, DIM)}\n" for line in lines)
        self._err.write(_up(before) + drawn)  # in one piece, so that it does not flicker
        self._err.flush()
        self._drawn = len(lines)

    @property
    def columns(self) -> int:
        """The width of a line beside the answer, in columns."""
        return self._columns()

    def flush(self) -> None:
        """Show what was said of the answer."""
        self._out.flush()

    def close(self) -> None:
        """Leave the cursor at the start of a line, nothing drawn."""
        self._clear()
        self.end_line()
        self._out.flush()

    def _make_room(self) -> None:
        self._clear()
        self._out.flush()
        if self._is_shared and not self._at_line_start:
            self._err.write("\n")
            self._at_line_start = True

    def _clear(self) -> None:
        """Take away what is only for the moment."""
        if self._has_aside:
            self._err.write("\n")
        elif self._drawn:
            self._err.write(_up(self._drawn))
        else:
            return
        self._has_aside, self._drawn = False, 0
        self._err.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_coloured and style else text

    def _columns(self) -> int:
        """How wide a line may be: a terminal's last column stays free, where some of them break the line."""
        if not self._err.isatty():
            return _PIPE_COLUMNS
        asked = self._env.get("COLUMNS", "")
        return ((int(asked) if asked.isdecimal() else 0) or self._told_columns() or _USUAL_COLUMNS) - 1

    def _told_columns(self) -> int:
        """What the terminal says of itself; 0 where it does not know, as one without a screen."""
        try:
            return os.get_terminal_size(self._err.fileno()).columns
        except (OSError, ValueError):
            return 0


def _up(lines: int) -> str:
    """Back to the first of the lines that were drawn, and everything below it gone."""
    return f"\x1b[{lines}A\x1b[J" if lines else ""


def _cut(text: str, end: str, columns: int) -> str:
    room = max(columns - cells(end), columns // 3)
    return fit(fit(text, room) + end, columns)


def tail_lines(text: str, columns: int) -> list[str]:
    """The last lines of a text as they fit on a terminal; of a line that was drawn over, what it was last."""
    if columns < _LEAST_COLUMNS:
        return []
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text[-_ROWS * 2_000 :].split("\n"))
    shown = [clean(line.expandtabs(4)).rstrip() for line in lines]
    return [f"{_MARGIN}{fit(line, columns - len(_MARGIN))}" for line in [line for line in shown if line][-_ROWS:]]
