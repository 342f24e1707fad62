"""What ten thousand agents cost: nothing while nobody is due, and a few wake-ups a second while they beat."""

import msgspec
import trio
from trio.testing import MockClock

from heartbeat.records import BeatOutcome
from heartbeat.service import Heartbeat
from heartbeat.wake import WakeReason
from tests.heartbeat.house_around import ON, World
from wire.units import Seconds

MANY = 10_000


class Counted:
    """How often the task that keeps time wakes up."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.steps = 0
        self._step = heartbeat._step
        heartbeat._step = self._counted  # type: ignore[method-assign]  # a look from outside

    def _counted(self, nursery: trio.Nursery) -> None:
        self.steps += 1
        self._step(nursery)


async def many(world: World, every: float) -> Heartbeat:
    settings = msgspec.structs.replace(ON, every=Seconds(every))
    return await world.open({f"a{number}": settings for number in range(MANY)})


async def test_an_hour_in_which_nobody_is_due_is_one_long_sleep(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    heartbeat = await many(World(), 86_400)
    counted = Counted(heartbeat)
    await nursery.start(heartbeat.run)
    await trio.sleep(3600)
    assert counted.steps == 1
    assert len(nursery.child_tasks) == 1


async def test_an_hour_of_ten_thousand_agents(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    world = World()
    world.run_time = 0.1
    heartbeat = await many(world, 1800)
    counted = Counted(heartbeat)
    await nursery.start(heartbeat.run)
    await trio.sleep(3600 * 1.1 + 2)
    beats = [status.counts for status in heartbeat.status()]
    assert all(set(counts) == {BeatOutcome.SILENT} and counts[BeatOutcome.SILENT] in (2, 3) for counts in beats)
    assert counted.steps <= 3600 * 4
    assert counted.steps < len(world.started)


async def test_a_wake_of_all_of_them_at_once_reaches_every_one_and_no_more_run_than_there_is_room_for(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    heartbeat = await many(world, 86_400)
    await nursery.start(heartbeat.run)
    for number in range(MANY):
        world.inject("event", session=f"agent:a{number}:main:main")
        heartbeat.wake(f"a{number}", WakeReason.EXEC)
    await trio.sleep(0.5)
    assert len(world.started) == 256
    await trio.sleep(MANY / 256 + 2)
    assert {request.agent for request in world.started} == {f"a{number}" for number in range(MANY)}
    assert len(world.started) == MANY
