"""The writer and its thread where maintenance finds the file gone at the same time as a batch is written."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from store.backlog import WriteBacklog, WriteBatch
from store.records import FileLost
from store.settings import StoreSettings
from store.writer import Writer
from store.writer_thread import BatchResult, Handover, WriterThread
from tests.store.rows import event

LOST = BatchResult(error=FileLost("the file was removed"), is_maintenance=True)


class ScriptedThread:
    """Answers with ``results``."""

    path = Path("pool.db")
    purged_through = 0

    def __init__(self) -> None:
        self.results: list[BatchResult] = []
        self.is_notice_wanted = False

    def write(self, batch: WriteBatch) -> None:
        assert batch.changes

    def result(self, timeout: float) -> BatchResult | None:
        assert timeout >= 0
        return self.results.pop(0) if self.results else None

    def request_notice(self, *, wanted: bool) -> None:
        self.is_notice_wanted = wanted


@pytest.fixture
def thread() -> ScriptedThread:
    return ScriptedThread()


@pytest.fixture
def writer(thread: ScriptedThread) -> Any:
    ignore: Any = lambda *_: None  # noqa: E731
    writer = Writer(cast("WriterThread", thread), StoreSettings(), on_change=ignore, on_trouble=ignore, on_stall=ignore)
    yield writer
    writer.close()


def test_a_batch_is_waited_for_also_where_maintenance_has_a_result_before_it(
    writer: Writer, thread: ScriptedThread
) -> None:
    thread.results = [LOST]
    writer.backlog.put_event(event(1))
    writer.commit()
    assert (thread.is_notice_wanted, writer.disk.is_degraded) == (True, True)
    thread.results = [BatchResult(rows=1)]
    writer.collect()
    assert (writer.backlog.is_empty, writer.disk.is_degraded) == (True, False)


def test_the_last_batch_is_waited_for_also_then(writer: Writer) -> None:
    writer.backlog.put_event(event(1))
    writer.is_closing = True
    assert writer.begin_last()
    assert writer.finish_last(LOST)
    assert writer.begin_last(), "it is still being written"
    assert writer.finish_last(BatchResult(rows=1))
    assert not writer.begin_last()


def test_a_batch_handed_over_before_the_file_was_found_gone_is_not_written_to_it() -> None:
    written: list[WriteBatch] = []

    def fail(*_: Any, **__: Any) -> None:
        raise FileLost("the file was removed")

    database: Any = SimpleNamespace(write=written.append, reopen=fail, close=lambda: None, path=Path("pool.db"))
    maintenance: Any = SimpleNamespace(is_due=lambda: True, catch_up=fail, step=lambda: False, interval=10.0)
    thread = WriterThread(database, maintenance, notify=lambda: None)
    backlog = WriteBacklog(1000)
    for seq in (1, 2):
        backlog.put_events([event(seq)])
        batch = backlog.begin_batch()
        assert batch is not None
        thread.write(batch)
        backlog.finish_batch()
    thread.start()
    first, lost, second = (thread.result(10) for _ in range(3))
    assert thread.close(1, 10)
    assert first is not None
    assert lost is not None
    assert second is not None
    assert (first.error, lost.is_maintenance, isinstance(second.error, FileLost)) == (None, True, True)
    assert len(written) == 1


def test_what_is_handed_over_to_another_thread_arrives_in_order_and_is_waited_for() -> None:
    there, back = Handover[int](), Handover[int]()
    assert (there.get(0), there.get(0.001), len(there)) == (None, None, 0)

    def answer() -> None:
        while number := there.get(None):
            back.put(-number)

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(1, 500):
        there.put(number)
    assert [back.get(10) for _ in range(1, 500)] == [-number for number in range(1, 500)]
    there.put(0)
    thread.join(10)
    assert (there.get(0), back.get(0)) == (None, None)
    there.close()
    back.close()
