"""Small texts for people: spans of time, sizes, names, errors; nothing here may carry a terminal's control codes."""

from typing import Any

from doors.control_client import NoSupervisor
from errors import AcquireTimeout, PoolError, PoolSaturated, RequestTimeout, UsageError

__all__ = [
    "EXIT_FAILED",
    "clean",
    "clean_stream",
    "error_line",
    "exit_code",
    "percent",
    "single_cause",
    "size",
    "span",
]

EXIT_FAILED = 1

_KEPT_CONTROLS = "\n\t"
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in _KEPT_CONTROLS}
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def span(seconds: float | None) -> str:
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


def size(count: float | None) -> str:
    """A number of bytes: ``45 MiB``; a dash where it is not known."""
    if count is None:
        return "-"
    for factor, unit in _SIZES:
        if count >= factor:
            return f"{count / factor:.1f} {unit}" if count < 10 * factor else f"{count / factor:.0f} {unit}"
    return f"{count:.0f} B"


def percent(value: float | None) -> str:
    """A share of one processor; a dash where it is not known."""
    return "-" if value is None else f"{value:.0f}%"


def clean(value: Any) -> str:
    """One line of printable text, whatever comes in: what cannot be printed is shown as an escape. None is a dash."""
    if value is None:
        return "-"
    text = str(value)
    return text if text.isprintable() else "".join(ch if ch.isprintable() else _escape(ch) for ch in text)


def clean_stream(text: str) -> str:
    """Running text for a terminal: line ends and tabs stay, every other control code goes."""
    return text.translate(_CONTROLS)


def error_line(error: PoolError) -> str:
    """What went wrong, for one line on stderr: the message, the worker's last word, when to try again."""
    line = "\n".join(clean(part) for part in error.message.splitlines())
    said = (error.stderr_tail or "").strip().splitlines()
    if said and said[-1].strip() not in error.message:
        line += f" (it last said: {clean(said[-1].strip())})"
    if error.retry_after is not None:
        line += f" (try again in {span(error.retry_after)})"
    return line


def exit_code(error: PoolError) -> int:
    """1 the thing asked for failed, 2 usage, 3 no supervisor, 4 saturated or timed out."""
    match error:
        case NoSupervisor():
            return 3
        case UsageError():
            return 2
        case PoolSaturated() | AcquireTimeout() | RequestTimeout():
            return 4
        case _:
            return EXIT_FAILED


def single_cause(exc: BaseException) -> BaseException:
    """The one exception inside nested groups of one, as nurseries make them; their own text says nothing."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _escape(ch: str) -> str:
    return " " if ch in "\n\t" else ch.encode("unicode_escape").decode()
