"""What the status document looks like, and that nothing in it can break the picture."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from rich.console import RenderableType

from commands.autonomy_view import autonomy_lines
from commands.tables import checks_table, explanation_table, sessions_view, status_view, waiting_table, workers_table
from gateway.sessions.admin import SessionView
from gateway.status import StatusDocument
from tests.doors.terminal import draw


def worker(name: str, **others: Any) -> dict[str, Any]:
    base = {
        "id": name,
        "pid": 100_001,
        "profile": "a1b2c3d4",
        "agent": "main",
        "role": "default",
        "state": "idle",
        "session": None,
        "holds": 0,
        "turn_age": None,
        "turns": 12,
        "age": 3723.0,
        "background": 0,
        "rss": 96 * 1024 * 1024,
        "cpu": 3.2,
        "suspended": False,
        "last_ping": 4.2,
        "stray_lines": 0,
        "retiring": None,
    }
    return base | others


def waiter(**others: Any) -> dict[str, Any]:
    base = {"request": "r1", "session": "grace", "priority": 5, "priority_now": 6.5, "waited": 4.6, "position": 1}
    more = {"profile": "a1b2c3d4", "expires_in": None, "state": "queued", "why": "all 4 workers are busy"}
    return base | more | others


def session(key: str, **others: Any) -> dict[str, Any]:
    base = {"key": key, "state": "parked", "worker": None, "holds": 0, "busy": False, "waiting": 0, "transcript": None}
    return base | {"failed": None} | others


NOTHING_OF_ITS_OWN = dict.fromkeys(("model", "thinking", "queue_mode", "label", "last_run", "channel", "waits_for"))
CONVERSATIONS: list[dict[str, Any]] = [
    {
        "key": "ada",
        "agent": "main",
        "role": "default",
        "state": "PAUSED",
        "worker": "w1",
        "turn": "t1",
        "waiting": 2,
        "transcript": "/data/2026.jsonl",
        **NOTHING_OF_ITS_OWN,
        "created_at": 0.0,
        "updated_at": 0.0,
        "pending_permissions": [{"id": "c1", "name": "exec", "input_preview": "ls", "reason": "it is listed"}],
    },
    {
        "key": "bob",
        "agent": "main",
        "role": "default",
        "state": "READY",
        "worker": None,
        "turn": None,
        "waiting": 0,
        "transcript": None,
        **NOTHING_OF_ITS_OWN,
        "created_at": 0.0,
        "updated_at": 0.0,
        "pending_permissions": [],
    },
]
DOCUMENT: dict[str, Any] = {
    "pool": {
        "total": 4,
        "idle": 1,
        "leased": 2,
        "starting": 1,
        "stopping": 0,
        "waiting": 1,
        "max": 4,
        "min": 1,
        "mode": "paused",
        "limits": {},
    },
    "counters": {
        "spawned": 9,
        "exits": {"evicted": 2, "crashed": 1},
        "evicted": 2,
        "parked": 3,
        "resumed": 4,
        "grants": {"bound": 120, "hard": 0},
        "releases": 118,
        "lost": 1,
        "active": 1,
        "enqueued": 20,
        "served": 17,
        "expired": 1,
        "refused": 0,
        "cancelled": 2,
        "stalled": 1,
    },
    "workers": [
        worker("w1", state="leased", session="ada", turn_age=12.0),
        worker("w2", suspended=True, stray_lines=3),
    ],
    "waiting": [waiter()],
    "sessions": [
        session("ada", state="active", worker="w1", holds=1, transcript="/t"),
        session("bob", failed="x"),
    ],
    "profiles": [
        {
            "profile": "a1b2c3d4",
            "agent": "main",
            "role": "default",
            "live": 3,
            "starting": 0,
            "warm": 1,
            "min": 1,
            "waiting": 1,
            "breaker": "open",
            "retry_in": 4.0,
            "last_error": "boom",
        }
    ],
    "latency": {
        "acquire": {"count": 3, "p50": 0.0004, "p99": 0.12, "max": 3.2},
        **{name: {"count": 0, "p50": 0.0, "p99": 0.0, "max": 0.0} for name in ("reset", "spawn", "turn")},
    },
    "guarantee": {"level": "cgroup", "text": "nothing survives"},
    "gateway": {
        "runs": 3,
        "sessions": 2,
        "lanes": {
            "running": 2,
            "waiting": 1,
            "lanes": [
                {"name": "cron", "limit": 1, "running": 1, "waiting": 4},
                {"name": "main", "limit": None, "running": 1, "waiting": 0},
            ],
            "sessions": [],
        },
        "permissions": [{"session": "ada", "call": {"id": "c1", "name": "exec", "input_preview": "ls"}}],
        "holds": {
            "granted": 1,
            "waiting": 22,
            "oldest": [
                {"session": "ada", "principal": "uid:7", "worker": "w3", "age": 61.0, "expires_in": None},
                {"session": "bob", "principal": "uid:7", "worker": None, "age": 5.0, "expires_in": 25.0},
            ],
        },
        "system_events": {"pending": 0, "sessions": 0, "injected": 0, "ignored": 0, "evicted": 0, "expired": 0},
        "events": {
            **dict.fromkeys(("last_seq", "ring_floor", "ring_bytes", "ring_sessions", "unseen", "handlers"), 0),
            **dict.fromkeys(("handler_failures", "events", "text_pieces", "snapshots"), 0),
            "head": 10_234,
            "sleeping": 5,
        },
        "autonomy": {
            "heartbeats": 3,
            "beating": 1,
            "cron": {
                "jobs": 5,
                "running": 1,
                "waiting": 0,
                "failing": 2,
                "next_due": 1_700_000_000.0,
                "problems": ["job old of the settings cannot be used"],
            },
            "alerts": {
                "accepted": 7,
                "delivered": 5,
                "waiting": 1,
                "places": [
                    {"to": "webhook:ops", "waiting": 1, "in_flight": False, "next_try": 1.0, "error": "status 500"}
                ],
                "undeliverable": [
                    {
                        "id": "a1",
                        "agent": "main",
                        "session": "ada",
                        "to": "webhook:old",
                        "reason": "interval",
                        "ts": 1_700_000_000.0,
                        "text": "The disk is full.",
                        "attempts": 12,
                        "error": "gone",
                    }
                ],
                "forgotten": 0,
            },
        },
        "store": {
            "rows_waiting": 2,
            "bytes_waiting": 100,
            "rows_written": 77,
            "degraded": False,
            "lost": 0,
            "last_error": None,
        },
    },
    "supervisor": {"pid": 4242, "uptime": 93_784.0, "version": "0.1.0", "socket": "/run/p.sock", "data_dir": "/x"},
}


@pytest.mark.parametrize("width", [60, 80, 140, 500])
def test_the_status_shows_figures_workers_waiters_profiles_and_latencies_at_any_width(width: int) -> None:
    shown = draw(status_view(DOCUMENT, width), width)
    for words in (
        "pool paused  4/4 workers  2 leased",
        "up 1d02h",
        "w1",
        "suspended, 3 stray lines",
        "ada",
        "all 4 workers",
        "a1b2c3d4",
        "0.4 ms",
        "1 active  1 failed",
        "2 evicted  1 crashed  1 turns stalled",
        "120 bound",
        "nothing survives",
        "3 live  1 waiting  lane cron 1/1, 4 waiting",
        "ada  worker w3 for 1m01s  by uid:7",
        "bob  has waited 5.0 s, 25 s left  by uid:7",
        "and 21 more",
        "ada: exec ls",
        "pool approve -s ada c1",
        "3 agents  1 under way",
        "5  1 running  0 waiting  2 failing",
        "job old of the settings",
        "7 accepted  1 waiting",
        "1 for webhook:ops: status 500",
        "UNDELIVERED to webhook:old",
        "The disk",
        "head 10234",
        "77 rows written  2 waiting",
    ):
        assert words in shown
    assert max(len(line) for line in shown.splitlines()) <= width


def test_the_documents_are_what_a_supervisor_sends() -> None:
    assert normal(DOCUMENT, StatusDocument) == json.loads(json.dumps(DOCUMENT))
    for view in CONVERSATIONS:
        assert normal(view, SessionView) == view


def normal(document: Any, kind: type) -> Any:
    """The same by way of the struct: a field that is missing raises, one that there is not is gone."""
    return json.loads(msgspec.json.encode(msgspec.convert(document, kind)))


def test_a_disk_that_refuses_is_said_loudly() -> None:
    refused = {**DOCUMENT["gateway"]["store"], "degraded": True, "last_error": "disk full", "lost": 7}
    document = {**DOCUMENT, "gateway": {**DOCUMENT["gateway"], "store": refused}}
    assert "REFUSED: disk full; 2 rows are held in memory, 7 lost" in draw(status_view(document, 140), 140)


def test_of_hundreds_of_alerts_that_nobody_got_the_latest_are_shown_a_line_each() -> None:
    autonomy = DOCUMENT["gateway"]["autonomy"]
    (lost,) = autonomy["alerts"]["undeliverable"]
    many = [{**lost, "agent": f"agent{count}", "text": "The disk\n\nis full."} for count in range(200)]
    figures = {**autonomy, "alerts": {**autonomy["alerts"], "undeliverable": many}}
    lines = [line.plain for line in autonomy_lines(figures) if "deliver" in line.plain.lower()]
    assert [
        f"agent{count}): The disk is full.: gone" in line for count, line in zip(range(195, 200), lines, strict=False)
    ]
    assert len(lines) == 6
    assert lines[-1].split()[0] == "195"


def test_a_latency_nobody_has_measured_is_a_dash() -> None:
    line = next(line for line in draw(status_view(DOCUMENT, 80)).splitlines() if line.startswith("turn"))
    assert line.split() == ["turn", "-", "-", "-", "0"]


def test_a_wide_terminal_shows_more_of_a_worker() -> None:
    assert "PROFILE" not in draw(workers_table([worker("w1", session="x" * 60)], 80), 80)
    assert "PROFILE" in draw(workers_table([worker("w1", session="x" * 60)], 160), 160)


def test_a_worker_that_is_to_go_says_so() -> None:
    kept = worker("w1", state="leased", retiring="age", background=2)
    assert "leased, 2 in background, retiring: age" in draw(workers_table([kept], 160))


def test_nothing_a_stranger_chose_reaches_the_terminal_raw() -> None:
    evil = "\x1b[2J[red]evil\r\n"
    shown = "".join(
        draw(view)
        for view in (
            workers_table([worker("w1", session=evil, role=evil)], 140),
            waiting_table([waiter(session=evil, why=evil)], 140),
            sessions_view([{**CONVERSATIONS[0], "key": evil, "transcript": evil}], 140),
        )
    )
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "[red]evil" in shown


def test_a_session_is_listed_with_what_it_does_and_what_it_asks() -> None:
    lines = draw(sessions_view(CONVERSATIONS, 140)).splitlines()
    assert lines[0].split() == ["SESSION", "STATE", "WORKER", "WAITING", "ASKS", "AGENT/ROLE", "USED", "TRANSCRIPT"]
    assert lines[1].split()[:6] == ["ada", "PAUSED", "w1", "2", "1", "main/default"]
    assert lines[1].endswith("2026.jsonl")
    assert lines[2].split()[:5] == ["bob", "READY", "-", "0", "-"]
    assert draw(sessions_view(CONVERSATIONS, 60)).splitlines()[0].split() == [
        "SESSION",
        "STATE",
        "WORKER",
        "WAITING",
        "ASKS",
        "AGENT/ROLE",
    ]


def test_a_session_whose_turn_has_no_worker_waits_and_says_for_what() -> None:
    waiting = {**CONVERSATIONS[1], "state": "WORKING", "waits_for": "the pool is paused"}
    lines = draw(sessions_view([CONVERSATIONS[0], waiting], 140)).splitlines()
    assert "WAITS FOR" in lines[0]
    assert lines[2].split()[:7] == ["bob", "WAITING", "-", "0", "the", "pool", "is"]
    assert lines[4] == "asks      ada: exec ls (it is listed)"


def test_a_long_key_is_shown_by_its_ends_so_that_the_table_can_be_read_in_a_pipe() -> None:
    key = "agent:main:" + "x" * 490 + ":topic:77"
    asked = {"session": key, "call": {"id": "c1", "name": "exec", "input_preview": "ls"}}
    document = {**DOCUMENT, "gateway": {**DOCUMENT["gateway"], "permissions": [asked]}}
    for view in (
        workers_table([worker("w1", session=key)], 500),
        waiting_table([waiter(session=key)], 500),
        sessions_view([{**CONVERSATIONS[0], "key": key}], 500),
        status_view(document, 500),
    ):
        shown = draw(view, 500)
        assert "agent:main:xxx" in shown
        assert ":topic:77" in shown
        assert max(len(line) for line in shown.splitlines() if "pool approve" not in line) < 250


def test_an_explanation_names_the_level_and_the_difference_of_every_worker() -> None:
    explanation = {
        "session": "ada",
        "profile": {"signature": "a1b2c3d4", "agent": "main", "role": "reviewer", "cwd": "/"},
        "workers": [
            {"worker": "w1", "level": "hard", "difference": "", "state": "idle", "session": None},
            {"worker": "w2", "level": "none", "difference": "role default, wanted reviewer", "state": "leased"},
        ],
    }
    shown = draw(explanation_table(explanation, 140))
    assert "wanted: main/reviewer" in shown
    assert ["w1", "hard", "idle", "-", "-"] in [line.split() for line in shown.splitlines()]
    assert "role default, wanted reviewer" in shown


def test_a_check_shows_what_to_do_below_what_was_found() -> None:
    checks = [{"name": "memory", "verdict": "missing", "found": "too little", "fix": "set pool.max to 2"}]
    shown = [line.split() for line in draw(checks_table(checks)).splitlines()]
    assert shown == [["MISSING", "memory", "too", "little"], ["->", "set", "pool.max", "to", "2"]]


@pytest.mark.parametrize(
    ("table", "words"),
    [(workers_table, "no workers"), (waiting_table, "no requests waiting"), (sessions_view, "no sessions")],
)
def test_an_empty_listing_says_so(table: Callable[[list[dict[str, Any]], int], RenderableType], words: str) -> None:
    assert draw(table([], 80)).strip() == words


def test_the_status_shows_the_first_waiters_and_counts_the_others() -> None:
    many = [waiter(request=f"r{number}", session=f"s{number}", position=number) for number in range(1, 10_001)]
    shown = draw(status_view({**DOCUMENT, "waiting": many}, 140))
    assert "s20 " in shown
    assert "s21 " not in shown
    assert "... and 9980 more; `pool waiting` lists them all" in shown
