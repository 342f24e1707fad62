from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from errors import PoolClosed
from store.backlog import WriteBacklog, WriteBatch, cost_of
from store.records import DocumentKey, EventRow, RunKey
from tests.store.rows import document, event, events, run, session


class Tables:
    """What the database holds once batches have been written: a model of it."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}
        self.runs: dict[RunKey, Any] = {}
        self.documents: dict[DocumentKey, Any] = {}
        self.events: list[EventRow] = []

    def write(self, batch: WriteBatch) -> None:
        for key in batch.sessions.removed:
            self.sessions.pop(key, None)
        self.sessions.update(batch.sessions.rows)
        for run_key in batch.runs.removed:
            self.runs.pop(run_key, None)
        self.runs.update(batch.runs.rows)
        for document_key in batch.documents.removed:
            self.documents.pop(document_key, None)
        self.documents.update(batch.documents.rows)
        self.events += batch.events


def written(backlog: WriteBacklog) -> Iterator[WriteBatch]:
    while (batch := backlog.begin_batch()) is not None:
        yield batch
        backlog.finish_batch()


def test_what_is_put_comes_out_in_one_batch() -> None:
    backlog = WriteBacklog(1000)
    backlog.put_session(session("a"))
    backlog.put_events(events(1, 4))
    backlog.put_run(run("r"))
    backlog.reserve(20_000)
    (batch,) = written(backlog)
    assert [row.seq for row in batch.events] == [1, 2, 3]
    assert (list(batch.sessions.rows), list(batch.runs.rows)) == (["a"], [("p", "s", "r")])
    assert (batch.reserved, batch.last_position, backlog.written) == (20_000, 6, 6)
    assert (backlog.cost, backlog.is_empty) == (0, True)


def test_much_is_cut_into_batches_in_the_order_in_which_it_came() -> None:
    backlog = WriteBacklog(10**9)
    for seq in range(1, 5):
        backlog.put_session(session("a", updated_at=float(seq)))
        backlog.put_events([event(seq, size=700_000)])
    batches = list(written(backlog))
    assert [[row.seq for row in batch.events] for batch in batches] == [[1, 2], [3, 4]]
    assert [batch.sessions.rows["a"].updated_at for batch in batches] == [2.0, 4.0]


def test_what_is_put_together_is_never_cut() -> None:
    backlog = WriteBacklog(10**9)
    backlog.put_events([event(1, size=1_100_000)])
    with backlog:
        backlog.put_run(run("r", outcome=b"x" * 1_100_000))
        with backlog:
            backlog.put_events([event(2)])
        assert backlog.begin_batch() is None, "a part of it would be written"
    backlog.put_events([event(3)])
    batches = list(written(backlog))
    (whole,) = (batch for batch in batches if batch.runs.rows)
    assert 2 in [row.seq for row in whole.events]
    assert [row.seq for batch in batches for row in batch.events] == [1, 2, 3]
    assert len(batches) == 3


def test_what_is_put_while_a_batch_is_being_written_is_another_one() -> None:
    backlog = WriteBacklog(1000)
    backlog.put_events([event(1)])
    first = backlog.begin_batch()
    backlog.put_events([event(2)])
    assert first is not None
    assert [row.seq for row in first.events] == [1]
    assert [row.seq for row in backlog.events()] == [1, 2]
    backlog.finish_batch()
    assert backlog.written == 1
    assert [row.seq for row in backlog.events()] == [2]


def test_a_batch_given_back_is_the_next_one() -> None:
    backlog = WriteBacklog(10**9)
    backlog.put_events([event(1)])
    backlog.begin_batch()
    backlog.put_events([event(2)])
    backlog.requeue_batch()
    assert [[row.seq for row in batch.events] for batch in written(backlog)] == [[1], [2]]


def test_a_session_that_is_deleted_and_made_again_is_new() -> None:
    backlog = WriteBacklog(1000)
    backlog.put_run(run("a"))
    backlog.put_run(run("b"))
    backlog.delete_runs([("p", "s", "a")])
    backlog.put_run(run("a", body_hash="new"))
    (batch,) = written(backlog)
    assert list(batch.runs.removed) == [("p", "s", "a")]
    assert [key[2] for key in batch.runs.rows] == ["b", "a"]


def test_no_batch_can_be_settled_that_nobody_took() -> None:
    with pytest.raises(RuntimeError, match="taken"):
        WriteBacklog(1).finish_batch()


def full(limit: int) -> WriteBacklog:
    backlog = WriteBacklog(limit)
    backlog.enable_limit()
    return backlog


def test_over_the_limit_the_oldest_events_are_given_up_and_counted() -> None:
    backlog = full(10 * cost_of(event(10)))
    backlog.put_events(events(10, 50))
    assert [row.seq for row in backlog.events()] == list(range(40, 50))
    assert (backlog.lost, backlog.purged_through) == (30, 39)
    (batch,) = written(backlog)
    assert batch.purged_through == 39


def test_what_waits_already_is_brought_under_the_limit_when_it_begins_to_count() -> None:
    backlog = WriteBacklog(10 * cost_of(event(10)))
    backlog.put_events(events(10, 50))
    backlog.enable_limit()
    assert [row.seq for row in backlog.events()] == list(range(40, 50))
    backlog.disable_limit()
    backlog.put_events(events(50, 60))
    assert len(backlog.events()) == 20


def test_deletions_of_runs_are_given_up_last_and_those_of_sessions_and_documents_never() -> None:
    backlog = full(2000)
    backlog.put_events([event(1)])
    for number in range(100):
        backlog.delete_session(f"s{number}")
        backlog.delete_document(("k", f"d{number}"))
        backlog.delete_runs([("p", "s", f"r{number}")])
    (batch,) = written(backlog)
    assert (len(batch.sessions.removed), len(batch.documents.removed)) == (100, 100)
    assert (len(batch.events), len(batch.runs.removed)) == (0, 0)


def test_documents_of_several_batches_become_one_row_of_each_key_when_memory_is_short() -> None:
    backlog = full(1000)
    backlog.put_document(document("a", body=b"1"))
    backlog.put_document(document("b", body=b"1"))
    backlog.begin_batch()
    backlog.put_document(document("a", body=b"2"))
    backlog.delete_document(("k", "b"))
    backlog.requeue_batch()
    backlog.put_events(events(1, 10))
    (batch,) = written(backlog)
    assert batch.documents.rows == {("k", "a"): document("a", body=b"2")}
    assert list(batch.documents.removed) == [("k", "b")]
    assert backlog.cost == 0


def test_events_that_come_during_an_attempt_are_kept_up_to_the_limit() -> None:
    limit = 10 * cost_of(event(10))
    backlog = full(limit)
    backlog.put_events(events(10, 20))
    backlog.begin_batch()
    backlog.put_events(events(20, 25))
    assert backlog.lost == 0
    backlog.requeue_batch()
    assert [row.seq for row in backlog.events()] == list(range(15, 25))
    assert (backlog.lost, backlog.cost) == (5, limit)


names = st.sampled_from("abc")
sizes = st.integers(0, 400)


class AnyStory(RuleBasedStateMachine):
    """Whatever is put, the tables end as if each change had been written alone, but for the events given up."""

    @initialize(tight=st.booleans())
    def begin(self, tight: bool) -> None:  # noqa: FBT001  # drawn by name
        self.backlog, self.tables, self.expected = WriteBacklog(3000), Tables(), Tables()
        if tight:
            self.backlog.enable_limit()
        self.put = 0

    @rule(key=names, size=sizes)
    def put_session(self, key: str, size: int) -> None:
        self.expected.sessions[key] = session(key, data=b"x" * size)
        self.backlog.put_session(self.expected.sessions[key])

    @rule(key=names)
    def delete_session(self, key: str) -> None:
        self.expected.sessions.pop(key, None)
        self.backlog.delete_session(key)

    @rule(name=names, size=sizes)
    def put_run(self, name: str, size: int) -> None:
        self.expected.runs["p", "s", name] = run(name, request=b"x" * size)
        self.backlog.put_run(self.expected.runs["p", "s", name])

    @precondition(lambda self: not self.backlog.is_limited)  # otherwise it may be given up
    @rule(name=names)
    def delete_run(self, name: str) -> None:
        self.expected.runs.pop(("p", "s", name), None)
        self.backlog.delete_runs([("p", "s", name)])

    @rule(key=names, size=sizes)
    def put_document(self, key: str, size: int) -> None:
        self.expected.documents["k", key] = document(key, body=b"x" * size)
        self.backlog.put_document(self.expected.documents["k", key])

    @rule(key=names)
    def delete_document(self, key: str) -> None:
        self.expected.documents.pop(("k", key), None)
        self.backlog.delete_document(("k", key))

    @rule(count=st.integers(1, 5), size=sizes)
    def put_events(self, count: int, size: int) -> None:
        self.backlog.put_events(events(self.put + 1, self.put + 1 + count, size=size))
        self.put += count

    @rule()
    def write(self) -> None:
        if (batch := self.backlog.begin_batch()) is not None:
            self.tables.write(batch)
            self.backlog.finish_batch()

    @rule()
    def fail(self) -> None:
        if self.backlog.begin_batch() is not None:
            self.backlog.requeue_batch()

    @invariant()
    def the_cost_is_that_of_what_waits(self) -> None:
        batches = list(self.backlog._batches())
        tables = [table for batch in batches for table in (batch.sessions, batch.runs, batch.documents)]
        rows = [row for batch in batches for row in batch.events]
        cost = sum(cost_of(row) for row in rows) + sum(cost_of(row) for table in tables for row in table.rows.values())
        assert self.backlog.cost == cost + 200 * sum(len(table.removed) for table in tables)
        assert not rows or not self.backlog.is_limited or cost <= 3000

    @invariant()
    def what_is_not_written_yet_is_known(self) -> None:
        known = {**self.tables.documents}
        for key, body in self.backlog.documents("k").items():
            known.pop(("k", key), None)
            if body is not None:
                known["k", key] = document(key, body=body)
        assert known == self.expected.documents
        assert self.backlog.documents("another") == {}

    def teardown(self) -> None:
        for batch in written(self.backlog):
            self.tables.write(batch)
        assert (self.tables.sessions, self.tables.runs) == (self.expected.sessions, self.expected.runs)
        assert self.tables.documents == self.expected.documents
        kept = [row.seq for row in self.tables.events]
        assert kept == sorted(kept)
        assert len(kept) + self.backlog.lost == self.put
        assert self.backlog.purged_through == max({*range(1, self.put + 1)}.difference(kept), default=0)
        assert (self.backlog.cost, self.backlog.written) == (0, self.backlog.position)


AnyStory.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
TestAnyStory = AnyStory.TestCase


def test_a_closed_backlog_stays_closed_when_its_last_batch_comes_back() -> None:
    is_closed = False

    def refuse_once_closed() -> None:
        if is_closed:
            raise PoolClosed("closed")

    backlog = WriteBacklog(1_000, on_open=refuse_once_closed)
    backlog.put_events([event(1, size=900)])
    backlog.begin_batch()
    backlog.put_events([event(2, size=900)])
    is_closed = True
    backlog.close_batch()
    backlog.requeue_batch()
    backlog.enable_limit()
    with pytest.raises(PoolClosed):
        backlog.put_session(session("a"))
