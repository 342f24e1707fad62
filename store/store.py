"""The store on the event loop: puts that never wait, a flush that waits for the disk, reads in threads, documents."""

import logging
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio

from store.backlog import WriteBatch
from store.database import Connect, connect_to
from store.maintenance import Maintenance
from store.opening import SEQ_BLOCK, OpenedDatabase, open_database
from store.reader import read_documents, read_events
from store.records import DocumentRow, EventRow, Loaded, RunKey, RunRow, SessionRow, StoreStatistics, StoreUnusable
from store.settings import StoreSettings
from store.writer import OnTrouble, Writer
from store.writer_thread import WriterThread

_READS_AT_ONCE = 2
_LINGER_SECONDS = 0.05
"""How long a change waits for a flush, whose commit it then shares."""
_logger = logging.getLogger("pool.store")


class Store:
    """Sessions, runs, events and documents that outlive the supervisor; made by ``open_store``, used on its event loop.

    What is put is written in that order, a while later. When the disk refuses, it stays in memory and is written once
    the disk takes it again.
    """

    loaded: Loaded
    """What was there at the opening. ``del store.loaded`` once it has been taken over: it may be large."""

    def __init__(
        self,
        opened: OpenedDatabase,
        path: Path,
        settings: StoreSettings,
        *,
        maintenance: Maintenance,
        connect: Connect,
        on_trouble: OnTrouble,
    ) -> None:
        self.loaded = opened.loaded
        self._path = path
        self._settings = settings
        self._connect = connect
        self._on_trouble = on_trouble
        self._reserved = opened.reserved
        self._changed: trio.Event | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._readers = trio.CapacityLimiter(_READS_AT_ONCE)
        self._thread = WriterThread(opened.database, maintenance, notify=self._notify_done)
        self._writer = Writer(
            self._thread,
            settings,
            on_change=self._wake,
            on_trouble=self._publish_trouble,
            on_stall=self._notify_stalled,
        )
        self._backlog = self._writer.backlog
        self.put_event = self._backlog.put_event
        """Add an event with a seq of its own."""
        self.is_degraded = False
        """Whether the disk refuses, and new rows are held in memory only."""
        self._has_ended = False
        self._thread.start()
        trio.lowlevel.spawn_system_task(self._commit_forever)

    def put_session(self, row: SessionRow) -> None:
        """Insert the session, or replace the row of its key."""
        self._backlog.put_session(row)

    def delete_session(self, key: str) -> None:
        """Forget the session, if there is one of that key. Its runs and events stay."""
        self._backlog.delete_session(key)

    def put_run(self, row: RunRow) -> None:
        """Insert the run, or replace its row, which keeps its place in the order of acceptance."""
        self._backlog.put_run(row)

    def delete_runs(self, runs: Iterable[RunKey]) -> None:
        """Forget runs."""
        self._backlog.delete_runs(runs)

    def put_events(self, rows: Iterable[EventRow]) -> None:
        """Add events, each with a seq of its own, in any order."""
        self._backlog.put_events(rows)

    def put_document(self, kind: str, key: str, body: bytes | None) -> None:
        """Insert a document, replace its body, or (``None``) remove it. Its place is that of its first insertion."""
        if body is None:
            self._backlog.delete_document((kind, key))
        else:
            self._backlog.put_document(DocumentRow(kind=kind, key=key, body=body))

    def record_seq(self, seq: int) -> int:
        """Tell the highest seq given out so far, so that a reservation is durable ahead of it.

        To be called again once a seq above the one returned has been given out.
        """
        if seq + SEQ_BLOCK // 2 > self._reserved:
            reserved = seq + 2 * SEQ_BLOCK - seq % SEQ_BLOCK
            self._backlog.reserve(reserved)
            self._reserved = reserved
        return self._reserved - SEQ_BLOCK // 2

    def transaction(self) -> AbstractContextManager[None]:
        """What is put inside becomes durable in one step or not at all. Nothing is awaited inside."""
        return self._backlog

    def commit(self) -> bool:
        """Write what was put, while the event loop waits for as long as it may; True = all of it is durable."""
        if not self._writer.is_closing:
            self._writer.commit()
        return self._backlog.written >= self._backlog.position

    async def flush(self) -> bool:
        """Wait until everything put before is durable. False = the disk refuses, and it is held in memory only."""
        position = self._backlog.position
        return self.commit() or await self._wait_until(lambda: self._backlog.written >= position)

    async def wait_room(self) -> None:
        """Wait while too much waits to be written; returns at once where there is room or the disk refuses."""
        if self._backlog.cost > self._settings.backlog:
            await self._wait_until(lambda: self._backlog.cost <= self._settings.backlog)

    async def _wait_until(self, is_true: Callable[[], bool]) -> bool:
        await trio.lowlevel.checkpoint()
        while True:
            if is_true():
                return True
            if self.is_degraded or self._has_ended:
                return False
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        """Events with ``after < seq < before``, of one session or (None) of all, ascending, at most ``limit``.

        Fewer than ``limit`` means that there are no more. Sees every event put before. Raises StoreUnusable.
        """
        unwritten = [] if await self.flush() else self._backlog.events()
        read = partial(self._read, unwritten, after=after, before=before, session=session, limit=limit)
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers)

    def _read(
        self, unwritten: list[EventRow], *, after: int, before: int, session: str | None, limit: int
    ) -> list[EventRow]:
        with self._translate_errors():
            rows = read_events(self._path, self._connect, after=after, before=before, session=session, limit=limit)
        if not unwritten:
            return rows
        wanted = (row for row in unwritten if after < row.seq < before and session in (None, row.session))
        found = {row.seq: row for row in (*wanted, *rows)}  # some may have been written meanwhile
        return [found[seq] for seq in sorted(found)][:limit]

    async def read_documents(self, kind: str) -> dict[str, bytes]:
        """The documents of a kind by their keys, in the order of their first insertion.

        Sees every one put before. Raises StoreUnusable.
        """
        unwritten = {} if await self.flush() else self._backlog.documents(kind)
        read = partial(self._read_documents, kind, unwritten)
        return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._readers)

    def _read_documents(self, kind: str, unwritten: dict[str, bytes | None]) -> dict[str, bytes]:
        with self._translate_errors():
            found = {**read_documents(self._path, self._connect, kind=kind), **unwritten}
        return {key: body for key, body in found.items() if body is not None}

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise StoreUnusable(f"the store {self._path} cannot be read: {exc}", path=str(self._path)) from exc

    @property
    def oldest_seq(self) -> int:
        """From this seq on no event has gone, by retention or loss; 0 = none ever went.

        A reader that has seen everything up to the one before it has missed nothing. Of what is older something is
        missing, though not all of it need be: what was durable before the disk refused outlives what waited meanwhile.
        """
        gone = self._writer.purged_through
        return gone + 1 if gone else 0

    def statistics(self) -> StoreStatistics:
        """Figures of this moment; counts what waits."""
        return self._writer.statistics()

    async def _commit_forever(self) -> None:
        """Have committed what no flush waits for, and what the disk has refused."""
        while not self._writer.is_closing:
            with trio.move_on_after(self._writer.commit_delay):
                await self._writer.wanted.park()
            await trio.sleep(_LINGER_SECONDS)
            if not self._writer.is_closing:
                self._writer.commit()

    def _notify_done(self) -> None:
        """Called by the writer's thread."""
        with suppress(trio.RunFinishedError):  # no waiter is left
            self._token.run_sync_soon(self._collect, idempotent=True)

    def _collect(self) -> None:
        if not self._writer.is_closing:
            self._writer.collect()

    def _notify_stalled(self, batch: WriteBatch) -> None:
        """Called by a thread of its own."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._writer.stalled, batch)

    def _wake(self) -> None:
        self.is_degraded = self._writer.disk.is_degraded
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    def _publish_trouble(self, kind: str, details: dict[str, Any]) -> None:
        with suppress(trio.RunFinishedError):  # no listener is left
            self._token.run_sync_soon(self._call_on_trouble, kind, details)

    def _call_on_trouble(self, kind: str, details: dict[str, Any]) -> None:
        try:
            self._on_trouble(kind, details)
        except Exception:  # trio would end the whole program for an exception here
            _logger.exception("event callback for %s failed", kind)

    async def aclose(self) -> None:
        """Write what waits and close the file; gives up after ``close_timeout``, which is real time."""
        self._writer.refuse_more()
        try:
            with trio.CancelScope(shield=True):
                has_ended = await self._finish(time.monotonic() + self._settings.close_timeout)
        finally:
            self._writer.close()
            self._has_ended = True
            self._wake()
        if not has_ended:
            rows = self._writer.statistics().rows_waiting
            _logger.error("the store %s does not close; %d rows may be lost", self._path, rows)

    async def _finish(self, until: float) -> bool:
        """Write what waits, once more if the disk refuses, and close the file; False = the disk does not answer."""
        limiter = trio.CapacityLimiter(1)
        while self._writer.begin_last():
            wait = partial(self._thread.result, until - time.monotonic())
            result = await trio.to_thread.run_sync(wait, limiter=limiter)
            if result is None:
                return False
            if not self._writer.finish_last(result):
                break
        close = partial(self._thread.close, self._backlog.changes, max(0.0, until - time.monotonic()))
        return await trio.to_thread.run_sync(close, limiter=limiter)


@asynccontextmanager
async def open_store(
    path: Path,
    settings: StoreSettings,
    *,
    on_trouble: OnTrouble,
    clock: Callable[[], float] = time.time,
    connect: Connect = connect_to,
) -> AsyncIterator[Store]:
    """The store in that file, made if there is none; leaving the block writes what waits. Raises StoreUnusable.

    ``on_trouble`` is called on the event loop with ``store_degraded``, ``store_recovered`` or ``store_rows_refused``
    and facts about it. ``clock`` is wall time, by which old events are deleted.
    """

    def opening() -> tuple[OpenedDatabase, Maintenance]:
        opened = open_database(path, clock=clock, connect=connect)
        opened.database.set_synchronous(settings.synchronous)
        return opened, Maintenance(opened.database, settings, clock=clock, monotonic=time.monotonic)

    opened, maintenance = await trio.to_thread.run_sync(opening)
    store = Store(opened, path, settings, maintenance=maintenance, connect=connect, on_trouble=on_trouble)
    try:
        yield store
    finally:
        await store.aclose()


class StoredDocuments:
    """Implements ``heartbeat.ports.Documents``. Both raise PoolClosed, and ``load`` StoreUnusable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.load = store.read_documents

    def put(self, kind: str, key: str, body: bytes | None) -> "PendingWrite":
        """Keep a body, or remove it (None); the result waits until that is durable."""
        self._store.put_document(kind, key, body)
        return PendingWrite(self._store)


class PendingWrite:
    """Awaited, it waits until what was put before is durable, or the disk refuses; need not be awaited."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait for the flush."""
        yield from self._store.flush().__await__()


_SWITCH_INTERVAL = 50e-6
"""Shorter than a round of a busy event loop.

A round releases the interpreter for a moment, too short for a thread that has to wake up first, which then waits
again. With Python's own 5 ms the writer, which needs the interpreter a dozen times for a commit, can starve beside such
a loop: commits of 200 ms, some of 8 s, where they take 2 ms with this.
"""


def set_switch_interval() -> None:
    """For the whole process; the application calls it, before its event loop begins."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
