"""Listings: filters, order, limit, and names alone."""

from typing import get_args, get_type_hints

import pytest

from commands.listing import SortKey, sort_records
from commands.nodes import NODE_STATES
from commands.workers import WORKER_STATES
from errors import NoWorker, PoolError, UsageError, WorkerExited
from pool.nodes import NodeStatus
from pool.transitions import WorkerState
from tests.commands.documents import AGENTS, DOCUMENT, JOB, NODES, SESSION_VIEWS, worker
from tests.commands.fake_pool import Bench

WORKERS = [
    worker("w1", state="leased", age=5.0, rss=None),
    worker("w2", age=9.0, rss=7, agent="ops"),
    worker("w3", age=1.0, rss=9),
]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("workers -q", ["w1", "w2", "w3"]),
        ("workers list -q --state idle", ["w2", "w3"]),
        ("workers -q --state idle --state leased --limit 2", ["w1", "w2"]),
        ("workers -q --agent ops", ["w2"]),
        ("workers list -q --sort age", ["w2", "w1", "w3"]),
        ("workers -q --sort rss", ["w3", "w2", "w1"]),
        ("workers --sort age list -q --limit 1", ["w2"]),
        ("ps -q --state stopping", []),
        ("sessions -q", ["ada", "bob"]),
        ("sessions -q --state approval", ["ada"]),
        ("sessions list --state idle -q", ["bob"]),
        ("sessions --state working -q", []),
        ("ls -q --sort key --limit 1", ["ada"]),
        ("nodes -q", ["gpu-1", "gpu-2", "gpu-3", "old"]),
        ("nodes list -q --group gpu --state up --state lost", ["gpu-1", "gpu-3"]),
        ("nodes -q --sort free --limit 2", ["gpu-2", "gpu-1"]),
        ("processes -q -s ada", ["calm-fox"]),
        ("processes -s ada list -q", ["calm-fox"]),
    ],
)
def test_a_listing_shows_what_is_asked_for_in_the_order_that_is_asked_for(
    bench: Bench, words: str, names: list[str]
) -> None:
    bench.pool.fixed = {
        "workers.list": WORKERS,
        "nodes.list": NODES,
        "process": {"sessions": [{"session_id": "calm-fox", "status": "failed"}]},
    }
    result = bench.run(*words.split())
    assert (result.exit_code, result.stdout.splitlines()) == (0, names), result.output


@pytest.mark.parametrize("error", [UsageError, NoWorker, WorkerExited])
def test_a_worker_that_ends_while_its_commands_are_asked_for_has_none(bench: Bench, error: type[PoolError]) -> None:
    bench.pool.fixed = {
        "workers.list": [worker("w1", session="ada", background=1)],
        "process": error("the worker is gone"),
    }
    result = bench.run("processes", "-q")
    assert (result.exit_code, result.stdout) == (0, ""), result.output


def test_the_json_of_a_filtered_listing_has_the_same_records_as_they_came(bench: Bench) -> None:
    assert bench.json("sessions", "--state", "idle") == SESSION_VIEWS[1:]
    assert bench.json("workers", "--sort", "turn", "--limit", "1") == DOCUMENT["workers"][:1]


def test_equal_records_keep_their_order_and_those_without_a_value_come_last() -> None:
    records: list[dict[str, int | None]] = [{"n": 1, "v": None}, {"n": 2, "v": 1}, {"n": 3, "v": 1}, {"n": 4, "v": 2}]
    key = SortKey(lambda record: record["v"], is_descending=True)
    assert [record["n"] for record in sort_records(records, key)] == [4, 2, 3, 1]
    assert sort_records(records, None) == records


def test_the_states_to_filter_by_are_those_that_workers_and_nodes_have() -> None:
    assert set(NODE_STATES) == set(get_args(get_type_hints(NodeStatus)["state"]))
    assert set(WORKER_STATES) == set(WorkerState) - {WorkerState.DEAD}


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("ls", ("sessions.list", {})),
        ("session ls", ("sessions.list", {})),
        ("rm a --yes", ("sessions.delete", {"session": "a"})),
        ("ps", ("workers.list", {})),
        ("worker recycle w1", ("workers.recycle", {"worker": "w1"})),
        ("nodes ls", ("nodes.list", {})),
        ("nodes drain gpu-1 --timeout 30s", ("nodes.drain", {"node": "gpu-1", "timeout": 30.0})),
        ("nodes resume gpu-1", ("nodes.resume", {"node": "gpu-1"})),
        ("heartbeat status", ("heartbeat.status", {})),
        ("sessions get ada", ("sessions.get", {"session": "ada"})),
        ("cron get a", ("cron.get", {"id": "a"})),
        ("cron rm a", ("cron.delete", {"id": "a"})),
        ("cron remove a", ("cron.delete", {"id": "a"})),
    ],
)
def test_short_words_and_those_of_before_mean_the_same(bench: Bench, words: str, call: tuple[str, object]) -> None:
    bench.pool.fixed = {"heartbeat.status": AGENTS, "cron.get": JOB, "cron.delete": JOB}
    result = bench.run(*words.split())
    assert (result.exit_code, bench.pool.calls) == (0, [call]), result.output
