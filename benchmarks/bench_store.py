"""The store: opening a large one, how long a commit takes, rows a second, and what a busy event loop does to both."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import trio

from benchmarks.harness import Result, best_of, median, percentile, result
from store.database import connect_to
from store.opening import open_database
from store.records import EventRow, SessionRow
from store.settings import StoreSettings
from store.store import Store, open_store, set_switch_interval

_SESSIONS = 10_000
_EVENTS = 1_000_000
_COMMITS = 2000
_ROWS = 50_000
_DATA = b'{"call":{"id":"call-12345","name":"bash","input_preview":"' + b"x" * 120 + b'"}}'
_SESSION_DATA = (
    b'{"source":{"channel":"chat","chat_type":"group","chat_id":"-100123","sender_id":"4711","sender_name":"Ada"},'
    b'"last_run":"0198f2c1-6f0e-7aaa-bbbb-0123456789ab"}'
)
_FILL = """
    WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < :events)
    INSERT INTO events
    SELECT :first + number, :now, printf('session-%05d', number / 100), 'progress', 'tool:end', NULL, :data FROM numbers
"""
_SETTINGS = StoreSettings(events=2 * _EVENTS)


def run() -> list[Result]:
    set_switch_interval()
    with tempfile.TemporaryDirectory(prefix="pool-bench-") as place:
        path = Path(place) / "pool.db"
        return [*trio.run(_commits, path), *trio.run(_batches, path), *_opening(path)]


# --- commits --------------------------------------------------------------------------------------------------------


async def _commits(path: Path) -> list[Result]:
    """One event, then a flush, as before every step of a run; on an idle event loop and on one that never rests."""
    async with open_store(path, _SETTINGS, on_trouble=_fail) as store:
        idle = await _time_flushes(store, _COMMITS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_never_rest)
            busy = await _time_flushes(store, 200)
            nursery.cancel_scope.cancel()
    bare = median(idle)
    return [
        result("commit of one event, p50", bare, "ms"),
        result("commit of one event, p99", percentile(idle, 0.99), "ms", at_most=5),
        result("the same on a busy loop, p50", median(busy), "ms", beside=(bare, "ms idle")),
    ]


async def _time_flushes(store: Store, times: int) -> list[float]:
    taken = []
    for _ in range(times):
        store.put_events(_events(1))
        started = time.perf_counter()
        assert await store.flush()
        taken.append((time.perf_counter() - started) * 1e3)
    return taken


async def _never_rest() -> None:
    while True:
        sum(range(20_000))  # a round of a busy supervisor, in which no other thread gets the interpreter
        await trio.lowlevel.checkpoint()


# --- batches --------------------------------------------------------------------------------------------------------


async def _batches(path: Path) -> list[Result]:
    """As fast as they come, beside plain ``executemany`` into the same tables of the same file."""
    started = time.perf_counter()
    _execute_many(path, _events(_ROWS))
    bare = _ROWS / (time.perf_counter() - started)
    async with open_store(path, _SETTINGS, on_trouble=_fail) as store:
        started = time.perf_counter()
        await _put_all(store, _ROWS)
        rate = _ROWS / (time.perf_counter() - started)
    return [result("events written", rate, "rows/s", beside=(bare, "rows/s executemany"), at_least=40_000)]


async def _put_all(store: Store, rows: int) -> None:
    events = _events(rows)
    for _ in range(rows // 500):
        store.put_events([next(events) for _ in range(500)])
        await store.wait_room()
    assert await store.flush()


def _execute_many(path: Path, rows: Iterator[EventRow]) -> None:
    with closing(connect_to(path.as_uri())) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        values = ((row.seq, row.ts, row.session, row.channel, row.type, row.run_id, row.data) for row in rows)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        connection.execute("COMMIT")


# --- opening --------------------------------------------------------------------------------------------------------


def _opening(path: Path) -> list[Result]:
    """A store of 10,000 sessions and 1,000,000 events, closed in good order; then after a crash, with a full check."""
    fill_store(path)
    clean = best_of(3, lambda: _open_once(path, cleanly=True))
    _open_once(path, cleanly=False)
    crashed = _open_once(path, cleanly=True)
    size = path.stat().st_size / 1024**2
    return [
        result("opening after a clean stop, 1,000,000 events", clean * 1e3, "ms", at_most=1000),
        result("the same after a crash, checked", crashed * 1e3, "ms", beside=(size, "MiB of file")),
    ]


def fill_store(path: Path) -> None:
    """Leave a store of 10,000 sessions and 1,000,000 events there, closed in good order."""
    trio.run(_put_sessions, path)
    now = int(time.time())
    with closing(connect_to(path.as_uri())) as connection:
        connection.execute(_FILL, {"events": _EVENTS, "first": time.time_ns() // 1000, "now": now, "data": _DATA})


async def _put_sessions(path: Path) -> None:
    async with open_store(path, _SETTINGS, on_trouble=_fail) as store:
        now = time.time()
        for number in range(_SESSIONS):
            key = f"session-{number}"
            store.put_session(
                SessionRow(
                    key=key,
                    agent="main",
                    role="default",
                    transcript=f"/t/{key}",
                    created_at=now,
                    updated_at=now,
                    data=_SESSION_DATA,
                )
            )


def _open_once(path: Path, *, cleanly: bool) -> float:
    started = time.perf_counter()
    opened = open_database(path, clock=time.time)
    taken = time.perf_counter() - started
    assert len(opened.loaded.sessions) == _SESSIONS
    if cleanly:
        opened.database.close_cleanly()
    else:
        opened.database.close()
    return taken


def _events(count: int) -> Iterator[EventRow]:
    """Of sessions in turn; seqs from the clock, so that no two calls give the same ones."""
    first = time.time_ns() // 1000
    for number in range(count):
        session = f"session-{number % _SESSIONS}"
        yield EventRow(
            seq=first + number, ts=time.time(), session=session, channel="progress", type="tool:end", data=_DATA
        )


def _fail(kind: str, details: dict[str, Any]) -> None:
    raise AssertionError(kind, details)
