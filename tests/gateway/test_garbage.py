"""A turn leaves nothing that only the garbage collector can free."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from trio.testing import wait_all_tasks_blocked

from tests.gateway.callers import RecordingCaller
from tests.gateway.world import World


@contextmanager
def keeping_garbage() -> Iterator[list[object]]:
    """The collector waits until the end, and then keeps what it has found in the list."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_what_a_turn_took_is_free_at_its_end_without_the_garbage_collector(world: World) -> None:
    await _take_turn(world, "first")
    with keeping_garbage() as found:
        await _take_turn(world, "second")
    assert found == []


async def _take_turn(world: World, run: str) -> None:
    outcome = await world.call("prompt", RecordingCaller(world.nursery), text="hello", session="alice", run=run)
    assert outcome["status"] == "ok"
    await wait_all_tasks_blocked()
