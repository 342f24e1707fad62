"""The report of a run: one self-contained HTML page that shows first whether every promise was kept. Pure."""

import base64
import hashlib
from importlib.resources import files

from stress.outcome import StressResult
from stress.report.parts import ResultState, broken_promises, cards, header, machine, outcomes, promises, state_of
from stress.report.text import Markup, join, tag
from stress.report.timeline import timeline

__all__ = ["render_report"]

_ICON_COLOURS = {"GREEN": "#18794e", "RED": "#b42318", "EMPTY": "#8f5200"}


def render_report(result: StressResult) -> str:
    """The text of the file: at most about a megabyte, however long the run was."""
    style = (files("stress.report") / "report.css").read_text(encoding="utf-8")
    state = state_of(result)
    body = tag(
        "body",
        tag(
            "main",
            header(result),
            broken_promises(result),
            cards(result),
            promises(result.verdicts),
            timeline(result),
            tag("div", outcomes(result.fates), machine(result.machine), class_="pair"),
        ),
    )
    return join([Markup("<!doctype html>\n"), tag("html", _head(result, state, style), body, lang="en"), Markup("\n")])


def _head(result: StressResult, state: ResultState, style: str) -> Markup:
    faults = f" + {','.join(result.plan.faults)}" if result.plan.faults else ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href=_icon(state)),
        tag("title", f"{state}: pool stress {result.plan.load}{faults}, seed {result.plan.seed}"),
        tag("style", Markup(style)),
    )


def _icon(state: ResultState) -> str:
    """A disc in the colour of the verdict, which marks the browser tab."""
    disc = tag("circle", cx=8, cy=8, r=7, fill=_ICON_COLOURS[state])
    svg = tag("svg", disc, xmlns="http://www.w3.org/2000/svg", viewBox="0 0 16 16")
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
