"""Terminal output: cleaning of control codes, display width, styles, small formatters, and closed standard streams."""

import errno
import io
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Mapping
from typing import Any

from errors import AcquireTimeout, NoSupervisor, PoolError, PoolSaturated, RequestTimeout, RunCutShort, UsageError

DIM, BOLD, PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
RED, GREEN, YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"
_NAME_COLOURS = tuple(f"\x1b[{code}m" for code in (36, 35, 96, 95, 94, 92))

_KEPT_CONTROLS = "\n\t"
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""What shows nothing, or turns the order of what does. Joiners (U+200C, U+200D) and variation selectors are not among
these: emoji and some scripts are written with them."""
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in _KEPT_CONTROLS}


def can_style(env: Mapping[str, str]) -> bool:
    """Whether the terminal of this environment understands more than text."""
    return env.get("TERM") != "dumb"


def wants_styles(env: Mapping[str, str]) -> bool:
    """Whether to style terminal output: the terminal can, and ``NO_COLOR`` is not set."""
    return can_style(env) and not env.get("NO_COLOR")


def clean(value: Any) -> str:
    """One line of printable text, whatever comes in: what cannot be printed is shown as an escape. None is a dash."""
    if value is None:
        return "-"
    text = str(value)
    return text if text.isprintable() else "".join(ch if ch.isprintable() else _escape(ch) for ch in text)


def clean_stream(text: str) -> str:
    """Running text for a terminal: line ends and tabs stay, other control codes go, what is invisible is escaped."""
    text = text.translate(_CONTROLS)
    return text if text.isascii() else _INVISIBLE.sub(lambda found: _escape(found[0]), text)


def display_width(text: str) -> int:
    """Columns that a text without control codes takes, or a few more: what joins with its neighbour counts too."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def name_colour(name: str) -> str:
    """One of six colours, always the same for a name."""
    return _NAME_COLOURS[zlib.crc32(name.encode()) % len(_NAME_COLOURS)]


def fit(text: str, columns: int) -> str:
    """The text cut to at most that many columns; a cut is marked."""
    if columns <= 0:
        return ""
    if len(text) * 2 <= columns or display_width(text) <= columns:
        return text
    return f"{text[: fitting_length(text, columns - 1)].rstrip()}…"


def fitting_length(text: str, columns: int) -> int:
    """How many of the first characters fit into ``columns``."""
    if text.isascii():
        return min(len(text), columns)
    for count, ch in enumerate(text):
        columns -= _char_width(ch)
        if columns < 0:
            return count
    return len(text)


def format_duration(seconds: float | None) -> str:
    """A span of time in at most six characters: ``0.3 ms``, ``4.2 s``, ``2m10s``, ``1h05m``, ``3d04h``."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def format_count(number: int) -> str:
    """A number that may be large: ``950``, ``12.3k``, ``200k``, ``4.5M``."""
    if abs(number) < 10_000:
        return str(number)
    unit, letter = (1_000, "k") if abs(number) < 999_950 else (1_000_000, "M")  # what rounds to 1000.0k is 1M
    return f"{number / unit:.1f}".removesuffix(".0") + letter


def _char_width(ch: str) -> int:
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1


def _escape(ch: str) -> str:
    return " " if ch in "\n\t" else ch.encode("unicode_escape").decode()


OUTPUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of an output that is full or closed: reported in one line, without a traceback."""

_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def fill_standard_streams() -> None:
    """Open ``/dev/null`` for each of the descriptors 0 to 2 that was closed when Python started.

    Else the next socket or file would get the number, be taken for a terminal, and reach every child as its stdin,
    stdout or stderr; and Python has None where a stream should be. Call it before anything else opens a file.
    """
    for fd, name, mode in _STREAMS:
        if getattr(sys, name) is None:
            _open_null(fd)
            setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8"))


def discard_unwritable_output() -> None:
    """Discard what stdout and stderr still hold if it cannot be written.

    Python would try again at its exit, with an error message and an exit code of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, stream.fileno())
            os.close(null)


def replace_unencodable_characters() -> None:
    """Show a question mark for a character that stdout or stderr has no code for, instead of failing at it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _open_null(fd: int) -> None:
    """At exactly this number, and kept by children as a standard stream is."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == fd:
        os.set_inheritable(fd, True)  # noqa: FBT003  # positional-only
    else:
        os.dup2(null, fd)
        os.close(null)


EXIT_FAILED = 1

_MAX_STDERR_LINES = 4
"""Lines of what a worker has said on stderr that may be shown with an error."""
_MAX_SAID_CHARACTERS = 1_000
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def format_size(count: float | None) -> str:
    """A number of bytes: ``45 MiB``; a dash where it is not known."""
    if count is None:
        return "-"
    for factor, unit in _SIZES:
        if count >= factor:
            return f"{count / factor:.1f} {unit}" if count < 10 * factor else f"{count / factor:.0f} {unit}"
    return f"{count:.0f} B"


def format_percent(value: float | None) -> str:
    """A share of one processor; a dash where it is not known."""
    return "-" if value is None else f"{value:.0f}%"


def error_line(error: PoolError) -> str:
    """What went wrong, for one line on stderr: the message, the worker's last words, when to try again."""
    line = "\n".join(clean(part) for part in with_last_words(error.message, error.stderr_tail).splitlines())
    if error.retry_after is not None:
        line += f" (try again in {format_duration(error.retry_after)})"
    return line


def with_last_words(message: str, stderr_tail: Any) -> str:
    """The message of an error, with what its worker wrote to stderr last where the message does not have that."""
    said = last_words(message, stderr_tail)
    return message if said is None else f"{message} (it last said: {said})"


def last_words(message: str, stderr_tail: Any) -> str | None:
    """What a worker wrote to stderr last, on one line of at most 1,000 characters; None where the message has it.

    ``stderr_tail``: that of the error's details, None where there is none.
    """
    said = _last_stderr_lines(stderr_tail) if isinstance(stderr_tail, str) else []
    if not said or said[0] in message:
        return None
    words = " ".join(said)
    return clean(words if len(words) <= _MAX_SAID_CHARACTERS else words[: _MAX_SAID_CHARACTERS - 1] + "…")


def _last_stderr_lines(stderr_tail: str) -> list[str]:
    """The last line, or the last lines where one says that it is the error: advice may follow it."""
    said = [line.strip() for line in stderr_tail.splitlines() if line.strip()][-_MAX_STDERR_LINES:]
    begin = max((at for at, line in enumerate(said) if line.startswith("Error: ")), default=len(said) - 1)
    return said[begin:]


def exit_code(error: PoolError) -> int:
    """1 the thing asked for failed, 2 usage, 3 no supervisor, 4 saturated or timed out, 5 cut short."""
    match error:
        case NoSupervisor():
            return 3
        case UsageError():
            return 2
        case PoolSaturated() | AcquireTimeout() | RequestTimeout():
            return 4
        case RunCutShort():
            return 5
        case _:
            return EXIT_FAILED
