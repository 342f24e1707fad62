"""The log's one way: bound facts, levels, the standard library's loggers, tracebacks, and what no line may hold."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import structlog
from structlog.contextvars import bound_contextvars
from structlog.typing import FilteringBoundLogger

from app.log import opened_log, render_json, render_line
from settings.schema import LogSettings
from wire.redaction import Redactor

EVENT = {"ts": 1767323045.678, "level": "info", "event": "worker_exited"}


@contextmanager
def a_log(lines: list[str], level: Any = "debug") -> Iterator[FilteringBoundLogger]:
    with opened_log(LogSettings(level=level), lines.append, render_json, Redactor()) as logger:
        yield logger


def decoded(lines: list[str]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines]


# --- one way for all ------------------------------------------------------------------------------------------------


def test_what_is_bound_to_a_request_is_in_every_line_said_on_its_way() -> None:
    lines: list[str] = []
    with a_log(lines) as logger, bound_contextvars(request=7, method="prompt", principal="uid:1"):
        logger.info("run_started", run="r1")
        structlog.get_logger("pool.gateway").warning("late")
        logging.getLogger("pool.store").error("the disk is %s", "full")
    bound = {"request": 7, "method": "prompt", "principal": "uid:1"}
    first, second, third = decoded(lines)
    assert {**bound, "level": "info", "event": "run_started", "run": "r1"}.items() <= first.items()
    assert {**bound, "level": "warning", "event": "late", "logger": "pool.gateway"}.items() <= second.items()
    assert {**bound, "level": "error", "event": "the disk is full", "logger": "pool.store"}.items() <= third.items()
    assert "logger" not in first


def test_a_traceback_is_one_field_of_one_line() -> None:
    lines: list[str] = []
    with a_log(lines):
        nothing: dict[str, str] = {}
        try:
            nothing["nothing"]
        except KeyError:
            logging.getLogger("pool.control").exception("the method %s failed", "x")
    (line,) = decoded(lines)
    assert len(lines[0].splitlines()) == 1
    assert line["exception"].endswith("KeyError: 'nothing'")
    assert line["event"] == "the method x failed"


def test_only_the_end_of_an_endless_traceback_is_kept() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise KeyError("the bottom")
        if depth % 2:
            fall(depth - 1)
        fall(depth - 1)

    lines: list[str] = []
    with a_log(lines) as logger:
        try:
            fall(200)
        except KeyError:
            logger.exception("deep")
    (line,) = decoded(lines)
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
    before = (root.level, list(root.handlers), structlog.get_config())
    with a_log([]):
        assert root.handlers != before[1]
    assert (root.level, list(root.handlers), structlog.get_config()) == before


# --- lines ----------------------------------------------------------------------------------------------------------


def test_a_line_for_people_is_one_line_of_readable_fields() -> None:
    fields = {"worker": "w1", "error": "it said:\n\x1b[31mboom", "session": None, "turns": 3, "empty": ""}
    assert render_line({**EVENT, **fields}) == (
        '2026-01-02T03:04:05Z worker_exited worker=w1 error="it said: \\\\x1b[31mboom" turns=3 empty=""'
    )


def test_a_line_for_people_says_how_bad_it_is_and_shows_the_traceback_below() -> None:
    event = {**EVENT, "level": "error", "logger": "pool.store", "exception": "Traceback:\n  KeyError: \x1b'x'"}
    assert render_line(event) == (
        "2026-01-02T03:04:05Z error pool.store worker_exited\n  Traceback:\n    KeyError: \\x1b'x'"
    )


def test_colours_surround_and_never_change_the_words() -> None:
    event = {**EVENT, "level": "warning", "worker": "w1"}
    coloured = render_line(event, is_coloured=True)
    assert "\x1b[33mwarning\x1b[0m" in coloured
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"):
        coloured = coloured.replace(code, "")
    assert coloured == render_line(event)


def test_a_line_for_programs_has_the_time_and_every_field_as_it_is() -> None:
    assert render_json({**EVENT, "turns": 3, "session": None}) == (
        '{"ts":"2026-01-02T03:04:05.678Z","level":"info","event":"worker_exited","turns":3,"session":null}'
    )


@pytest.mark.parametrize("render", [render_json, render_line])
def test_no_hostile_text_begins_a_line_or_controls_a_terminal(render: Any) -> None:
    hostile = 'x\n2026-01-02T03:04:05Z ready\r\x1b]0;title\x07\x9b31m\u202e\u2028"}\ud800'
    lines: list[str] = []
    with opened_log(LogSettings(), lines.append, render, Redactor()) as logger:
        logger.info(hostile, **{hostile: hostile, "list": [hostile]})
        logging.getLogger(hostile).warning(hostile)
    for line in lines:
        assert len(line.splitlines()) == 1
        assert line.isprintable()
