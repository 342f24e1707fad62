"""The report of a run: one self-contained HTML page that shows first whether every promise was kept. Pure."""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Literal

from stress.facts import Fact
from stress.outcome import InvariantVerdict, LatencyQuantiles, StressResult, ViolationReport
from stress.plan import FAULTS, LOADS
from stress.report.text import (
    EMPTY_MARKUP,
    Markup,
    count,
    describe_fact,
    duration,
    join,
    mebibytes,
    moment,
    plural,
    tag,
    truncate,
)
from stress.report.timeline import timeline

_ICON_COLOURS = {"GREEN": "#18794e", "RED": "#b42318", "EMPTY": "#8f5200"}


ResultState = Literal["GREEN", "RED", "EMPTY"]
"""``EMPTY``: no request was completed, which proves nothing."""


def _state_of(result: StressResult) -> ResultState:
    if not result.all_kept:
        return "RED"
    return "EMPTY" if result.is_empty else "GREEN"


def render_report(result: StressResult) -> str:
    """The text of the file: at most about a megabyte, however long the run was."""
    style = (files("stress.report") / "report.css").read_text(encoding="utf-8")
    state = _state_of(result)
    body = tag(
        "body",
        tag(
            "main",
            _header(result),
            _broken_promises(result),
            _cards(result),
            _promises(result.verdicts),
            timeline(result),
            tag("div", _outcomes(result.fates), _machine(result.machine), class_="pair"),
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


# --- the verdict ------------------------------------------------------------------------------------------------------

_MAX_FACTS = 60
_FIRST_FACTS = 20
_MAX_ROWS = 30


def _header(result: StressResult) -> Markup:
    """The verdict, the plan, and the command that repeats it."""
    state = _state_of(result)
    plan = result.plan
    began = datetime.fromtimestamp(result.began_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return tag(
        "header",
        tag(
            "div",
            tag("p", {"GREEN": "✓ ", "RED": "✗ ", "EMPTY": "? "}[state], state, class_="state"),
            tag("div", tag("h1", _headline(result, state)), tag("p", _size(result)), class_="says"),
            class_=f"verdict {state.lower()}",
        ),
        tag(
            "dl",
            *_row("Load", f"{plan.load}, at full size: {LOADS[plan.load]}"),
            *_row("Faults", "; ".join(f"{name}: {FAULTS.get(name, '')}" for name in plan.faults) or "none"),
            *_row("Size", _plan_size(result)),
            *_row("Began", f"{began}, took {duration(result.seconds)}"),
            *_row("Seed", str(plan.seed)),
            class_="plan",
        ),
        tag("p", "To repeat it:"),
        tag(
            "pre",
            tag("code", *_command(plan.command)),
            class_="command",
            tabindex=0,
            aria_label="The command that repeats it",
        ),
        tag("p", f"The supervisor's log: {truncate(result.log)}") if result.log else EMPTY_MARKUP,
    )


def _command(line: str) -> Iterator[str]:
    """Keep each option on one line."""
    first, *options = line.split(" --")
    yield first
    for option in options:
        yield " "
        yield tag("span", f"--{option}")


def _headline(result: StressResult, state: ResultState) -> str:
    if state == "EMPTY":
        return "No request was completed"
    broken = [verdict.invariant for verdict in result.verdicts if verdict.broken]
    if not broken:
        return result.kept_sentence
    return f"{len(broken)} of {len(result.verdicts)} promises broken: {', '.join(broken)}"


def _size(result: StressResult) -> str:
    faults = sum(each.faults for each in result.series)
    checked = sum(verdict.checked for verdict in result.verdicts)
    return f"{plural(_request_count(result), 'request')}, {plural(faults, 'fault')}, {plural(checked, 'check')}"


def _plan_size(result: StressResult) -> str:
    plan = result.plan
    front_ends = f", {plan.front_ends:,} front ends" if plan.front_ends else ""
    lives = f", {result.lives} successive supervisors" if result.lives > 1 else ""
    return (
        f"{plan.sessions:,} sessions, {plan.workers} workers, {len(plan.roles)} profiles{front_ends}, "
        f"{plan.rate:g} requests a second, turns of {duration(plan.turn)}{lives}"
    )


def _request_count(result: StressResult) -> int:
    return sum(each.asked for each in result.series)


def _row(name: str, value: str) -> tuple[Markup, Markup]:
    return tag("dt", name), tag("dd", truncate(value))


# --- what broke -------------------------------------------------------------------------------------------------------


def _broken_promises(result: StressResult) -> Markup:
    """The first violation of each promise with the shortest history that shows it; empty if all were kept."""
    if not result.violations:
        return EMPTY_MARKUP
    by_promise: dict[str, list[ViolationReport]] = {}
    for violation in result.violations:
        by_promise.setdefault(violation.invariant, []).append(violation)
    counted = {verdict.invariant: verdict.broken for verdict in result.verdicts}
    stories = (_violation_section(found, counted.get(name, 0)) for name, found in by_promise.items())
    return tag("section", tag("h2", "What broke"), *stories, class_="broken")


def _violation_section(found: Sequence[ViolationReport], broken: int) -> Markup:
    first, *others = found
    is_short = bool(first.shortest)
    parts = [
        tag("h3", f"{first.invariant} at {moment(first.t)}: ", truncate(first.what)),
        tag("p", "The shortest history that shows it:" if is_short else "Facts before it:", class_="note"),
        _history(first.shortest or first.history, first.t),
    ]
    if is_short:
        around = tag("summary", "Other facts about them, and earlier faults")
        parts.append(tag("details", around, _history(first.history, first.t)))
    if others:
        rows = (tag("li", f"{moment(each.t)}: ", truncate(each.what)) for each in others)
        summary = tag("summary", f"{count(broken - 1)} more of {first.invariant}, the first of them")
        parts.append(tag("details", summary, tag("ul", *rows)))
    return tag("article", *parts)


def _history(facts: Sequence[Fact], end: float) -> Markup:
    rows = [_fact(fact, end) for fact in facts]
    if len(rows) > _MAX_FACTS:
        left_out = f"{len(rows) - _MAX_FACTS} facts left out; --json has all"
        last = len(rows) - (_MAX_FACTS - _FIRST_FACTS)
        rows = [*rows[:_FIRST_FACTS], tag("tr", tag("td"), tag("td"), tag("td", left_out)), *rows[last:]]
    head = tag("tr", *(tag("th", name, scope="col") for name in ("at", "before", "fact")))
    return _scroll_frame("History", tag("table", tag("thead", head), tag("tbody", *rows), class_="history"))


def _fact(fact: Fact, end: float) -> Markup:
    before = duration(end - fact.t)
    kind = type(fact).__name__.lower()
    return tag(
        "tr",
        tag("td", moment(fact.t), class_="number"),
        tag("td", before, class_="number"),
        tag("td", truncate(describe_fact(fact))),
        class_=f"fact {kind}",
    )


def _scroll_frame(label: str, table: Markup) -> Markup:
    """Wide tables scroll within their frame, by keyboard too."""
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=label)


# --- figures ----------------------------------------------------------------------------------------------------------


def _cards(result: StressResult) -> Markup:
    """The figures that matter most."""
    completed = result.fates.get("completed", 0)
    harms = result.harms
    sizes = [each.rss for each in result.series]
    workers = max((each.workers for each in result.series), default=0)
    shown_cards = [
        _card("asked", count(_request_count(result))),
        _card("answered", count(completed)),
        _card("failed", count(result.requests - completed), "ended with an error"),
        _card("lost", count(harms.get("lost", 0)), "have no outcome", is_bad=bool(harms.get("lost"))),
        _card(
            "duplicated",
            count(harms.get("duplicated", 0)),
            "reported or sent twice",
            is_bad=bool(harms.get("duplicated")),
        ),
        _card(
            "foreign words", count(harms.get("foreign", 0)), "in answers of others", is_bad=bool(harms.get("foreign"))
        ),
        _latency("beyond the turn", result.latencies),
        _latency("before any fault", result.calm_latencies),
        _card("faults injected", count(sum(each.faults for each in result.series))),
        _card("workers at most", count(workers), f"limit {result.plan.workers}"),
        _card(
            "supervisor at most",
            mebibytes(max(sizes, default=0)),
            "1 life" if result.lives == 1 else f"{result.lives} lives",
        ),
    ]
    return tag("section", tag("h2", "Figures"), tag("dl", *filter(None, shown_cards), class_="cards"))


def _card(name: str, value: str, about: str = "", *, is_bad: bool = False) -> Markup:
    note = tag("dd", about, class_="about") if about else EMPTY_MARKUP
    return tag("div", tag("dt", name), tag("dd", value, class_="value"), note, class_="bad" if is_bad else None)


def _latency(name: str, latencies: LatencyQuantiles) -> Markup:
    if not latencies.count:
        return EMPTY_MARKUP
    most = f"p99 {duration(latencies.p99)}, at most {duration(latencies.max)}"
    return _card(f"p50 {name}", duration(latencies.p50), most)


def _promises(verdicts: Sequence[InvariantVerdict]) -> Markup:
    """Each invariant with its numbers of checks and violations."""
    names = ("", "promise", "checked", "broken")
    head = tag("tr", *(tag("th", name, scope="col") if name else tag("td") for name in names))
    rows = (_promise(verdict) for verdict in verdicts)
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="promises")
    return tag("section", tag("h2", "Promises"), _scroll_frame("Promises", table))


def _promise(verdict: InvariantVerdict) -> Markup:
    kind, mark = ("broken", "✗") if verdict.broken else ("kept", "✓") if verdict.checked else ("unseen", "-")
    note = tag("span", truncate(verdict.note), class_="note") if verdict.note else EMPTY_MARKUP
    return tag(
        "tr",
        tag("th", tag("span", mark, class_="mark", aria_hidden="true"), f" {verdict.invariant}", scope="row"),
        tag("td", truncate(verdict.title), " ", note),
        tag("td", count(verdict.checked) if verdict.checked else "never", class_="number"),
        tag("td", count(verdict.broken), class_="number"),
        class_=kind,
    )


def _outcomes(fates: Mapping[str, int]) -> Markup:
    """Number of requests by outcome."""
    ordered = Counter(fates).most_common()
    rows = [(truncate(name), count(number)) for name, number in ordered[:_MAX_ROWS]]
    if len(ordered) > _MAX_ROWS:
        rows.append(("other outcomes", count(sum(number for _, number in ordered[_MAX_ROWS:]))))
    return tag("section", tag("h2", "How requests ended"), _pairs(rows)) if rows else EMPTY_MARKUP


def _machine(facts: Mapping[str, str | int | float]) -> Markup:
    """Facts of the machine that the figures depend on."""
    rows = [(truncate(name.replace("_", " ")), truncate(str(value))) for name, value in list(facts.items())[:_MAX_ROWS]]
    return tag("section", tag("h2", "Machine"), _pairs(rows)) if rows else EMPTY_MARKUP


def _pairs(rows: Sequence[tuple[str, str]]) -> Markup:
    return tag("dl", *_terms(rows), class_="pairs")


def _terms(rows: Sequence[tuple[str, str]]) -> Iterator[Markup]:
    for name, value in rows:
        yield tag("div", tag("dt", name), tag("dd", value))
