"""The event bus in process: from a worker's messages to the envelopes that a subscriber is sent."""

import json
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import trio

from benchmarks.harness import Result, best_of, median, percentile, result, timed
from gateway.events.bus import EventBus
from gateway.events.translate import TextPieces, Translator
from gateway.settings import EventSettings
from store.records import EventRow
from store.settings import StoreSettings
from store.store import open_store
from wire.messages import Message

_PIECES = 400_000
_BATCH = 780
"""Messages that one read of a full pipe brings."""
_SESSIONS = 10_000
_EVENTS = 20_000
_DURABLE = 300


def run() -> list[Result]:
    lines = [_line(number) for number in range(_PIECES)]
    loads = (_PIECES / timed(lambda: [json.loads(line) for line in lines]), "/s json.loads a line")
    batches = [msgspec.json.Decoder(Message).decode_lines(b"".join(batch)) for batch in _in(lines, _BATCH)]
    rate = _PIECES / best_of(3, lambda: trio.run(_stream, batches))
    return [
        result("text pieces, worker to subscriber", rate, "/s", beside=loads, at_least=1_000_000),
        result("the same, translated only", _PIECES / best_of(3, lambda: _translate(batches)), "/s"),
        result("single events, published and read", _EVENTS / best_of(3, lambda: trio.run(_singles)), "/s"),
        *_reads(),
        *_over_store(batches),
    ]


def _line(number: int) -> bytes:
    return b'{"event":"assistant_message","data":{"partial":"word ","run_id":"r1","seq":%d}}\n' % number


def _in(lines: list[bytes], size: int) -> Iterator[list[bytes]]:
    return (lines[start : start + size] for start in range(0, len(lines), size))


class _NoStore:
    """Takes rows and forgets them: what the bus itself costs."""

    is_degraded = False

    def put_event(self, row: EventRow) -> None:
        pass

    def put_events(self, rows: Iterable[EventRow]) -> None:
        for _ in rows:
            pass

    def record_seq(self, seq: int) -> int:
        return seq + 1000

    def commit(self) -> bool:
        return True

    async def flush(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        raise AssertionError(f"everything is in memory, also {session} {after}..{before}, {limit}")

    oldest_seq = 0


def _bus() -> EventBus:
    return EventBus(_NoStore(), EventSettings(), first_seq=1)


async def _stream(batches: list[list[Message]]) -> float:
    """A subscriber that keeps pace, as the socket's task does."""
    bus, translator = _bus(), Translator()
    cursor = bus.open_cursor(session="s")
    begin = time.perf_counter()
    seen = 0
    for batch in batches:
        _publish(bus, translator, batch)
        while cursor.position < bus.head:
            seen += (await cursor.read()).count
    took = time.perf_counter() - begin
    if seen != _PIECES:
        raise AssertionError(f"{seen} of {_PIECES} pieces arrived")
    return took


def _publish(bus: EventBus, translator: Translator, batch: list[Message]) -> None:
    for step in translator.translate(batch):
        assert isinstance(step, TextPieces)
        bus.publish_text("s", step.type, step.pieces, run_id="r1")


def _translate(batches: list[list[Message]]) -> float:
    translator = Translator()
    return timed(lambda: [translator.translate(batch) for batch in batches])


async def _singles() -> float:
    bus = _bus()
    cursor = bus.open_cursor()
    data = {"call": {"id": "c1", "name": "read", "input_preview": '{"path":"a"}', "state": "RUNNING"}}
    begin = time.perf_counter()
    for _ in range(_EVENTS // 100):
        for _ in range(100):
            bus.publish("s", "tool:start", data, run_id="r1")
        while cursor.position < bus.head:
            await cursor.read()
    return time.perf_counter() - begin


def _reads() -> list[Result]:
    """The last event of one session, with few others beside it and with very many."""
    few, many = best_of(5, lambda: trio.run(_read_one, 10)), best_of(5, lambda: trio.run(_read_one, _SESSIONS))
    name = f"reading one session of {_SESSIONS:,}"
    return [result(name, many * 1e6, "us", beside=(few * 1e6, "us of 10"), ratio_at_most=3.0)]


async def _read_one(sessions: int) -> float:
    bus = _bus()
    begin = bus.head
    for number in range(sessions):
        bus.publish(f"s{number}", "note", {"n": number})
    cursors = [bus.open_cursor(session=f"s{number}", since=begin) for number in range(0, sessions, sessions // 10)]
    start = time.perf_counter()
    for cursor in cursors:
        await cursor.read()
    return (time.perf_counter() - start) / len(cursors)


# --- over SQLite ------------------------------------------------------------------------------------------------------


def _over_store(batches: list[list[Message]]) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        commits = _commits(Path(folder, "plain.db"))
        waits, replay, rows = trio.run(_store_and_replay, Path(folder, "pool.db"), batches)
    name = "us a commit of one row by hand"
    usual, most = (median(commits), name), (percentile(commits, 0.99), name)
    return [
        result("durable event, seen, p50", median(waits), "us", beside=usual),
        result("durable event, seen, p99", percentile(waits, 0.99), "us", beside=most, at_most=20_000),
        result("text pieces, replayed from the store", _PIECES / replay, "/s", at_least=500_000),
        result("pieces to a row of the store", _PIECES / rows, "pieces", at_least=100),
    ]


def _commits(path: Path) -> list[float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE t (n INTEGER)")
    times = [timed(lambda: connection.execute("INSERT INTO t VALUES (1)")) * 1e6 for _ in range(_DURABLE)]
    connection.close()
    return times


async def _store_and_replay(path: Path, batches: list[list[Message]]) -> tuple[list[float], float, int]:
    async with open_store(path, StoreSettings(), on_trouble=lambda _kind, _facts: None) as store:
        bus = EventBus(store, EventSettings(), first_seq=store.loaded.first_seq)
        async with trio.open_nursery() as nursery:
            await nursery.start(bus.run)
            waits = [await _settle_one(bus) for _ in range(_DURABLE)]
            begin, translator = bus.head, Translator()
            for batch in batches:
                _publish(bus, translator, batch)
            nursery.cancel_scope.cancel()
        await store.flush()
        return waits, await _replay(bus, begin), bus.statistics().snapshots


async def _settle_one(bus: EventBus) -> float:
    begin = time.perf_counter()
    await bus.wait_visible(bus.publish("s", "done", {"text": "x"}))
    return (time.perf_counter() - begin) * 1e6


async def _replay(bus: EventBus, since: int) -> float:
    cursor = bus.open_cursor(session="s", since=since)
    begin = time.perf_counter()
    size = 0
    while cursor.position < bus.head:
        size += len((await cursor.read()).body)
    if size < _PIECES * len("word "):
        raise AssertionError(f"{size} bytes came back of {_PIECES} pieces")
    return time.perf_counter() - begin
