"""The wall clock is set an hour forward or back, at any moment of a life or between two: nobody notices."""

import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from store.settings import StoreSettings
from store.store import open_store
from tests.acceptance.every_way import HANDED, LEFT, PATIENCE, FirstLife, next_life, rows, torn
from tests.gateway.world import WholeStore, World, open_world
from wire.units import Seconds

HOUR = 3600.0
BOTH_WAYS = pytest.mark.parametrize("jump", [HOUR, -HOUR])
TWO_HOURS = StoreSettings(events_age=Seconds(2 * HOUR), stall=PATIENCE)


class Wall:
    """Unix time, which jumps once it has been read ``readings`` times. ``tick``: what it goes by otherwise."""

    def __init__(
        self, readings: float = math.inf, jump: float = 0.0, *, tick: Callable[[], float] = time.monotonic
    ) -> None:
        self.readings = 0
        self._tick = tick
        self.offset = 0.0
        self._jumps_at = readings
        self._jump = jump

    def __call__(self) -> float:
        self.readings += 1
        if self.readings == self._jumps_at:
            self.jump(self._jump)
        return 1_700_000_000 + self._tick() + self.offset

    def jump(self, seconds: float) -> None:
        self.offset += seconds


async def replayed(world: World) -> list[dict[str, Any]]:
    cursor = world.gateway.bus.open_cursor(since=0)
    events: list[dict[str, Any]] = []
    while cursor.position < world.gateway.bus.head:
        events += msgspec.json.decode(b"[" + (await cursor.read()).body + b"]")
    return events


async def live_through(directory: Path, wall: Wall) -> dict[str, str]:
    """Two lives of every kind of message; the reasons of their ends, all that concerns the jump checked."""
    troubles: list[str] = []
    async with (
        open_store(
            directory / "pool.db", TWO_HOURS, on_trouble=lambda kind, _facts: troubles.append(kind), clock=wall
        ) as store,
        open_world(directory, store=store, clock=wall, queue={"debounce": 0.001}) as world,
    ):
        life = FirstLife(world)
        await life.live()
        seqs = [event["seq"] for event in await replayed(world)]
        assert seqs == sorted(set(seqs))
        before = {event["seq"]: event for event in await replayed(world) if event["type"] == "done"}
    assert Counter(heard.run_id for heard in life.handed) == Counter(HANDED)
    async with next_life(directory, TWO_HOURS, wall) as world:
        with trio.fail_after(10):
            ends = {run_id: await world.run(run_id).wait() for run_id in (*life.outcomes, *LEFT)}
        events = {event["seq"]: event for event in await replayed(world)}
        assert before.items() <= events.items()
        assert list(events) == sorted(events)
        assert world.launcher.prompts == ["say m13"]
    for run_id, outcome in life.outcomes.items():
        assert msgspec.json.encode(outcome) == msgspec.json.encode(ends[run_id])
    assert troubles == []
    assert list(torn(directory)) == []
    assert rows(directory, "SELECT count(*) FROM runs WHERE state != 'ended'") == [(0,)]
    return {run_id: outcome.reason.value for run_id, outcome in ends.items()}


@BOTH_WAYS
async def test_a_jump_at_any_moment_changes_nothing(tmp_path: Path, jump: float) -> None:
    def directory(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    steady = Wall()
    ends = await live_through(directory("steady"), steady)
    assert set(ends.values()) == {"completed", "interrupted", "error"}
    assert steady.readings > 50
    for readings in range(1, steady.readings, 7):
        assert await live_through(directory(str(readings)), Wall(readings, jump)) == ends


@BOTH_WAYS
async def test_a_timeout_is_as_long_as_it_was(tmp_path: Path, autojump_clock: MockClock, jump: float) -> None:
    wall = Wall(tick=trio.current_time)
    async with open_world(tmp_path, clock=wall) as world:
        began = trio.current_time()
        run = await world.begin("hang", timeout=100)
        wall.jump(jump)
        assert (await run.wait()).reason == "timeout"
        assert trio.current_time() - began == 100


@BOTH_WAYS
async def test_outcomes_and_keys_are_kept_for_their_time_and_no_longer(
    tmp_path: Path, autojump_clock: MockClock, jump: float
) -> None:
    wall = Wall(tick=trio.current_time)
    async with open_world(tmp_path, clock=wall, outcome_age=600, idempotency_window=300) as world:
        await world.ask("hello", run="k1")
        wall.jump(jump)
        await trio.sleep(299)
        assert (await world.ask("hello", run="k1")).text == "hello"
        assert world.launcher.prompts == ["hello"]
        await trio.sleep(300)
        assert (await world.call("agent.wait", run_id="k1"))["text"] == "hello"
        await trio.sleep(2)
        with pytest.raises(UsageError):
            world.run("k1")


@BOTH_WAYS
async def test_after_a_jump_between_two_lives_outcomes_and_keys_are_still_known(
    tmp_path: Path, autojump_clock: MockClock, jump: float
) -> None:
    wall, store = Wall(tick=trio.current_time), WholeStore()
    async with open_world(tmp_path, store=store, clock=wall) as world:
        await world.ask("hello", run="k1")
        await world.begin("hang", run="k2")
        await world.begin("say later", run="k3", queue="followup")
        left = store.after_a_crash()
    wall.jump(jump)
    async with open_world(tmp_path, store=left, clock=wall) as world:
        assert (await world.ask("hello", run="k1")).text == "hello"
        assert world.run("k2").outcome is not None
        await wait_all_tasks_blocked()
        assert world.launcher.prompts == ["say later"]
        await trio.sleep(59)
        assert (await world.call("agent.wait", run_id="k1"))["text"] == "hello"
