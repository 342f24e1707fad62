"""A terminal's screen as an SVG picture: its text stays text, so that it is small and sharp. Pure."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape

import pyte
from pyte.screens import Char

_CELL, _LINE, _MARGIN = 8.4, 19.0, 16.0
"""Pixels of a character, of a line, and around them, at a size of 14."""
_PIECE = re.compile(r"\S+(?: \S+)*")
"""Text without two spaces in a row, which a browser makes one of."""
_NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


class Palette(NamedTuple):
    """Colours as ``#rrggbb``; ``normal`` and ``bright``: the eight of a terminal, in their order."""

    text: str
    ground: str
    normal: str
    bright: str

    def colour(self, name: str, default: str) -> str:
        """Of a name of pyte's, or of six digits."""
        if name == "default":
            return default
        base = name.removeprefix("bright")
        if base in _NAMES:
            return (self.normal if base == name else self.bright).split()[_NAMES.index(base)]
        return f"#{name}"


LIGHT = Palette(
    "#1f2328",
    "#ffffff",
    "#24292f #cf222e #116329 #8a5a00 #0969da #8250df #1b7c83 #6e7781",
    "#57606a #a40e26 #1a7f37 #7d4e00 #218bff #a475f9 #3192aa #8c959f",
)
DARK = Palette(
    "#e6edf3",
    "#0d1117",
    "#484f58 #ff7b72 #3fb950 #d29922 #58a6ff #bc8cff #39c5cf #b1bac4",
    "#8b949e #ffa198 #56d364 #e3b341 #79c0ff #d2a8ff #56d4dd #ffffff",
)


def draw_screen(screen: pyte.Screen, palette: Palette, title: str) -> str:
    """The picture, down to the last line that is not empty; ``title`` is for those who do not see it."""
    lines = max(row for row, line in enumerate(screen.display) if line.strip()) + 1
    width, height = screen.columns * _CELL + 2 * _MARGIN, lines * _LINE + 2 * _MARGIN
    font = 'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{title}">',
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="{palette.ground}" stroke="#8b949e55"/>',
        f"<g {font}>",
    ]
    for row in range(lines):
        parts += _draw_row([screen.buffer[row][column] for column in range(screen.columns)], row, palette)
    return "\n".join([*parts, "</g>", "</svg>\n"])


def _draw_row(cells: list[Char], row: int, palette: Palette) -> Iterator[str]:
    at = 0
    for style, run in groupby(cells, key=lambda cell: cell._replace(data="")):
        text = "".join(cell.data or " " for cell in run)  # behind a wide character stands a cell without any
        ink, ground = palette.colour(style.fg, palette.text), palette.colour(style.bg, palette.ground)
        if style.reverse:
            ink, ground = ground, ink
        y = _MARGIN + row * _LINE
        if ground != palette.ground:
            width = len(text) * _CELL
            yield f'<rect x="{_MARGIN + at * _CELL:g}" y="{y:g}" width="{width:g}" height="{_LINE:g}" fill="{ground}"/>'
        shape = ' font-weight="bold"' * style.bold + ' font-style="italic"' * style.italics
        for piece in _PIECE.finditer(text):
            x, width = _MARGIN + (at + piece.start()) * _CELL, len(piece[0]) * _CELL
            size = f'x="{x:g}" textLength="{width:g}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text y="{y + 14:g}" fill="{ink}" {size}{shape}>{escape(piece[0])}</text>'
        at += len(text)
