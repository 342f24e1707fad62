"""Health, readiness, status and the figures for Prometheus."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doors.http.anonymous import FREE_READS
from pool import PoolStatistics, stimuli
from tests.doors.http.conftest import Connect, Open
from tests.gateway.world import World


@pytest.fixture(autouse=True)
def facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as a supervisor knows of itself."""
    monkeypatch.setattr("tests.gateway.world.Supervisor.facts", lambda _: {"pid": 1, "uptime": 2.5})


async def test_a_pool_that_begins_no_turns_is_not_ready(
    open_door: Open, connect: Connect, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doors.http.services._STATUS_SECONDS", 0.0)
    peer = await connect(await open_door(world.methods))
    assert (await peer.call("GET", "/ready")).status == 200
    world.gateway.pool.submit(stimuli.Pause())
    answer = await peer.call("GET", "/ready")
    assert (answer.status, answer.error["message"]) == (503, "the pool is paused and begins no turns")
    assert (await peer.call("GET", "/health")).status == 200


async def test_asking_for_readiness_again_and_again_looks_at_the_pool_once(
    open_door: Open, connect: Connect, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    statistics = world.gateway.pool.statistics

    def counted() -> PoolStatistics:
        nonlocal asked
        asked += 1
        return statistics()

    monkeypatch.setattr(world.gateway.pool, "statistics", counted)
    peer = await connect(await open_door(world.methods), token=None)
    for _ in range(FREE_READS):
        assert (await peer.call("GET", "/ready")).status == 200
    assert asked == 1


async def test_the_status_is_that_of_the_control_socket(open_door: Open, connect: Connect, world: World) -> None:
    peer = await connect(await open_door(world.methods))
    answer, expected = await peer.call("GET", "/status"), await world.call("status")
    assert answer.json.keys() == expected.keys()
    assert answer.json["pool"] == expected["pool"]


async def test_the_figures_are_those_of_the_status(open_door: Open, connect: Connect, world: World) -> None:
    peer = await connect(await open_door(world.methods))
    await world.ask("hello")
    await world.begin("hang", "bob")
    answer = await peer.call("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert found["pool_up",] == 1
    assert found["pool_workers", "leased"] == 1
    assert found["pool_spawned_total",] == world.gateway.pool.statistics().counters.spawned
    assert found["pool_runs",] == 1
    assert found["pool_sessions",] == 2
    assert found["pool_turn_seconds_count",] == 1
    assert found["pool_acquire_seconds", "0.99"] > 0
    assert found["pool_event_seq",] == world.gateway.bus.head
    assert found["pool_http_connections",] == 1
    assert "alice" not in answer.body.decode(), "sessions are no labels"


async def test_every_figure_says_what_it_is(open_door: Open, connect: Connect, world: World) -> None:
    text = (await (await connect(await open_door(world.methods))).call("GET", "/metrics")).body.decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert names == set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    assert len(names) > 40
    assert all(name.startswith("pool_") for name in names)


async def test_openmetrics_is_spoken_where_it_is_wanted(open_door: Open, connect: Connect, world: World) -> None:
    peer = await connect(await open_door(world.methods))
    answer = await peer.call("GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")
