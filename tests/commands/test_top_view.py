"""What ``pool top`` knows and draws: series, last lines, states, and a screen that fits every terminal."""

import json
import threading
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from rich.console import Console

from commands.top import TopEventsView, follow_events
from commands.top_controls import TopControls
from commands.top_session import SessionLines
from commands.top_view import LEAST_COLUMNS, LEAST_LINES, TopModel, draw
from doors.control.client import ControlClient
from errors import PoolError
from tests.commands.documents import DOCUMENT, GROUPS, session, waiter, worker
from tests.commands.fake_pool import Bench, envelope
from wire.events import EventChannel
from wire.messages import EventEnvelope
from wire.sparkline import TimeSeries, sparkline

NOW = 1_000.0


def event(kind: str, key: str = "ada", *, ts: float = NOW, run: str = "r", **data: Any) -> EventEnvelope:
    raw = msgspec.Raw(json.dumps(data).encode())
    return EventEnvelope(seq=1, ts=ts, session=key, channel=EventChannel.PROGRESS, type=kind, data=raw, run_id=run)


def a_status(workers: int = 3, waiters: int = 0, sessions: int = 3, asks: int = 0, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    call = {"id": "c1", "name": "exec", "input_preview": "make deploy " * 9, "state": "AWAITING_APPROVAL"}
    document["workers"] = [worker(f"w{n}", session=f"s{n}", turn_age=1.5, cpu=float(n)) for n in range(workers)]
    document["waiting"] = [waiter(request=f"r{n}", session=f"s{n}") for n in range(waiters)]
    document["sessions"] = [session(f"s{n}") for n in range(sessions)]
    document["gateway"]["permissions"] = [{"session": f"s{n}", "call": call} for n in range(asks)]
    return document | changes


def lines_of(picture: TopModel, width: int, height: int, **options: Any) -> list[str]:
    console = Console(width=width, height=height, force_terminal=True, no_color=True, color_system=None)
    with console.capture() as capture:
        console.print(draw(picture, width, height, now=NOW, **options), crop=False)
    return capture.get().rstrip("\n").split("\n")


def test_a_series_sums_by_step_and_forgets_what_is_too_long_ago() -> None:
    series = TimeSeries(steps=4, seconds=2)
    for at in (0.0, 1.9, 2.0, 7.0):
        series.add(at, 3)
    assert series.sums(7.0) == [6, 3, 0, 3]
    assert series.means(7.0) == [3, 3, None, 3]
    assert series.sums(11.0) == [0, 3, 0, 0]
    series.add(1.0, 5)
    assert series.sums(11.0) == [0, 3, 0, 0]
    assert series.sums(1_000_000.0) == [0, 0, 0, 0]


def test_blocks_rise_from_nothing_to_the_largest_value_and_leave_blanks() -> None:
    assert sparkline([0, 4, None, 8], 10) == "▁▅ █"
    assert sparkline([1, 2, 3], 2) == "▆█"
    assert sparkline([0, 8], 9, ascii_only=True) == "_#"
    assert sparkline([0, 0], 9) == "▁▁"
    assert sparkline([1, 2], 0) == ""


def test_the_load_of_a_worker_is_what_it_used_between_two_looks() -> None:
    picture = TopModel()
    first, second = a_status(), a_status()
    second["supervisor"]["uptime"] = first["supervisor"]["uptime"] + 2
    second["workers"][0]["cpu"] = first["workers"][0]["cpu"] + 1
    second["workers"].append(worker("w9", cpu=7.0))
    picture.update_status(first)
    assert [each["cpu"] for each in picture.workers()] == [None, None, None]
    picture.update_status(second)
    assert [each["cpu"] for each in picture.workers()] == [50.0, 0.0, 0.0, None]
    assert " 50% " in "\n".join(lines_of(picture, 200, 40))


def test_the_last_line_of_a_session_is_what_it_says_or_does() -> None:
    picture = TopModel()
    picture.add_events([event("run:start"), event("text_chunk", delta="one "), event("text_chunk", delta="two")])
    assert picture.last_lines["ada"] == "one two"
    picture.add_events([event("token_usage"), event("tool:start", call={"name": "exec", "input_preview": "make"})])
    assert "exec" in picture.last_lines["ada"]
    picture.add_events([event("text_snapshot", text="all of it")])
    assert picture.last_lines["ada"] == "all of it"
    picture.add_events([event("done", reason="completed", text="all of it, and more")])
    assert picture.last_lines["ada"] == "all of it, and more"
    picture.add_events([event("done", reason="error", text="half", error={"code": "x", "message": "it broke"})])
    assert "it broke" in picture.last_lines["ada"]
    picture.add_events([event("text_chunk", delta="x" * 10_000)])
    assert len(picture.last_lines["ada"]) == 400


def test_waits_and_turns_are_measured_from_the_events_of_runs() -> None:
    picture = TopModel()
    picture.add_events([event("run:accepted", ts=10), event("run:start", ts=12), event("done", ts=17)])
    assert [value for value in picture.wait.means(17) if value] == [2]
    assert [value for value in picture.turn.means(17) if value] == [5]
    assert sum(picture.turns.sums(17)) == 1
    assert sum(picture.events_seen.sums(17)) == 3


def test_what_is_remembered_of_a_flood_is_bounded() -> None:
    picture = TopModel()
    for number in range(6_000):
        picture.add_events([event(kind, f"s{number}", run=f"r{number}") for kind in ("run:accepted", "run:start")])
    assert (len(picture.last_lines), len(picture.events)) == (5_000, 500)
    assert len(picture._started_at) == 5_000


def test_sessions_that_need_somebody_come_first_then_those_at_work() -> None:
    picture = TopModel()
    status = a_status(workers=0, sessions=5, asks=0)
    status["sessions"][1]["waiting"] = 1
    status["sessions"][2]["failed"] = "no transcript"
    status["workers"] = [worker("w1", session="s3", turn_age=1.0)]
    status["gateway"]["permissions"] = a_status(asks=5)["gateway"]["permissions"][4:]
    picture.update_status(status)
    states = [(one["key"], one["state"]) for one in picture.sessions()]
    assert states == [("s4", "approval"), ("s3", "working"), ("s1", "waiting"), ("s2", "failed"), ("s0", "idle")]


@given(
    st.tuples(st.integers(1, 260), st.integers(1, 90)),
    st.tuples(st.integers(0, 70), st.integers(0, 30), st.integers(0, 60), st.integers(0, 12)),
)
def test_the_screen_fits_every_terminal(size: tuple[int, int], counts: tuple[int, int, int, int]) -> None:
    width, height = size
    picture = TopModel()
    picture.update_status(a_status(*counts))
    picture.add_events([event("text_chunk", f"s{n}", delta="some words and more of them\n") for n in range(50)])
    lines = lines_of(picture, width, height)
    if width >= LEAST_COLUMNS and height >= LEAST_LINES:
        commands = [line for line in lines if "pool approve" in line]  # to be copied: never cut
        assert all(len(line) <= width for line in lines if line not in commands)
        assert len(lines) == height
        assert "q quit" in lines[-1]


@pytest.mark.parametrize("trouble", [None, "trying again: nobody answers"])
def test_everything_at_once_fits_every_height(trouble: str | None) -> None:
    picture = TopModel()
    picture.update_status(a_status(30, 30, 30, 12))
    picture.error = trouble
    assert [
        height for height in range(LEAST_LINES, 40) if len(lines_of(picture, LEAST_COLUMNS, height)) != height
    ] == []


@pytest.mark.parametrize(
    ("width", "height", "command"), [(80, 24, "pool approvals show --socket /s"), (200, 50, "pool approve --socket /s")]
)
def test_everything_that_matters_is_on_the_screen(width: int, height: int, command: str) -> None:
    picture = TopModel()
    picture.update_status(a_status(workers=2, waiters=1, sessions=2, asks=1))
    picture.add_events([event("done", "s1", reason="completed", text="hi")])
    text = "\n".join(lines_of(picture, width, height, place=" --socket /s"))
    for wanted in ("w0", "w1", "all 4 workers are busy", "s0", "approval", command, "EVENTS", "wait"):
        assert wanted in text
    controls = TopControls()
    controls.held, controls.filter = True, "s"
    assert lines_of(picture, width, height, controls=controls)[-1].rstrip().endswith("held  filter: s")
    picture.error = "nobody listens; trying again"
    assert lines_of(picture, width, height)[1].strip() == picture.error, "above what was seen last"


def test_without_colours_there_are_no_styles_in_the_events() -> None:
    picture = TopModel()
    picture.update_status(a_status())
    picture.add_events([event("error", message="it broke")])
    console = Console(width=80, force_terminal=True, color_system="truecolor")
    with console.capture() as capture:
        console.print(draw(picture, 80, 24, now=NOW, is_coloured=False))
    [line] = [line for line in capture.get().splitlines() if "it broke" in line]
    assert "\x1b" not in line


def test_the_list_of_events_says_why_no_more_will_come() -> None:
    picture = TopModel()
    picture.update_status(a_status())
    picture.events_error = "another version\x1b[2J"
    shown = lines_of(picture, 80, 24)
    assert [line.rstrip() for line in shown if line.startswith("EVENTS")] == [
        "EVENTS  have ended: another version\\x1b[2J"
    ]
    assert len(shown) <= 24


def test_the_list_of_events_leaves_out_pieces_of_text_and_internals() -> None:
    picture = TopModel()
    picture.update_status(a_status())
    call = {"id": "c1", "name": "exec", "input_preview": "make"}
    kinds = ("run:start", "text_chunk", "tool:start", "tool:update", "tool:end", "worker_spawned", "breaker_opened")
    picture.add_events([event(kind, call=call) for kind in kinds])
    shown = lines_of(picture, 120, 40)
    listed = shown[shown.index(next(line for line in shown if line.startswith("EVENTS"))) + 1 :]
    assert [line.split()[2] for line in listed if "ada" in line] == ["tool:start", "tool:end", "breaker_opened"]
    assert picture.last_lines["ada"], "what is not listed is known all the same"


def test_an_opened_session_is_read_again_after_an_event_and_rendered_once_for_a_width() -> None:
    opened, picture = SessionLines(), TopModel()
    opened.update({"messages": [{"role": "user", "content": "first"}]}, picture.last_seqs.get("ada", 0))
    assert not opened.is_stale(picture.last_seqs.get("ada", 0))
    lines = opened.lines(80)
    picture.add_events([event("text_chunk", delta="x"), event("done", "bob")])
    assert opened.is_stale(picture.last_seqs["ada"])
    opened.update({"messages": [{"role": "user", "content": "first"}]}, picture.last_seqs["ada"])
    assert (opened.is_stale(picture.last_seqs["ada"]), opened.lines(80) is lines) == (False, True)
    assert opened.lines(70) is not lines
    opened.update(None, 2)
    assert [line.plain for line in opened.lines(80)] == ["user", "first"]
    opened.update({"messages": [{"role": "user", "content": "second"}]}, 3)
    assert [line.plain for line in opened.lines(80)] == ["user", "second"]


def test_events_that_cannot_be_read_end_with_a_word_on_the_screen(bench: Bench) -> None:
    class View(TopEventsView):
        def show_end(self, error: PoolError) -> None:
            super().show_end(error)
            ended.set()

    ended, picture = threading.Event(), TopModel()
    bench.pool.events = [{**envelope(1, "done"), "session": 7}]
    with ControlClient(bench.socket) as client:
        follow_events(client, View(picture, threading.Lock()), since=0)
        assert ended.wait(60)
    assert str(picture.events_error).startswith("a defect ended the events: ")


def test_other_machines_are_summed_in_the_head_and_named_at_each_worker() -> None:
    picture = TopModel()
    picture.update_status(a_status(groups=GROUPS, workers=2) | {"workers": [worker("w1", node="gpu-1")]})
    shown = lines_of(picture, 140, 30)
    assert "nodes 2 up, 1 draining, 1 lost, 1 refused" in shown[0]
    assert any("gpu-1" in line for line in shown)
