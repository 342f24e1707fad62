"""Tool calls that wait for a person, and what to type about each: two lines a call, or all of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from doors.event_texts import approve_command, call_text, look_command, reason_text
from doors.texts import clean
from wire.call_pages import Tone, page_lines
from wire.call_parts import CallPage
from wire.call_texts import is_all_said
from wire.terminal import cells

__all__ = ["page_texts", "question_lines", "short_key"]

_STYLES: Mapping[Tone, str] = {"plain": "", "name": "dim", "added": "green", "removed": "red", "place": "dim"}
_SHOWN = 10
_KEY_END = 36
_REASON = 160


def question_lines(
    asked: Sequence[dict[str, Any]], place: str = "", *, margin: int = 10, columns: int | None = None
) -> Iterator[Text]:
    """``asked``: ``{session, call}`` each. ``place``: the options by which shown commands find the supervisor.

    ``margin``: columns before the text, the word ``asks`` in them. A command is never cut and never broken: it is to be
    copied. It approves (``pool deny`` takes the same arguments) only where the line says all of the call and has
    ``columns`` enough, so that it is not cut; else it shows the call.
    """
    for question in asked[:_SHOWN]:
        said = f"{short_key(question['session'])}: {call_text(question)}"
        yield Text.assemble(("asks".ljust(margin), "yellow"), said, (reason_text(question)[:_REASON], "dim"))
        fits = columns is None or margin + cells(said) <= columns
        is_all = is_all_said(question["call"].get("input_preview")) and fits
        command = (approve_command if is_all else look_command)(question, question["session"], place)
        yield Text(f"{' ' * margin}{command}", "bold", no_wrap=True, overflow="ignore")
    if len(asked) > _SHOWN:
        yield Text(f"{' ' * margin}and {len(asked) - _SHOWN} more; pool approvals has all of them", "dim")


def page_texts(page: CallPage, columns: int, *, margin: int = 0) -> Iterator[Text]:
    """What a call would do, behind a margin; nothing of what lies behind the page."""
    for line in page_lines(page, columns - margin):
        yield Text(" " * margin + line.text, _STYLES[line.tone], no_wrap=True, overflow="ignore")


def short_key(key: str | None) -> str:
    """A session's key, of a long one both its ends: one of them must not push everything else off the line."""
    text = clean(key)
    return text if len(text) <= 2 * _KEY_END + 1 else f"{text[:_KEY_END]}…{text[-_KEY_END:]}"
