"""What thousands of agents cost: nothing while none is due, and a few wake-ups a second while they beat."""

import pytest
import trio

from heartbeat.records import BeatOutcome
from heartbeat.service import Heartbeat
from heartbeat.wake import WakeReason
from tests.heartbeat.worlds import World, but
from wire.units import Seconds

MANY = 1000


async def many(world: World, every: float, monkeypatch: pytest.MonkeyPatch) -> tuple[Heartbeat, list[None]]:
    """The service, and one entry for each time its timer task wakes up."""
    heartbeat = await world.open({f"a{number}": but(every=Seconds(every)) for number in range(MANY)})
    steps, step = list[None](), heartbeat._step

    def counted(nursery: trio.Nursery) -> None:
        steps.append(None)
        step(nursery)

    monkeypatch.setattr(heartbeat, "_step", counted)
    assert world.nursery is not None
    await world.nursery.start(heartbeat.run)
    return heartbeat, steps


async def test_an_hour_in_which_no_agent_is_due_is_one_long_sleep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, steps = await many(world, 86_400, monkeypatch)
    await trio.sleep(3600)
    assert len(steps) == 1


async def test_beats_of_many_agents_come_up_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run_time = 0.1
    heartbeat, steps = await many(world, 300, monkeypatch)
    await trio.sleep(600 * 1.1 + 2)
    beats = [status.counts for status in heartbeat.status()]
    assert all(set(counts) == {BeatOutcome.SILENT} and counts[BeatOutcome.SILENT] in (2, 3) for counts in beats)
    assert len(steps) < len(world.started) / 1.5


async def test_wakes_at_once_reach_every_agent_and_a_bounded_number_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat, _ = await many(world, 86_400, monkeypatch)
    for number in range(MANY):
        world.inject("event", session=f"agent:a{number}:main:main")
        heartbeat.wake(f"a{number}", WakeReason.EXEC)
    await trio.sleep(0.5)
    assert len(world.started) == 256
    await trio.sleep(MANY / 256 + 2)
    assert sorted(request.agent for request in world.started) == sorted(f"a{number}" for number in range(MANY))
