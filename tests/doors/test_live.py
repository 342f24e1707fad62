"""What the supervisor says while it runs, and that nobody can hold it by not listening."""

import io
import logging
import os
import threading
from typing import Any, cast

import msgspec
import pytest
import trio

from app import console as live_module
from app.console import ConsoleLog, render_status_line
from pool.statistics import PoolStatistics
from settings.schema import LogFormat, LogSettings
from tests.house import modules_of


class Figures:
    """The parts of the statistics that the line shows."""

    def __init__(self, **pool: Any) -> None:
        figures = {"total": 3, "idle": 1, "leased": 2, "starting": 0, "stopping": 0, "waiting": 5, "max": 4}
        self.pool = _Bag({**figures, "mode": "running", **pool})
        self.sessions = [None] * 7
        self.latency = _Bag({"turn": _Bag({"count": 12}), "acquire": _Bag({"count": 9, "p99": 0.02})})


class _Bag:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def figures(**pool: Any) -> PoolStatistics:
    return cast("PoolStatistics", Figures(**pool))


def test_the_line_shows_the_pool_at_a_glance() -> None:
    line = "pool 3/4  2 leased  1 idle  5 waiting  7 sessions  12 turns  acquire p99 20 ms"
    assert render_status_line(figures(), 200) == line
    assert render_status_line(figures(mode="paused", starting=1), 200).startswith(
        "pool 3/4  paused  2 leased  1 idle  1 starting"
    )


@pytest.mark.parametrize("width", [-1, 0, 10, 40])
def test_the_line_is_never_wider_than_the_terminal(width: int) -> None:
    assert len(render_status_line(figures(), width)) == max(width, 0)


def narrator_to(out: io.StringIO, *, live: bool, **others: Any) -> ConsoleLog:
    return ConsoleLog(live=live, out=out, env={"NO_COLOR": "1", "TERM": "xterm"}, **others)


def told(out: io.StringIO) -> list[str]:
    """The lines for people, without their times."""
    lines = out.getvalue().replace("\r\x1b[2K", "").split("\n")
    return [line.partition("Z ")[2] for line in lines if line]


def objects(out: io.StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in out.getvalue().splitlines()]


# --- what is told, and how ------------------------------------------------------------------------------------------


def test_without_a_terminal_every_event_is_a_json_object() -> None:
    out = io.StringIO()
    with narrator_to(out, live=False) as narrator:
        narrator.log("worker_spawned", {"worker": "w1"})
        narrator.log("worker_exited", {"worker": "w1", "cause": "killed", "error": "it was \n killed"})
    spawned, exited = objects(out)
    assert {"level": "info", "event": "worker_spawned", "worker": "w1"}.items() < spawned.items()
    assert {"level": "warning", "event": "worker_exited", "error": "it was \n killed"}.items() < exited.items()
    assert '"event":"worker_spawned"' in out.getvalue()


def test_on_a_terminal_only_what_is_not_routine_scrolls_by() -> None:
    out = io.StringIO()
    with narrator_to(out, live=True) as narrator:
        narrator.log("worker_spawned", {"worker": "w1"})
        narrator.log("worker_exited", {"worker": "w1", "cause": "idle"})
        narrator.log("worker_exited", {"worker": "w2", "cause": "crashed"})
        narrator.log("ready", {"socket": "/s", "nothing": None})
    assert told(out) == ["warning worker_exited worker=w2 cause=crashed", "ready socket=/s"]


@pytest.mark.parametrize("live", [False, True])
def test_what_comes_with_every_turn_is_there_for_who_asks_for_everything(*, live: bool) -> None:
    out = io.StringIO()
    with narrator_to(out, live=live) as narrator:
        narrator.log("session_bound", {"session": "a"})
    assert out.getvalue() == ""
    with narrator_to(out, live=live, settings=LogSettings(level="debug", format="human")) as narrator:
        narrator.log("session_bound", {"session": "a"})
    assert told(out) == ["debug session_bound session=a"]


def test_what_somebody_should_look_at_is_a_warning_and_exists() -> None:
    out = io.StringIO()
    with narrator_to(out, live=False) as narrator:
        for event in ("reload_refused", "store_set_aside", "hook_failed", "previous_workers_swept"):
            narrator.log(event, {})
    assert [line["level"] for line in objects(out)] == ["warning", "warning", "warning", "info"]
    source = "".join(path.read_text() for path in modules_of("pool", "store", "doors/notify", "app", "app_serving"))
    named = live_module._WARNING_EVENTS | live_module._DEBUG_EVENTS | live_module._ROUTINE_EVENTS
    assert [event for event in named if f'"{event}"' not in source] == []


def test_what_is_less_important_than_the_level_is_left_out() -> None:
    out = io.StringIO()
    with narrator_to(out, live=False, settings=LogSettings(level="warning")) as narrator:
        narrator.log("ready", {})
        narrator.log("guard_lost", {"reason": "killed"})
        logging.getLogger("pool.store").info("not worth it")
        logging.getLogger("pool.store").warning("worth it")
    assert [line["event"] for line in objects(out)] == ["guard_lost", "worth it"]


@pytest.mark.parametrize(
    ("live", "wanted", "is_json"),
    [(True, "auto", False), (False, "auto", True), (True, "json", True), (False, "human", False)],
)
def test_the_format_is_as_set_else_as_the_output_suits(*, live: bool, wanted: LogFormat, is_json: bool) -> None:
    out = io.StringIO()
    with narrator_to(out, live=live, settings=LogSettings(format=wanted)) as narrator:
        narrator.log("ready", {"socket": "/s"})
    assert out.getvalue().startswith("{") == is_json
    assert out.getvalue().endswith("}\n" if is_json else "ready socket=/s\n")


@pytest.mark.parametrize(
    ("live", "env", "coloured"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(*, live: bool, env: dict[str, str], coloured: bool) -> None:
    out = io.StringIO()
    with ConsoleLog(live=live, settings=LogSettings(format="human"), out=out, env=env) as narrator:
        narrator.log("guard_lost", {})
    assert ("\x1b[" in out.getvalue().replace("\r\x1b[2K", "")) == coloured


def test_what_is_to_be_hidden_is_in_no_line_whoever_says_it() -> None:
    out = io.StringIO()
    with narrator_to(out, live=False) as narrator:
        narrator.hide(["correct-horse"])
        narrator.log("worker_exited", {"worker": "w1", "error": "it said correct-horse", "api_key": "battery"})
        logging.getLogger("pool.gateway").warning("correct-horse again, and password=%s", "battery")
    assert "correct-horse" not in out.getvalue()
    assert "battery" not in out.getvalue()
    assert out.getvalue().count("***") == 4


def test_an_events_own_fields_cannot_take_the_place_of_the_logs() -> None:
    out = io.StringIO()
    with narrator_to(out, live=False) as narrator:
        narrator.log("ready", {"event": "other", "level": 9, "ts": 0, "logger": "x"})
    (line,) = objects(out)
    assert (line["event"], line["level"]) == ("ready", "info")
    assert {"event_": "other", "level_": 9, "ts_": 0, "logger_": "x"}.items() < line.items()


# --- the line of figures --------------------------------------------------------------------------------------------


async def test_the_line_is_redrawn_when_it_changed_and_stays_below_what_is_logged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    out = io.StringIO()
    seen = iter([figures(), figures(), figures(waiting=0)])
    with narrator_to(out, live=True) as narrator:
        with trio.move_on_after(2.5):
            await narrator.run_status_line(lambda: next(seen))
        narrator.log("ready", {})
    drawn = out.getvalue().split("\r\x1b[2K")
    assert [part.split("  ")[3] for part in drawn[1:3]] == ["5 waiting", "0 waiting"]
    assert "ready\npool 3/4" in drawn[3]
    assert drawn[4:] == [""], "at the end the line is gone: it would say what no longer holds"


@pytest.mark.parametrize(
    ("live", "settings", "env"),
    [
        (False, LogSettings(), {"TERM": "xterm"}),
        (True, LogSettings(format="json"), {"TERM": "xterm"}),
        (True, LogSettings(), {"TERM": "dumb"}),
    ],
)
async def test_where_it_could_not_be_redrawn_there_is_no_line_to_follow(
    *, live: bool, settings: LogSettings, env: dict[str, str]
) -> None:
    out = io.StringIO()
    with ConsoleLog(live=live, settings=settings, out=out, env=env) as narrator, trio.fail_after(20):
        await narrator.run_status_line(figures)
    assert out.getvalue() == ""


# --- who does not read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["json", "human"])
def test_a_log_that_nobody_reads_costs_lines_but_no_time(wanted: LogFormat) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as out, os.fdopen(read_end, "rb") as reader:
        with ConsoleLog(live=False, settings=LogSettings(format=wanted), out=out) as narrator:
            for number in range(5000):
                narrator.log("event", {"number": number, "padding": "x" * 100})
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
                narrator.log("after", {})
        out.close()
        drain.join(5)
    assert len(lines) < 5000
    (loss,) = [line for line in lines if b"lines_dropped" in line][:1]
    assert b"lines_dropped count=" in loss or msgspec.json.decode(loss)["count"] > 0


def test_a_log_that_is_gone_does_not_end_the_supervisor() -> None:
    out = io.StringIO()
    out.close()
    with narrator_to(out, live=False) as narrator:
        for _ in range(3000):
            narrator.log("event", {})
