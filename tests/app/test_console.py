"""What the supervisor writes while it runs, on a terminal or into a log, and that no reader can block it."""

import io
import itertools
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import pytest
import trio

from app import console as console_module
from app.console import ConsoleLog, Printer, render_status_line
from pool.statistics import PoolStatistics
from settings.schema import LogFormat, LogSettings
from tests.house import modules_of


class Figures:
    """The parts of the statistics that the line shows."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def figures(**pool: Any) -> PoolStatistics:
    usual = {"total": 3, "idle": 1, "leased": 2, "starting": 0, "stopping": 0, "waiting": 5, "max": 4}
    latency = Figures(turn=Figures(count=12), acquire=Figures(count=9, p99=0.02))
    made = Figures(pool=Figures(**{**usual, "mode": "running", **pool}), sessions=[None] * 7, latency=latency)
    return cast("PoolStatistics", made)


def test_the_line_shows_the_pool_at_a_glance_and_is_never_wider_than_the_terminal() -> None:
    line = "pool 3/4  2 leased  1 idle  5 waiting  7 sessions  12 turns  acquire p99 20 ms"
    assert render_status_line(figures(), 200) == line
    paused = render_status_line(figures(mode="paused", starting=1), 200)
    assert paused.startswith("pool 3/4  paused  2 leased  1 idle  1 starting")
    assert [len(render_status_line(figures(), width)) for width in (-1, 0, 10, 40)] == [0, 0, 10, 40]


def log_to(out: io.StringIO, *, live: bool, **others: Any) -> ConsoleLog:
    return ConsoleLog(live=live, out=out, **{"env": {"NO_COLOR": "1", "TERM": "xterm"}, **others})


def lines_of(out: io.StringIO) -> list[str]:
    """The lines for people, without their times."""
    lines = out.getvalue().replace("\r\x1b[2K", "").split("\n")
    return [line.partition("Z ")[2] for line in lines if line]


def objects(out: io.StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in out.getvalue().splitlines()]


# --- what is logged, and how -----------------------------------------------------------------------------------------


def test_without_a_terminal_every_event_is_a_json_object_whose_fields_do_not_replace_the_logs_own() -> None:
    out = io.StringIO()
    with log_to(out, live=False) as log:
        log.log("worker_spawned", {"worker": "w1"})
        log.log("worker_exited", {"worker": "w1", "cause": "killed", "error": "it was \n killed"})
        log.log("ready", {"event": "other", "level": 9, "ts": 0, "logger": "x"})
    spawned, exited, ready = objects(out)
    assert {"level": "info", "event": "worker_spawned", "worker": "w1"}.items() < spawned.items()
    assert {"level": "warning", "event": "worker_exited", "error": "it was \n killed"}.items() < exited.items()
    own = {"event": "ready", "level": "info", "event_": "other", "level_": 9, "ts_": 0, "logger_": "x"}
    assert own.items() < ready.items()


def test_on_a_terminal_only_what_is_not_routine_scrolls_by() -> None:
    out = io.StringIO()
    with log_to(out, live=True) as log:
        log.log("worker_spawned", {"worker": "w1"})
        log.log("worker_exited", {"worker": "w1", "cause": "idle"})
        log.log("worker_exited", {"worker": "w2", "cause": "crashed"})
        log.log("ready", {"socket": "/s", "nothing": None})
    assert lines_of(out) == ["warning worker_exited worker=w2 cause=crashed", "ready socket=/s"]


@pytest.mark.parametrize("live", [False, True])
def test_what_comes_with_every_turn_is_logged_at_level_debug(*, live: bool) -> None:
    out = io.StringIO()
    with log_to(out, live=live) as log:
        log.log("session_bound", {"session": "a"})
    assert out.getvalue() == ""
    with log_to(out, live=live, settings=LogSettings(level="debug", format="human")) as log:
        log.log("session_bound", {"session": "a"})
    assert lines_of(out) == ["debug session_bound session=a"]


def test_what_somebody_should_look_at_is_a_warning_and_exists_and_less_is_left_out_at_that_level() -> None:
    out = io.StringIO()
    with log_to(out, live=False, settings=LogSettings(level="warning")) as log:
        for event in ("reload_refused", "store_set_aside", "hook_failed", "previous_workers_swept"):
            log.log(event, {})
        logging.getLogger("pool.store").info("not worth it")
        logging.getLogger("pool.store").warning("worth it")
    assert [line["event"] for line in objects(out)] == ["reload_refused", "store_set_aside", "hook_failed", "worth it"]
    assert {line["level"] for line in objects(out)} == {"warning"}
    source = "".join(path.read_text() for path in modules_of("pool", "store", "doors/notify", "app", "app_serving"))
    named = console_module._WARNING_EVENTS | console_module._DEBUG_EVENTS | console_module._ROUTINE_EVENTS
    assert [event for event in named if f'"{event}"' not in source] == []


@pytest.mark.parametrize(
    ("live", "wanted", "env", "is_json", "is_coloured"),
    [
        (True, "auto", {"TERM": "xterm"}, False, True),
        (True, "auto", {"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        (True, "auto", {"TERM": "dumb"}, False, False),
        (True, "json", {"TERM": "xterm"}, True, False),
        (False, "auto", {"TERM": "xterm"}, True, False),
        (False, "human", {"TERM": "xterm"}, False, False),
    ],
)
def test_format_and_colours_are_as_set_else_as_the_output_suits(
    *, live: bool, wanted: LogFormat, env: dict[str, str], is_json: bool, is_coloured: bool
) -> None:
    out = io.StringIO()
    with log_to(out, live=live, settings=LogSettings(format=wanted), env=env) as log:
        log.log("guard_lost", {})
    text = out.getvalue().replace("\r\x1b[2K", "")
    assert (text.startswith("{"), "\x1b[" in text) == (is_json, is_coloured)


def test_what_is_to_be_hidden_is_in_no_line_whoever_writes_it() -> None:
    out = io.StringIO()
    with log_to(out, live=False) as log:
        log.hide(["correct-horse"])
        log.log("worker_exited", {"worker": "w1", "error": "it said correct-horse", "api_key": "battery"})
        logging.getLogger("pool.gateway").warning("correct-horse again, and password=%s", "battery")
    assert ("correct-horse" in out.getvalue(), "battery" in out.getvalue()) == (False, False)
    assert out.getvalue().count("***") == 4


# --- the line of figures ---------------------------------------------------------------------------------------------


async def test_the_line_is_redrawn_when_it_changed_and_stays_below_what_is_logged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    out = io.StringIO()
    seen = iter([figures(), figures(), figures(waiting=0)])
    with log_to(out, live=True) as log:
        with trio.move_on_after(2.5):
            await log.run_status_line(lambda: next(seen))
        log.log("ready", {})
    drawn = out.getvalue().split("\r\x1b[2K")
    assert [part.split("  ")[3] for part in drawn[1:3]] == ["5 waiting", "0 waiting"]
    assert "ready\npool 3/4" in drawn[3]
    assert drawn[4:] == [""], "at the end the line is gone: it would say what no longer holds"


@pytest.mark.parametrize(
    ("live", "settings", "term"),
    [(False, LogSettings(), "xterm"), (True, LogSettings(format="json"), "xterm"), (True, LogSettings(), "dumb")],
)
async def test_where_it_could_not_be_redrawn_there_is_no_line_to_follow(
    *, live: bool, settings: LogSettings, term: str
) -> None:
    out = io.StringIO()
    with log_to(out, live=live, settings=settings, env={"TERM": term}) as log, trio.fail_after(20):
        await log.run_status_line(figures)
    assert out.getvalue() == ""


# --- readers that do not read, and threads that are late -------------------------------------------------------------

WRITERS = pytest.mark.parametrize("opened", [Printer, lambda out: ConsoleLog(live=False, out=out)], ids=["out", "log"])
Open = Callable[[TextIO], Any]


@pytest.mark.parametrize("wanted", ["json", "human"])
def test_a_log_that_nobody_reads_costs_lines_but_no_time(wanted: LogFormat) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as out, os.fdopen(read_end, "rb") as reader:
        with ConsoleLog(live=False, settings=LogSettings(format=wanted), out=out) as log:
            for number in range(2500):
                log.log("event", {"number": number, "padding": "x" * 100})
            lines: list[bytes] = []
            came_through = threading.Event()

            def read_all() -> None:
                for line in reader:
                    lines.append(line)
                    if b"after" in line:
                        came_through.set()

            drain = threading.Thread(target=read_all)
            drain.start()
            while not came_through.wait(0.02):  # not in one go: the threads that make room must have their turn
                log.log("after", {})
        out.close()
        drain.join(5)
    assert len(lines) < 2500
    (loss,) = [line for line in lines if b"lines_dropped" in line][:1]
    assert b"lines_dropped count=" in loss or msgspec.json.decode(loss)["count"] > 0


def test_a_log_that_is_gone_does_not_end_the_supervisor() -> None:
    out = io.StringIO()
    out.close()
    with log_to(out, live=False) as log:
        for _ in range(1100):  # more than may wait
            log.log("event", {})


@WRITERS
def test_a_thread_that_gets_its_turn_late_writes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    monkeypatch.setattr("app.console._POLL_SECONDS", 0.001)
    asked, turn, looks = threading.Event(), threading.Event(), itertools.count(1)
    with (tmp_path / "out").open("w") as out, opened(out) as writer:
        writer.write("first")
        get, join = writer._queue.get, writer._thread.join

        def get_late() -> Any:
            asked.set()
            turn.wait()
            return get()

        def look(timeout: float) -> None:
            if next(looks) < 100:
                join(timeout)
            else:
                turn.set()
                join()

        monkeypatch.setattr(writer._queue, "get", get_late)
        monkeypatch.setattr(writer._thread, "join", look)
        for number in range(50):
            writer.write(f"line {number}")
        asked.wait()
    assert (tmp_path / "out").read_text().splitlines() == ["first", *(f"line {number}" for number in range(50))]


@WRITERS
def test_a_reader_that_does_not_read_is_not_waited_for(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console._POLL_SECONDS", 0.005)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        with opened(out) as writer:
            for _ in range(90):
                writer.write("x" * 4096)
        assert writer._thread.is_alive()
        os.close(reading)
        writer._thread.join()
        with suppress(BrokenPipeError):  # what was left in its buffer
            out.close()


# --- lines for standard output ---------------------------------------------------------------------------------------


def test_a_printer_that_is_not_read_or_closed_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console._POLL_SECONDS", 0.005)
    reading, writing = os.pipe()
    out = os.fdopen(writing, "w")

    def fill() -> None:
        for _ in range(1000):
            printer.write("x" * 4096)

    with Printer(out) as printer, pytest.raises(BlockingIOError):
        fill()
    os.close(reading)
    assert printer.failed.wait(10)
    with suppress(BrokenPipeError):  # what was left in its buffer
        out.close()
    closed = io.StringIO()
    with Printer(closed) as printer:
        closed.close()
        printer.write("first")
        assert printer.failed.wait(10)
        with pytest.raises(BrokenPipeError):
            printer.write("second")


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "\\u2603 \\udc80"), ("utf-8", "\N{SNOWMAN} \\udc80")])
def test_what_the_encoding_does_not_have_is_written_all_the_same(tmp_path: Path, encoding: str, shown: str) -> None:
    file = tmp_path / "out"
    with file.open("w", encoding=encoding) as out, Printer(out) as printer:
        printer.write("\N{SNOWMAN} \udc80")
        printer.write("second")
    assert file.read_text(encoding) == f"{shown}\nsecond\n"


def test_a_printer_that_is_never_used_starts_no_thread() -> None:
    before = set(threading.enumerate())
    with Printer(io.StringIO()):
        assert set(threading.enumerate()) <= before
