"""Tool calls that wait for a person, and what to type about each: two lines a call. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from doors.event_texts import approve_command, call_text
from doors.texts import clean

__all__ = ["question_lines", "short_key"]

_SHOWN = 10
_KEY_END = 36


def question_lines(asked: Sequence[dict[str, Any]], place: str = "", *, margin: int = 10) -> Iterator[Text]:
    """``asked``: ``{session, call}`` each. ``place``: the options by which shown commands find the supervisor.

    ``margin``: columns before the text, the word ``asks`` in them. A command is never cut and never broken: it is to be
    copied. ``pool deny`` takes the same arguments.
    """
    for question in asked[:_SHOWN]:
        yield Text.assemble(
            ("asks".ljust(margin), "yellow"), f"{short_key(question['session'])}: {call_text(question)}"
        )
        command = approve_command(question, question["session"], place)
        yield Text(f"{' ' * margin}{command}", "bold", no_wrap=True, overflow="ignore")
    if len(asked) > _SHOWN:
        yield Text(f"{' ' * margin}and {len(asked) - _SHOWN} more; pool status --json has all of them", "dim")


def short_key(key: str | None) -> str:
    """A session's key, of a long one both its ends: one of them must not push everything else off the line."""
    text = clean(key)
    return text if len(text) <= 2 * _KEY_END + 1 else f"{text[:_KEY_END]}…{text[-_KEY_END:]}"
