"""What the supervisor says while it runs, and that nobody can hold it by not listening."""

import datetime as dt
import io
import os
import threading
from typing import Any, cast

import pytest
import trio

from doors.live import Narrator, log_line, render_line
from pool.statistics import PoolStatistics

AT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


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
    assert render_line(figures(), 200) == line
    assert render_line(figures(mode="paused", starting=1), 200).startswith(
        "pool 3/4  paused  2 leased  1 idle  1 starting"
    )


@pytest.mark.parametrize("width", [-1, 0, 10, 40])
def test_the_line_is_never_wider_than_the_terminal(width: int) -> None:
    assert len(render_line(figures(), width)) == max(width, 0)


def test_a_log_line_is_one_line_of_readable_fields() -> None:
    data = {"worker": "w1", "error": "it said:\n\x1b[31mboom", "session": None, "turns": 3, "empty": ""}
    assert log_line("worker_exited", data, AT) == (
        '2026-01-02T03:04:05Z worker_exited worker=w1 error="it said: \\\\x1b[31mboom" turns=3 empty=""'
    )


def told(narrator: Narrator, out: io.StringIO) -> list[str]:
    narrator.close()
    lines = out.getvalue().replace("\r\x1b[2K", "").split("\n")
    return [line.partition("Z ")[2] for line in lines if line]


def test_without_a_terminal_every_event_is_a_line() -> None:
    out = io.StringIO()
    narrator = Narrator(live=False, out=out)
    narrator.log("worker_spawned", {"worker": "w1"})
    narrator.log("session_bound", {"session": "a b"})
    assert told(narrator, out) == ["worker_spawned worker=w1", 'session_bound session="a b"']


def test_on_a_terminal_only_what_is_not_routine_scrolls_by() -> None:
    out = io.StringIO()
    narrator = Narrator(live=True, out=out)
    narrator.log("session_bound", {"session": "a"})
    narrator.log("worker_exited", {"worker": "w1", "cause": "idle"})
    narrator.log("worker_exited", {"worker": "w2", "cause": "crashed"})
    assert told(narrator, out) == ["worker_exited worker=w2 cause=crashed"]


async def test_the_line_is_redrawn_when_it_changed_and_stays_below_what_is_logged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    out = io.StringIO()
    narrator = Narrator(live=True, out=out)
    seen = iter([figures(), figures(), figures(waiting=0)])
    with trio.move_on_after(2.5):
        await narrator.follow(lambda: next(seen))
    narrator.log("guard_lost", {})
    narrator.close()
    drawn = out.getvalue().split("\r\x1b[2K")
    assert [part.split("  ")[3] for part in drawn[1:3]] == ["5 waiting", "0 waiting"]
    assert drawn[3].endswith("acquire p99 20 ms\n")
    assert "guard_lost\npool 3/4" in drawn[3]


async def test_without_a_terminal_there_is_no_line_to_follow() -> None:
    narrator = Narrator(live=False, out=io.StringIO())
    with trio.fail_after(1):
        await narrator.follow(figures)
    narrator.close()


def test_a_log_that_nobody_reads_costs_lines_but_no_time() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as out, os.fdopen(read_end, "rb") as reader:
        narrator = Narrator(live=False, out=out)
        for number in range(20_000):
            narrator.log("event", {"number": number, "padding": "x" * 100})
        lines: list[bytes] = []
        drain = threading.Thread(target=lambda: lines.extend(reader))
        drain.start()
        while not any(b"Z after" in line for line in list(lines)):
            narrator.log("after", {})
        narrator.close()
        out.close()
        drain.join(5)
    assert len(lines) < 20_000
    assert any(b"lines were dropped: nobody read them in time" in line for line in lines)


def test_a_log_that_is_gone_does_not_end_the_supervisor() -> None:
    out = io.StringIO()
    out.close()
    with Narrator(live=False, out=out) as narrator:
        for _ in range(3000):
            narrator.log("event", {})
