"""The log's one way: bound facts, levels, the standard library's loggers, tracebacks, and what no line may hold."""

import contextvars
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.log import ErrorLog, LogTail, opened_log
from settings.schema import LogSettings
from wire.events import EventChannel
from wire.log_context import bind_facts, facts
from wire.log_line import render_json, render_line
from wire.messages import EventEnvelope
from wire.redaction import Redactor

EVENT = {"ts": 1767323045.678, "level": "info", "event": "worker_exited"}


@contextmanager
def a_log(lines: list[str], level: Any = "debug") -> Iterator[logging.Logger]:
    with opened_log(LogSettings(level=level), lines.append, render_json, Redactor()) as logger:
        yield logger


def decoded(lines: list[str]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines]


def test_what_is_bound_to_a_request_is_in_every_line_said_on_its_way() -> None:
    lines: list[str] = []
    bound = {"request": 7, "method": "prompt", "principal": "uid:1"}

    def answer(logger: logging.Logger) -> None:
        bind_facts(request=7)
        bind_facts(method="prompt", principal="uid:1")
        logger.info("run_started", extra=facts(run="r1"))
        logging.getLogger("pool.gateway").warning("late")
        logging.getLogger("pool.store").error("the disk is %s", "full")

    with a_log(lines) as logger:
        contextvars.copy_context().run(answer, logger)
    first, second, third = decoded(lines)
    assert {**bound, "level": "info", "event": "run_started", "run": "r1"}.items() <= first.items()
    assert {**bound, "level": "warning", "event": "late", "logger": "pool.gateway"}.items() <= second.items()
    assert {**bound, "level": "error", "event": "the disk is full", "logger": "pool.store"}.items() <= third.items()
    assert "logger" not in first


def test_a_traceback_is_one_field_of_one_line_and_only_its_end_is_kept() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise KeyError("the bottom")
        if depth % 2:
            fall(depth - 1)
        fall(depth - 1)

    lines: list[str] = []
    with a_log(lines):
        try:
            fall(200)
        except KeyError:
            logging.getLogger("pool.control").exception("the method %s failed", "x")
    (line,) = decoded(lines)
    assert (len(lines[0].splitlines()), line["event"]) == (1, "the method x failed")
    assert line["exception"].endswith("KeyError: 'the bottom'")
    assert len(line["exception"].splitlines()) <= 40


def test_a_line_that_cannot_be_made_is_replaced_by_one_that_says_so() -> None:
    def render(event: dict[str, Any]) -> str:
        if event["event"] == "bad news":
            raise ValueError("not this one")
        return render_json(event)

    lines: list[str] = []
    with opened_log(LogSettings(), lines.append, render, Redactor()):
        logging.getLogger("pool.store").info("bad %s", "news")
    (line,) = decoded(lines)
    assert (line["level"], line["logger"]) == ("error", "pool.store")
    assert "could not be made: 'bad %s': ValueError: not this one" in line["event"]


def test_a_warning_of_python_is_a_line_too() -> None:
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with a_log(lines):
            warnings.warn("old words", stacklevel=1)
    (line,) = decoded(lines)
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")
    assert "old words" in line["event"]


@pytest.mark.parametrize(("level", "heard"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_the_level_holds_for_both_kinds_of_loggers(level: str, heard: int) -> None:
    lines: list[str] = []
    with a_log(lines, level) as logger:
        for speaker in (logger, logging.getLogger("pool.store")):
            speaker.debug("a")
            speaker.info("b")
            speaker.warning("c")
    assert len(lines) == 2 * heard


def test_afterwards_all_is_as_before() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    with a_log([]):
        assert root.handlers != before[1]
    assert (root.level, list(root.handlers)) == before


FIELDS = {"worker": "w1", "error": "it said:\n\x1b[31mboom", "session": None, "turns": 3, "empty": ""}
FAILED = {**EVENT, "level": "error", "logger": "pool.store", "exception": "Traceback:\n  KeyError: \x1b'x'"}


def test_a_line_for_people_is_readable_and_one_for_programs_has_every_field_as_it_is() -> None:
    assert render_line({**EVENT, **FIELDS}) == (
        '2026-01-02T03:04:05Z worker_exited worker=w1 error="it said: \\\\x1b[31mboom" turns=3 empty=""'
    )
    assert render_line(FAILED) == (
        "2026-01-02T03:04:05Z error pool.store worker_exited\n  Traceback:\n    KeyError: \\x1b'x'"
    )
    assert render_json({**EVENT, "turns": 3, "session": None}) == (
        '{"ts":"2026-01-02T03:04:05.678Z","level":"info","event":"worker_exited","turns":3,"session":null}'
    )
    event = {**EVENT, "level": "warning", "worker": "w1"}
    coloured = render_line(event, is_coloured=True)
    assert "\x1b[33mwarning\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render_line(event), "colours never change the words"


@pytest.mark.parametrize("render", [render_json, render_line])
def test_no_hostile_text_begins_a_line_or_controls_a_terminal(render: Any) -> None:
    hostile = 'x\n2026-01-02T03:04:05Z ready\r\x1b]0;title\x07\x9b31m\u202e\u2028"}\ud800'
    lines: list[str] = []
    with opened_log(LogSettings(), lines.append, render, Redactor()) as logger:
        logger.info(hostile, extra=facts(**{hostile: hostile, "list": [hostile]}))
        logging.getLogger(hostile).warning(hostile)
    for line in lines:
        assert len(line.splitlines()) == 1
        assert line.isprintable()


# --- errors of sessions, as they reach the log -----------------------------------------------------------------------


class ErrorLines:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.errors = ErrorLog(lambda name, facts: self.lines.append({"name": name, **facts}))

    def take(self, message: str, session: str, run: str | None) -> None:
        data = msgspec.Raw(msgspec.json.encode({"severity": "error", "phase": "model", "message": message}))
        self.errors.record(EventEnvelope(1, 0.0, session, EventChannel.MONITOR, "error", data, run))


def test_of_one_run_only_the_first_error_is_logged_and_what_belongs_to_no_run_each_time() -> None:
    log = ErrorLines()
    for number in range(3):
        for session, run in (("alice", "k1"), ("alice", "k2"), ("bob", "k1"), ("alice", None), ("", None)):
            log.take(f"{session} {run} {number}", session, run)
    facts = {"severity": "error", "phase": "model", "message": "alice k1 0", "session": "alice", "run": "k1"}
    assert log.lines[0] == {"name": "error", **facts}
    first = ["alice k1 0", "alice k2 0", "bob k1 0"]
    assert [line["message"] for line in log.lines] == [*first, *(f"alice None {number}" for number in range(3))]


def test_a_thousand_runs_are_remembered_and_no_more() -> None:
    log = ErrorLines()
    for number in range(1001):
        log.take("first", "alice", f"k{number}")
    log.take("again", "alice", "k1")
    log.take("again", "alice", "k0")
    assert [line["message"] for line in log.lines[1001:]] == ["again"]
    assert len(log.errors._logged) == 1000


# --- the latest lines: bounded, and read on from where a reader stands -----------------------------------------------

ALL = {"limit": 5000, "max_bytes": 1_000_000}


def _filled(count: int, kept_bytes: int = 1_000_000) -> LogTail:
    tail = LogTail(kept_bytes)
    for number in range(count):
        tail.add(f"line {number:04}")
    return tail


def test_the_latest_lines_come_first_and_new_ones_after_the_cursor() -> None:
    tail = _filled(10)
    page = tail.read(None, 3, 1_000_000)
    assert (page.lines, page.cursor, page.truncated, page.reset) == (
        ["line 0007", "line 0008", "line 0009"],
        100,
        True,
        False,
    )
    tail.add("another\nof two lines")
    page = tail.read(page.cursor, **ALL)
    assert (page.lines, page.truncated) == (["another", "of two lines"], False)
    assert tail.read(page.cursor, **ALL).lines == []


def test_no_more_is_kept_or_read_than_allowed() -> None:
    tail = _filled(100, kept_bytes=200)
    assert len(tail.read(None, **ALL).lines) == 20
    page = tail.read(0, **ALL)
    assert (page.lines[0], page.truncated) == ("line 0080", True), "what went is said to be missing"
    assert tail.read(None, 5000, 25).lines == ["line 0098", "line 0099"]
    tail.add("x" * 100_000)
    assert tail.read(None, **ALL).lines == []


def test_a_cursor_of_an_earlier_supervisor_begins_at_the_begin() -> None:
    page = _filled(2).read(10_000, **ALL)
    assert (page.lines, page.reset) == (["line 0000", "line 0001"], True)


def test_a_line_has_no_colours_and_is_cut_where_it_is_long() -> None:
    tail = LogTail()
    tail.add("\x1b[31mred\x1b[0m\n" + "ä" * 20_000)
    red, long = tail.read(None, **ALL).lines
    assert (red, len(long)) == ("red", 8192)


@settings(max_examples=50)
@given(st.lists(st.text(alphabet="aä\n", max_size=20), max_size=30), st.integers(1, 10))
def test_a_reader_that_goes_on_from_its_cursor_reads_each_line_once(texts: list[str], at_once: int) -> None:
    tail, cursor, read = LogTail(), 0, list[str]()
    for number, text in enumerate(texts, 1):
        tail.add(text)
        if number % at_once == 0:
            page = tail.read(cursor, **ALL)
            cursor, read = page.cursor, read + page.lines
    read += tail.read(cursor, **ALL).lines
    assert read == [line for text in texts for line in text.split("\n")]
