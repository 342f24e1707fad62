"""HTML and SVG as values: whatever is put into them is escaped, unless it is markup already. Pure."""

from collections.abc import Iterable
from html import escape

__all__ = ["NOTHING", "Markup", "join", "shown", "tag"]

_MOST_LETTERS = 300


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


NOTHING = Markup()
_EMPTY_TAGS = frozenset({"meta", "link", "rect", "path", "line"})


def tag(element: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. ``class_`` is the attribute ``class``, ``aria_label`` is ``aria-label``; None leaves one out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _EMPTY_TAGS and not children:
        return Markup(f"<{element}{said}/>")
    return Markup(f"<{element}{said}>{join(children)}</{element}>")


def join(parts: Iterable[str]) -> Markup:
    """All of them, one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def shown(text: str, most: int = _MOST_LETTERS) -> str:
    """The text, or its beginning and a sign that there was more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escaped(text: str) -> str:
    """What cannot be seen (control characters, those that turn the direction of writing, half characters) is named."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
    return escape(text)
