"""What stands above and below the input of a chat, and how its lines are broken. Pure."""

import textwrap

from commands.chat.effects import Line
from commands.chat.machine import ChatMachine
from wire.run_view import fit_line, tail_lines
from wire.terminal import clean, clean_stream, display_width, fit, fitting_length

_DOT = " · "
_PROSE_STYLES = frozenset({"warn", "bad"})


def live_lines(machine: ChatMachine, columns: int, rows: int) -> list[str]:
    """What is under way: the block that has begun, the calls that run, why a message waits. At most ``rows``."""
    lines = wrapped_end(machine.transcript.partial_answer, columns, rows)
    for words, tail in machine.transcript.calls.running:
        lines += [fit(f"· {words}", columns), *tail_lines(tail, columns)]
    if machine.waits_for:
        place = f" (place {machine.place})" if machine.place else ""
        lines.append(fit(f"… waits{place}: {clean(machine.waits_for)}", columns))
    return lines[-rows:]


def wrapped_end(text: str, columns: int, rows: int) -> list[str]:
    """The last lines of a text as the terminal will break them."""
    lines: list[str] = []
    for line in clean_stream(text[-columns * rows :]).expandtabs(4).split("\n"):
        begin = 0
        while begin < max(1, len(line)):
            end = begin + max(1, fitting_length(line[begin:], columns))
            lines.append(line[begin:end])
            begin = end
    return lines[-rows:] if text else []


def shown_lines(line: Line, columns: int) -> list[str]:
    """A line as it is printed. What people read is broken between words; what they copy, by the terminal."""
    if not line.is_whole:
        return [fit_line(clean(line.text), clean(line.end), columns)]
    lines = clean_stream(line.text).split("\n")
    if line.style not in _PROSE_STYLES:
        return lines
    return [part for one in lines for part in textwrap.wrap(one, columns, break_on_hyphens=False) or [""]]


def wrapped_parts(text: str, columns: int) -> list[str]:
    """A list of words between dots over as many lines as it needs: each of them is a key that must be seen."""
    lines = [""]
    for part in text.split(_DOT):
        longer = f"{lines[-1]}{_DOT}{part}" if lines[-1] else part
        if lines[-1] and display_width(longer) > columns:
            lines.append(part)
        else:
            lines[-1] = longer
    return [fit(line, columns) for line in lines]


def status_text(machine: ChatMachine, columns: int) -> str:
    """State, session, agent, model, tokens, cost: a narrow terminal cuts the end."""
    transcript = machine.transcript
    parts = [_state(machine), machine.session, machine.agent, machine.model]
    if transcript.tokens:
        parts.append(f"{transcript.tokens:,} tokens")
    if transcript.cost is not None:
        parts.append(f"${transcript.cost:.2f}")
    return fit(_DOT.join(clean(part) for part in parts if part), columns)


def _state(machine: ChatMachine) -> str:
    if not machine.is_connected:
        return "no supervisor"
    if machine.transcript.questions.current:
        return "approval"
    if machine.transcript.running:
        return "working"
    return "waiting" if machine.is_busy else "idle"
