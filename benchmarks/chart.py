"""The promised figures as a picture: each a bar, as long as the share that it takes of what is allowed. Pure.

It is read on light and on dark pages alike, without scripts; colours are never all that tells met from missed.
"""

from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape

from benchmarks.harness import Result
from benchmarks.promises import Promise
from benchmarks.report import Report, number

_WIDTH = 1080
_BARS_AT = 400
_ALLOWED = 240
"""Pixels of a figure that takes all that is allowed."""
_LONGEST = 300
"""Pixels of a bar, however far a figure misses."""
_VALUES_AT = 712
_TOP = 80
_LINE = 20
_GAP = 10

_STYLE = """
:root { --page: #ffffff; --text: #1f2328; --dim: #656d76; --met: #2a78b8; --missed: #c4432b; --line: #8c959f; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --text: #e6edf3; --dim: #8d96a0; --met: #58a6ff; --missed: #ff7b61; --line: #6e7681; }
}
svg { background: var(--page); font: 12px ui-sans-serif, system-ui, sans-serif; }
text { fill: var(--text); }
.title { font-size: 16px; font-weight: 600; }
.promise { font-weight: 600; }
.dim { fill: var(--dim); }
.met { fill: var(--met); }
.missed { fill: var(--missed); }
.limit { stroke: var(--line); stroke-dasharray: 3 3; }
"""


def draw(report: Report) -> str:
    """The picture as the text of an SVG file; figures without a bar are not in it."""
    rows: list[str] = []
    y = _TOP
    for promise in Promise:
        figures = [found for found in report.of(promise) if found.share is not None]
        if figures:
            rows += [_text(0, y, promise, "promise"), *_figures(figures, y + _LINE)]
            y += _LINE * (len(figures) + 1) + _GAP
    return "\n".join([*_head(report, y), *rows, _limit(y), "</g>", "</svg>", ""])


def _head(report: Report, height: int) -> Iterator[str]:
    machine = report.machine
    facts = f"{machine.cpu}, {machine.cores} cores, {machine.kernel}, Python {machine.python}, {machine.time}"
    judged = [found for promise in Promise for found in report.of(promise) if found.share is not None]
    met = sum(found.met is True for found in judged)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height + 40}" width="{_WIDTH}" '
        f'height="{height + 40}" role="img" aria-labelledby="title">'
    )
    yield f'<title id="title">Benchmarks: {met} of {len(judged)} bars met</title>'
    yield f"<style>{_STYLE}</style>"
    yield '<g transform="translate(16 24)">'
    yield _text(0, 0, f"{met} of {len(judged)} bars met", "title")
    yield _text(0, _LINE, "Each figure as the share that it takes of what its bar allows: shorter is better.", "dim")
    yield _text(0, 2 * _LINE - 2, facts, "dim")


def _figures(figures: Iterable[Result], y: int) -> Iterator[str]:
    for position, found in enumerate(figures):
        line = y + position * _LINE
        share = found.share or 0.0
        length = min(max(share * _ALLOWED, 1.0), _LONGEST)
        kind = "met" if found.met else "missed"
        yield _text(12, line, found.name)
        yield f'<rect class="{kind}" x="{_BARS_AT}" y="{line - 10}" width="{length:.1f}" height="12" rx="2"/>'
        verdict = "" if found.met else ", missed"
        yield _text(_VALUES_AT, line, f"{_measured(found)}{verdict}", "dim" if found.met else "missed")


def _measured(found: Result) -> str:
    """With its ratio where that is what is judged."""
    ratio = f", {number(found.ratio)} x" if found.ratio is not None and found.bar.endswith(" x") else ""
    return f"{number(found.value)} {found.unit}{ratio} ({found.bar})"


def _limit(height: int) -> str:
    x = _BARS_AT + _ALLOWED
    return f'<line class="limit" x1="{x}" y1="{_TOP - 16}" x2="{x}" y2="{height - _GAP}"/>'


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{css}>{escape(words)}</text>'
