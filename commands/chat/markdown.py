"""A block of an answer as lines of the terminal. Imported with the first answer, since rich takes its time."""

import io
import re
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.theme import Theme

from wire.terminal import clean_stream

_NO_GROUNDS = {"markdown.code": "bold cyan", "markdown.code_block": "cyan"}
"""Rich puts code on black, which a light terminal shows as bars."""
_STYLE = re.compile(r"\x1b\[[\d;]*m")


class _LeftHeading(Heading):
    """A heading where a reader of a chat looks for it: rich centres it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _ChatMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}


def render_markdown(text: str, columns: int, *, is_coloured: bool) -> str:
    """The block, and one empty line behind it: rich puts empty lines around some kinds of blocks, and not others."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=columns,
        force_terminal=is_coloured,
        color_system="standard" if is_coloured else None,
        highlight=False,
        legacy_windows=False,
        theme=Theme(_NO_GROUNDS),
    )
    console.print(_ChatMarkdown(clean_stream(text), hyperlinks=False, code_theme="ansi_dark"))
    lines = [line.rstrip() for line in out.getvalue().split("\n")]
    shown = [number for number, line in enumerate(lines) if _STYLE.sub("", line).strip()]
    return "\n".join(lines[shown[0] : shown[-1] + 1] if shown else []) + "\n\n"
