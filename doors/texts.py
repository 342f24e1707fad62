"""Small texts for people: spans of time, sizes, names, errors; nothing here may carry a terminal's control codes."""

from errors import AcquireTimeout, NoSupervisor, PoolError, PoolSaturated, RequestTimeout, RunCutShort, UsageError
from wire.terminal import clean, clean_stream, span

__all__ = [
    "EXIT_FAILED",
    "clean",
    "clean_stream",
    "error_line",
    "exit_code",
    "percent",
    "size",
    "span",
]

EXIT_FAILED = 1

_MAX_LAST_WORDS = 4
"""Lines of what a worker has said on stderr that may be shown with an error."""
_SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


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


def error_line(error: PoolError) -> str:
    """What went wrong, for one line on stderr: the message, the worker's last words, when to try again."""
    line = "\n".join(clean(part) for part in error.message.splitlines())
    said = _last_words(error.stderr_tail or "")
    if said and said[0] not in error.message:
        line += f" (it last said: {clean(' '.join(said))})"
    if error.retry_after is not None:
        line += f" (try again in {span(error.retry_after)})"
    return line


def _last_words(stderr_tail: str) -> list[str]:
    """The last line, or the last lines where one says that it is the error: advice may follow it."""
    said = [line.strip() for line in stderr_tail.splitlines() if line.strip()][-_MAX_LAST_WORDS:]
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
