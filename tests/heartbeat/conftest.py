"""A world, and supervisors that live in it one after the other."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from heartbeat.service import Heartbeat
from heartbeat.settings import HeartbeatSettings
from tests.heartbeat.house_around import ON, Serve, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def serve(world: World, nursery: trio.Nursery) -> Serve:
    lives: list[trio.CancelScope] = []

    async def live(
        agents: dict[str, HeartbeatSettings], *, task_status: trio.TaskStatus[Heartbeat] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as scope:
            lives.append(scope)
            heartbeat = await world.open(agents)
            task_status.started(heartbeat)
            await heartbeat.run()

    async def start(settings: HeartbeatSettings = ON, **others: HeartbeatSettings) -> Heartbeat:
        """The supervisor begins, and the one before it, if there was one, ends."""
        for scope in lives:
            scope.cancel()
        await wait_all_tasks_blocked()
        heartbeat: Heartbeat = await nursery.start(live, {"main": settings, **others})
        return heartbeat

    return start
