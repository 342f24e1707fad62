"""The report says what came of a run, whatever the run and whatever its names; it runs and loads nothing."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress import facts
from stress.facts import FaultInjected
from stress.outcome import INVARIANTS, InvariantVerdict, LatencyQuantiles
from stress.report import render_report
from tests.stress.report.made_up import a_result, a_second, a_violation, verdicts
from tests.stress.story import Story

NEVER_CLOSED = {"meta", "link"}


class Page(HTMLParser):
    """What a browser would make of it: every element with its attributes, its text, and whether all were closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}


def page_of(**fields: Any) -> Page:
    page = Page(render_report(a_result(**fields)))
    assert (page.wrong, page.open) == ([], [])
    return page


def test_a_run_that_kept_every_promise_is_green_from_the_title_on() -> None:
    page = page_of()
    assert page.text.startswith("GREEN: pool stress L1 + F1, seed 4711 ✓ GREEN Every promise kept")
    assert "RED" not in page.text
    assert "What broke" not in page.text


def test_a_promise_that_was_never_looked_at_is_not_said_to_be_kept() -> None:
    unseen = (InvariantVerdict(invariant="I11", title="strangers", checked=0, broken=0), *verdicts()[:10])
    assert "✓ GREEN Every promise that was checked was kept" in page_of(verdicts=unseen).text


def test_a_run_that_broke_one_is_red_and_tells_which_how_and_with_which_command() -> None:
    result = a_result(
        verdicts=verdicts(I1=3), violations=(a_violation(t=5.5),), harms={"lost": 3}, log="left/log.jsonl"
    )
    page = Page(render_report(result))
    assert page.text.startswith("RED: pool stress L1 + F1, seed 4711 ✗ RED 1 of 12 promises broken: I1")
    assert "GREEN" not in page.text
    assert result.plan.command in page.text
    assert "--seed 4711" in page.text
    assert "I1 at 5.500 s: request 5 has no outcome" in page.text
    assert "left/log.jsonl" in page.text
    assert "lost 3 have no outcome" in page.text


def test_a_run_in_which_no_request_was_completed_is_neither_green_nor_red() -> None:
    unseen = tuple(
        InvariantVerdict(invariant=name, title=title, checked=0, broken=0) for name, title in INVARIANTS.items()
    )
    page = page_of(
        series=(), fates={}, faults=(), verdicts=unseen, latencies=LatencyQuantiles(), machine={}, seconds=0.0
    )
    assert "No request was completed" in page.text
    assert "GREEN" not in page.text
    assert "RED" not in page.text
    assert "No second of this run was counted." in page.text


def test_every_promise_has_a_row_with_how_often_it_was_looked_at_and_broken() -> None:
    unseen = InvariantVerdict(invariant="I11", title="strangers", checked=0, broken=0, note="no F7")
    text = page_of(verdicts=(unseen, *verdicts(I3=2))).text
    assert "- I11 strangers no F7 never 0" in text
    assert f"✗ I3 {INVARIANTS['I3']} 1,234 2" in text
    assert all(f"✓ {name} {title} 1,234 0" in text for name, title in INVARIANTS.items() if name != "I3")


def test_the_figures_are_those_of_the_result() -> None:
    text = page_of(harms={"duplicated": 2, "foreign": 7}, lives=3).text
    for said in (
        *("asked 600", "answered 540", "failed 30", "lost 0", "duplicated 2", "foreign words 7"),
        *("p50 beyond the turn 20 ms p99 150 ms, at most 1.5 s", "faults injected 1", "workers at most 4 limit 14"),
        *("supervisor at most 50 MiB 3 lives", "completed 540", "error: worker_exited 30", "F1 kill 1", "cpus 2"),
    ):
        assert said in text


def test_what_broke_is_told_by_its_shortest_history_and_what_was_around_it_beside() -> None:
    text = page_of(verdicts=verdicts(I1=1), violations=(a_violation(),)).text
    shortest, around = text.split("The shortest history that shows it:")[1].split("Other facts about them")
    assert "request 5 is asked in session s5" in shortest
    assert "request 5 begins on w1" in shortest
    assert "supervisor 1 is ready" not in shortest
    assert "supervisor 1 is ready" in around


def test_without_a_shortest_history_there_is_what_was_seen_before_it() -> None:
    text = page_of(verdicts=verdicts(I1=1), violations=(a_violation(shortest=()),)).text
    assert "The shortest history" not in text
    assert "Facts before it: at before fact" in text


def test_more_of_the_same_promise_are_a_list() -> None:
    others = tuple(a_violation(what=f"request {number} has no outcome") for number in (6, 7))
    text = page_of(verdicts=verdicts(I1=41), violations=(a_violation(), *others)).text
    assert "40 more of I1" in text
    assert text.count("The shortest history that shows it") == 1
    assert "request 7 has no outcome" in text


def test_every_kind_of_fact_is_told_in_a_sentence() -> None:
    story = every_kind_of_fact()
    text = page_of(verdicts=verdicts(I1=1), violations=(a_violation(shortest=tuple(story.facts)),)).text
    for said in (
        *("is refused: saturated", "is remembered as error internal", "is unknown to the supervisor"),
        *("stands 2 times in its own transcript, 1 time in others", "a promise was broken: seq"),
        *("front end 3 received an outcome after 2 s", "worker evicted s1 w1 (idle)"),
        *("3 workers (1, 2, 3) in /proc, not waited for: 9; the supervisor has 50 MiB, 7 files", "status (running)"),
        *(
            "supervisor 1 ended with -9, by itself",
            "2 processes are left 2 s later: 7, 8",
            "the pool is drained: 0 workers",
        ),
        *("fault F1: stop to all workers, pid 5, for 3 s", "pid 6 of a dead worker was signalled", "up to 1.5 s late"),
        "the run lost-1 ended, although its front end was killed",
        *("with the words of 5, 6, and words of no request: zzz", "end of the run: open requests are given up"),
    ):
        assert said in text


def every_kind_of_fact() -> Story:
    story = Story(
        "ask 5 s1; begin 5; answer 5 said=5,6 strange=zzz,; RequestRefused number=6 code=saturated;"
        " OutcomeRemembered number=6 reason=error code=internal; RequestForgotten number=6;"
        " PromptOccurrences number=6 own=2 foreign=1; DirectViolation what=seq; OrphanedRunEnded run=lost-1;"
        " OutcomeReceived front_end=3 seconds=2.0; PoolEvent what=worker_evicted worker=w1 session=s1 why=idle;"
        " processes 1 2 3 zombies=9, rss=52428800 fds=7; status 1 2; SupervisorEnded life=1 code=-9 signals=,;"
        " LeftoverProcesses life=1 seconds=2.0 pids=7,8; empty; hit * 3.0 action=stop pid=5;"
        " ReusedPid pid=6 signalled=True; MachineDelay seconds=1.5; end"
    )
    assert {type(fact) for fact in story.facts} == set(facts.Fact.__args__)
    return story


HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(2)>\" onload='alert(3)' & \x00\u202e\udc80"


def hostile_page(text: str) -> Page:
    violation = a_violation(
        what=text,
        shortest=(FaultInjected(t=1.0, fault=text, action=text, worker=text),),
        history=(FaultInjected(t=1.0, fault="F1", action=text),),
    )
    return page_of(
        machine={text: text},
        fates={"completed": 1, text: 2},
        faults=(FaultInjected(t=1.0, fault="F1", action=text, worker=text),),
        verdicts=(InvariantVerdict(invariant="I1", title=text, checked=1, broken=1, note=text),),
        violations=(violation,),
        log=text,
    )


def test_names_that_are_html_are_only_shown() -> None:
    page = hostile_page(HOSTILE)
    assert page.names() == page_of(verdicts=verdicts(I1=1), violations=(a_violation(),)).names()
    assert "<script>alert(1)</script>" in page.text
    assert "\\x00\\u202e\\udc80" in page.text


@settings(max_examples=12)
@given(st.text())
def test_no_text_at_all_becomes_an_element_or_an_attribute(text: str) -> None:
    page = hostile_page(text)
    assert page.names() <= {
        *("html", "head", "meta", "link", "title", "style", "body", "main", "header", "section", "article", "div"),
        *("h1", "h2", "h3", "p", "pre", "code", "dl", "dt", "dd", "ul", "li", "i", "b", "span", "table", "thead"),
        *("tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption", "svg", "rect", "path", "line"),
    }
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_it_runs_nothing_loads_nothing_and_says_so_to_the_browser() -> None:
    text = render_report(a_result())
    page = Page(text)
    (policy,) = [each["content"] for _, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"]
    style = text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy is not None
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert "script" not in page.names()
    references = [value for _, each in page.elements for name, value in each.items() if name in ("href", "src")]
    assert [each for each in references if not (each or "").startswith("data:")] == []
    assert "style" not in {name for _, each in page.elements for name in each}
    assert not re.search(r"@import|url\(", style)


def test_the_longest_and_worst_run_is_a_page_that_can_be_opened() -> None:
    story = Story("; ".join(f"ask {number} {'x' * 5000}; fail {number} {'y' * 5000}" for number in range(100)))
    violations = tuple(
        a_violation(invariant=name, what="z" * 5000, shortest=tuple(story.facts), history=tuple(story.facts))
        for name in INVARIANTS
        for _ in range(5)
    )
    text = render_report(
        a_result(
            series=tuple(a_second(second, faults=2) for second in range(100_000)),
            seconds=100_000.0,
            faults=tuple(
                FaultInjected(t=10.0 * number, fault="F1", action=f"{'a' * 900} {number % 500}")
                for number in range(10_000)
            ),
            fates={f"error: {'c' * 900} {number}": 5 for number in range(2000)},
            machine={f"{'m' * 900} {number}": "v" * 900 for number in range(2000)},
            verdicts=verdicts(**dict.fromkeys(INVARIANTS, 9)),
            violations=violations,
        )
    )
    assert len(text) < 1_500_000
    assert "left out; --json has all" in text
    assert "476 other kinds" in text
    assert "other outcomes" in text


@pytest.mark.parametrize("length", [1, 2, 200, 1999])
def test_a_run_of_any_length_is_drawn_with_all_its_requests_and_faults(length: int) -> None:
    page = page_of(series=tuple(a_second(second, faults=1) for second in range(length)), seconds=float(length))
    assert f"asked {20 * length:,}" in page.text
    assert f"faults injected {length:,}" in page.text
    paths = [each["d"] or "" for name, each in page.elements if name == "path"]
    assert paths
    assert not [path for path in paths if "nan" in path or "inf" in path]
