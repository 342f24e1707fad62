"""One run on two streams, often the same terminal: its answer on one, its tool calls and notices on the other.

Neither writes into the other's line. The output of a running tool is drawn below everything, over and over in the same
place, and disappears when the next line comes.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

import msgspec

from wire.call_page import STYLES, CallPage, page_lines
from wire.messages import CallDetails, ToolCallView
from wire.terminal import DIM, PLAIN, can_style, clean, clean_stream, display_width, fit, format_duration, wants_styles

_TAIL_ROWS = 4
_MARGIN = "  │ "
_MIN_COLUMNS = 12
_PIPE_COLUMNS = 200
_DEFAULT_COLUMNS = 80


class RunView:
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
        self._has_dim = False
        self._drawn_lines = 0
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

    def dim(self, text: str) -> None:
        """The next piece of a running text beside the answer."""
        if not self._has_dim:
            self._start_line()
            self._has_dim, self.subject = True, None
        self._err.write(self._styled(clean_stream(text), DIM))
        self._err.flush()

    def line(
        self, text: str, end: str = "", *, style: str = DIM, whole: bool = False, about: str | None = None
    ) -> None:
        """A line of its own. ``about``: see ``subject``.

        It is cut to the terminal's width unless it is to be ``whole``: first the text, the ``end`` only where there is
        no room for both.
        """
        text, end = clean(text), clean(end)
        line = text + end if whole else fit_line(text, end, self.columns)
        self._start_line()
        self._err.write(self._styled(line, style) + "\n")
        self._err.flush()
        self.subject = about

    def tail(self, text: str) -> None:
        """Draw the end of a tool's output, in place of what was drawn before; only on a terminal that can."""
        lines = tail_lines(text, self.columns) if self._can_redraw else []
        if not lines:
            return
        before, self._drawn_lines = self._drawn_lines, 0
        if not before:
            self._start_line()
        drawn = "".join(f"{self._styled(line, DIM)}\n" for line in lines)
        self._err.write(_erase_lines(before) + drawn)  # in one piece, so that it does not flicker
        self._err.flush()
        self._drawn_lines = len(lines)

    def flush(self) -> None:
        """Show what was said of the answer."""
        self._out.flush()

    def close(self) -> None:
        """Leave the cursor at the start of a line, nothing drawn."""
        self._clear()
        self.end_line()
        self._out.flush()

    def _start_line(self) -> None:
        self._clear()
        self._out.flush()
        if self._is_shared and not self._at_line_start:
            self._err.write("\n")
            self._at_line_start = True

    def _clear(self) -> None:
        """Take away what is only for the moment."""
        if self._has_dim:
            self._err.write("\n")
        elif self._drawn_lines:
            self._err.write(_erase_lines(self._drawn_lines))
        else:
            return
        self._has_dim, self._drawn_lines = False, 0
        self._err.flush()

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_coloured and style else text

    @property
    def columns(self) -> int:
        """The width of a line beside the answer: a terminal's last column stays free, where some of them break it."""
        if not self._err.isatty():
            return _PIPE_COLUMNS
        asked = self._env.get("COLUMNS", "")
        return ((int(asked) if asked.isdecimal() else 0) or self._terminal_columns() or _DEFAULT_COLUMNS) - 1

    def _terminal_columns(self) -> int:
        """What the terminal says of itself; 0 where it does not know, as one without a screen."""
        try:
            return os.get_terminal_size(self._err.fileno()).columns
        except (OSError, ValueError):
            return 0


def _erase_lines(lines: int) -> str:
    """Back to the first of the lines that were drawn, and everything below it gone."""
    return f"\x1b[{lines}A\x1b[J" if lines else ""


def fit_line(text: str, end: str, columns: int) -> str:
    """``text`` and ``end`` in one line: the text is cut first, the end only where there is no room for both."""
    room = max(columns - display_width(end), columns // 3)
    return fit(fit(text, room) + end, columns)


def tail_lines(text: str, columns: int) -> list[str]:
    """The last lines of a text as they fit on a terminal; of a line that was drawn over, what it was last."""
    if columns < _MIN_COLUMNS:
        return []
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text[-_TAIL_ROWS * 2_000 :].split("\n"))
    shown = [clean(line.expandtabs(4)).rstrip() for line in lines]
    return [f"{_MARGIN}{fit(line, columns - len(_MARGIN))}" for line in [line for line in shown if line][-_TAIL_ROWS:]]


_OK, _ODD, _FAILED, _GOES_ON = "✓", "!", "✗", "…"
_CUT_JSON = re.compile(r'\{\s*"\w+"\s*:\s*"((?:[^"\\]|\\.)*)')
_PREVIEW_CHARS = 200
"""Characters of an input in events; one of this length may have been cut."""
_EXIT_NOTE_PREFIX = "(Command "
"""So begins the line in which ``exec`` says how a command ended."""


class CallEnd(NamedTuple):
    """A mark, and words behind it."""

    mark: str
    text: str


def describe_call(name: object, preview: object) -> str:
    """A call's name and the beginning of its input: of an object the first text as it is, and the rest by name."""
    words = _describe_input(preview) if isinstance(preview, str) else ""
    return clean(f"{name} {words}".strip())


def describes_whole_input(preview: object) -> bool:
    """Whether ``describe_call`` shows the whole input: it was not cut, and fits a line unchanged."""
    if not isinstance(preview, str):
        return False
    words = preview
    if preview.startswith("{"):
        try:
            msgspec.json.decode(preview)
        except (msgspec.DecodeError, RecursionError):
            return False
        words = _describe_input(preview)
    return len(preview) < _PREVIEW_CHARS and words.isprintable() and "  " not in words


def describe_end(call: ToolCallView, details: CallDetails | None) -> CallEnd:
    """What came of a call that has not failed: ``ok, code 0 (1.2 s)``."""
    details = details or CallDetails()
    took = _duration_suffix(call)
    if details.status == "running":
        if call.name == "exec":
            return CallEnd(_GOES_ON, f"still running in the background as {clean(details.session_id)}{took}")
        return CallEnd(_GOES_ON, f"{clean(details.session_id)} still runs{took}")
    how = _exit_reason(details)
    if details.status == "failed":
        return CallEnd(_FAILED, f"{_join_nonempty('failed', how)}{took}")
    if details.exit_code:
        return CallEnd(_ODD, f"ended with {how}{took}")
    return CallEnd(_OK, f"{_join_nonempty('ok', how)}{took}")


def describe_error(call: ToolCallView, error: object, details: CallDetails | None) -> CallEnd:
    """What a call failed with, or was denied for; of a command's output the last line."""
    how = _exit_reason(details or CallDetails())
    lines = [line for line in str(error).splitlines() if line.strip()]
    if how:
        said = [line for line in lines if not line.startswith(_EXIT_NOTE_PREFIX)]
        reason = said[-1] if said else ""
    else:
        reason = (lines[0] if lines else "").removeprefix(f"The call of {call.name} was denied: ")
    verdict = "denied" if call.state == "DENIED" else _join_nonempty("failed", how)
    return CallEnd(_FAILED, clean(f"{verdict}{_duration_suffix(call)}" + (f": {reason.strip()}" if reason else "")))


def _duration_suffix(call: ToolCallView) -> str:
    return "" if call.duration_ms is None else f" ({format_duration(call.duration_ms / 1000)})"


def _exit_reason(details: CallDetails) -> str:
    if details.timed_out:
        return "timed out"
    if details.exit_signal is not None:
        return f"signal {clean(details.exit_signal)}"
    return "" if details.exit_code is None else f"code {details.exit_code}"


def _join_nonempty(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _describe_input(preview: str) -> str:
    """Of what is no object, or was cut off inside its second field, the text as it is."""
    try:
        given = msgspec.json.decode(preview)
    except (msgspec.DecodeError, RecursionError):
        found = _CUT_JSON.match(preview)
        return preview if found is None else _unescape_cut_string(found[1])
    if not isinstance(given, dict):
        return preview
    return " ".join(_describe_field(number, name, value) for number, (name, value) in enumerate(given.items()))


def _describe_field(number: int, name: str, value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if number == 0 and isinstance(value, str) else f"{name}={text}"


def _unescape_cut_string(text: str) -> str:
    """The beginning of a JSON string; an escape that was cut off is dropped."""
    text = re.sub(r"\\(?:u[0-9a-fA-F]{0,3})?\Z", "", text)
    try:
        decoded: str = msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return text
    return f"{decoded.rstrip()}…"


FAILED_STATES = frozenset({"FAILED", "DENIED"})
"""States of calls whose error is shown before their end."""
_DIM_MARKS = frozenset("✓…")
_PAGE_INDENT = "  "


class CallLines:
    """Calls may run at the same time; an end names its call unless nothing was shown since that began."""

    def __init__(self, stage: RunView) -> None:
        self._view = stage

    def start(self, call: ToolCallView) -> None:
        """It is there."""
        self._view.end_line()  # what the model says after it is another text
        self._view.line(f"· {describe_call(call.name, call.input_preview)}", about=call.id)

    def update(self, tail: str) -> None:
        """The end of a call's output so far."""
        self._view.tail(tail)

    def error(self, call: ToolCallView, error: str | None, details: CallDetails | None) -> None:
        """It has failed, or was denied; its end is shown after that."""
        self._end(call, describe_error(call, error, details))

    def end(self, call: ToolCallView, details: CallDetails | None) -> None:
        """It is over."""
        if call.state not in FAILED_STATES:
            self._end(call, describe_end(call, details))

    def page(self, page: CallPage) -> None:
        """Show a page of a call's description."""
        for line in page_lines(page, self._view.columns - len(_PAGE_INDENT)):
            self._view.line(f"{_PAGE_INDENT}{line.text}", whole=True, style=STYLES[line.tone])

    def _end(self, call: ToolCallView, end: CallEnd) -> None:
        style = DIM if end.mark in _DIM_MARKS else ""
        if self._view.subject == call.id:
            self._view.line(f"  {end.mark} {end.text}", style=style)
        else:
            words = describe_call(call.name, call.input_preview)
            self._view.line(f"{end.mark} {words}", f": {end.text}", style=style)
