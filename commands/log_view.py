"""Lines of logs as they are shown: for people, or one JSON object a line."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import msgspec

from wire.log_file import ENDED, SUPERVISOR_LOG, LogLine, json_fields, utc_text
from wire.log_line import render_line
from wire.terminal import DIM, PLAIN, RED, clean_stream, name_colour, wants_styles

_GOOD_END = f"{ENDED}: exited with code 0"


class LogView:
    """Writes lines; on a terminal with local times, without control codes, in colours where they are wanted."""

    def __init__(self, out: TextIO, env: Mapping[str, str], *, as_json: bool, shows_names: bool) -> None:
        """``shows_names``: lines say which worker's they are."""
        self._out = out
        self._is_terminal = out.isatty()
        self._is_coloured = self._is_terminal and wants_styles(env)
        self._render = _json_line if as_json else self._text_line
        self._shows_names = shows_names

    def show(self, lines: Iterable[LogLine]) -> None:
        """Write the lines, and flush once."""
        self._out.write("".join(f"{self._render(line)}\n" for line in lines))
        self._out.flush()

    def _text_line(self, line: LogLine) -> str:
        text = clean_stream(line.text).removesuffix("\r") if self._is_terminal else line.text
        if line.log == SUPERVISOR_LOG:
            fields = json_fields(line.text)
            return (
                text
                if fields is None
                else render_line({**_HEAD, **fields, "ts": line.at or 0.0}, is_coloured=self._is_coloured)
            )
        parts = [self._style(self._time(line.at), DIM)] if line.at is not None else []
        if self._shows_names:
            parts.append(self._style(line.log, name_colour(line.log)))
        if line.source == "pool":
            is_bad = text.startswith(ENDED) and not text.startswith(_GOOD_END) and "was stopped" not in text
            text = self._style(f"-- {text}", RED if is_bad else DIM)
        return " ".join([*parts, text])

    def _time(self, at: float) -> str:
        """Of today the local time; into a pipe, in a form that sorts."""
        if not self._is_terminal:
            return utc_text(at)
        local = time.localtime(at)
        is_today = local[:3] == time.localtime()[:3]
        return time.strftime("%H:%M:%S" if is_today else "%m-%d %H:%M:%S", local)

    def _style(self, text: str, style: str) -> str:
        return f"{style}{text}{PLAIN}" if self._is_coloured else text


_HEAD = {"level": "info", "event": ""}


def _json_line(line: LogLine) -> str:
    """A line of the supervisor as it is; of a worker its time, its name, ``stderr`` or ``pool``, the text."""
    if line.log == SUPERVISOR_LOG and json_fields(line.text) is not None:
        return line.text
    at = None if line.at is None else utc_text(line.at)
    fields: dict[str, Any] = {"ts": at, "log": line.log, "source": line.source, "text": line.text}
    return msgspec.json.encode(fields).decode()
