"""The engines beside a pool: run again where they cannot go on, and told what waiting requests could use."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from cluster.engines.engine import Desk, EngineLost
from cluster.service import ClusterService
from cluster.settings import ClusterSettings, NodeSettings, RaySettings
from pool.launcher import LocalLauncher
from pool.settings import PoolSettings
from pool.shell import Pool
from pool.stimuli import Capacity, Stimulus
from wire.units import Seconds

SETTINGS = ClusterSettings(nodes={"one": NodeSettings(ssh="one")}, ray=RaySettings(scale_after=Seconds(10)))


class PaperEngine:
    """Goes on for a number of seconds each time it is run; notes when, and what it hears."""

    name = "paper"

    def __init__(self, *lives: float) -> None:
        self._lives = iter(lives)
        self.begun: list[float] = []
        self.wanted: list[tuple[float, Mapping[str, int]]] = []

    async def run(self, desk: Desk) -> None:
        assert desk.dial is None
        self.begun.append(trio.current_time())
        await trio.sleep(next(self._lives, float("inf")))
        raise EngineLost("its head is gone")

    async def want(self, slots: Mapping[str, int]) -> None:
        await trio.lowlevel.checkpoint()
        self.wanted.append((trio.current_time(), slots))


class PaperPool:
    """As much of a pool as the service needs."""

    def __init__(self) -> None:
        self.told: list[Stimulus] = []
        self.submit: Callable[[Stimulus], None] = self.told.append
        self.demand: dict[str, int] = {}

    def slot_demand(self) -> dict[str, int]:
        return self.demand


class Place:
    def __init__(self, tmp_path: Path, engine: PaperEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cluster.service.configured_engines", lambda _settings: [engine])
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.pool = PaperPool()
        self.service = ClusterService(
            SETTINGS,
            PoolSettings(max=4),
            local=LocalLauncher(data_dir=tmp_path, use_cgroups=False),
            emit=lambda event, data: self.events.append((event, data)),
        )


@asynccontextmanager
async def served(tmp_path: Path, engine: PaperEngine, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Place, None]:
    place = Place(tmp_path, engine, monkeypatch)
    async with trio.open_nursery() as nursery:
        await nursery.start(place.service.run, cast("Pool", place.pool))
        yield place
        nursery.cancel_scope.cancel()


async def test_an_engine_that_cannot_go_on_is_run_again_after_a_pause_that_doubles_and_starts_over(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PaperEngine(0, 0, 0, 100)
    async with served(tmp_path, engine, monkeypatch) as place:
        began = trio.current_time()
        await trio.sleep(300)
        assert [at - began for at in engine.begun] == [0, 1, 3, 7, 108]
        assert [event for event, _ in place.events] == ["engine_lost"] * 4
        assert place.events[1][1] == {"engine": "paper", "reason": "its head is gone", "again_in": 2.0}
        assert place.pool.told == [Capacity({"": 4}, start_rate=100.0)]


async def test_engines_hear_what_waiting_requests_could_use_once_they_have_waited_and_when_none_does(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = PaperEngine()
    async with served(tmp_path, engine, monkeypatch) as place:
        began = trio.current_time()
        place.pool.demand = {"gpu": 3}
        place.service.on_pool_event("group_full", {"group": "gpu"})
        await trio.sleep(15)
        place.pool.demand = {}
        await trio.sleep(100)
        place.service.on_pool_event("worker_ready", {"worker": "w1"})
        await trio.sleep(100)
        assert [(at - began, slots) for at, slots in engine.wanted] == [(10, {"gpu": 3}), (20, {})]
        assert place.events == [("group_full", {"group": "gpu"}), ("worker_ready", {"worker": "w1"})]


async def test_other_settings_of_a_running_supervisor_change_the_slots_here_and_the_rate_of_starts(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, PaperEngine(), monkeypatch) as place:
        place.service.reconfigure(ClusterSettings(local_slots=9, start_rate=5.0), PoolSettings())
        assert place.pool.told[-1] == Capacity({"": 9}, start_rate=5.0)
        assert (place.service.local_slots, [node.slots for node in place.service.nodes()]) == (9, [9])
