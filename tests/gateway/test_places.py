import pytest
import trio
import trio.testing
from trio.testing import MockClock

from errors import PoolSaturated
from gateway.places import Lanes
from gateway.settings import GatewaySettings


async def stay(lanes: Lanes, session: str, name: str, log: list[str], leave: trio.Event) -> None:
    async with lanes.join(session):
        log.append(name)
        await leave.wait()


async def test_runs_of_one_session_go_one_after_the_other_in_order(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    lanes, log = Lanes(GatewaySettings()), list[str]()
    leaves = [trio.Event() for _ in range(3)]
    for number, leave in enumerate(leaves):
        nursery.start_soon(stay, lanes, "s", str(number), log, leave)
        await trio.testing.wait_all_tasks_blocked()
    for number, leave in enumerate(leaves):
        assert log == [str(n) for n in range(number + 1)]
        leave.set()
        await trio.testing.wait_all_tasks_blocked()
    assert lanes.depth("s") == 0


async def test_sessions_do_not_wait_for_each_other(nursery: trio.Nursery) -> None:
    lanes, log, leave = Lanes(GatewaySettings()), list[str](), trio.Event()
    nursery.start_soon(stay, lanes, "a", "a", log, leave)
    nursery.start_soon(stay, lanes, "b", "b", log, leave)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(log) == ["a", "b"]
    leave.set()


async def test_a_waiter_that_gives_up_is_passed_over(nursery: trio.Nursery) -> None:
    lanes, log, first, last = Lanes(GatewaySettings()), list[str](), trio.Event(), trio.Event()
    nursery.start_soon(stay, lanes, "s", "first", log, first)
    await trio.testing.wait_all_tasks_blocked()
    async with trio.open_nursery() as giving_up:
        giving_up.start_soon(stay, lanes, "s", "gone", log, last)
        await trio.testing.wait_all_tasks_blocked()
        giving_up.cancel_scope.cancel()
    nursery.start_soon(stay, lanes, "s", "last", log, last)
    await trio.testing.wait_all_tasks_blocked()
    first.set()
    await trio.testing.wait_all_tasks_blocked()
    assert log == ["first", "last"]
    last.set()


async def test_a_lane_handed_to_someone_who_gives_up_in_that_moment_is_handed_on(nursery: trio.Nursery) -> None:
    lanes, log, first, last = Lanes(GatewaySettings()), list[str](), trio.Event(), trio.Event()
    nursery.start_soon(stay, lanes, "s", "first", log, first)
    await trio.testing.wait_all_tasks_blocked()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:

            async def wait_in_scope() -> None:
                await stay(lanes, "s", "second", log, last)

            inner.start_soon(wait_in_scope)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(stay, lanes, "s", "third", log, last)
            await trio.testing.wait_all_tasks_blocked()
            first.set()
            scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert log[-1] == "third"
    last.set()


async def test_a_full_session_is_refused_and_others_are_not(nursery: trio.Nursery) -> None:
    lanes, log, leave = Lanes(GatewaySettings(session_queue=2)), list[str](), trio.Event()
    for number in range(3):
        nursery.start_soon(stay, lanes, "s", str(number), log, leave)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(PoolSaturated, match="already has 2 runs waiting"):
        lanes.join("s")
    lanes.join("other")
    leave.set()


async def test_all_runs_together_are_bounded(nursery: trio.Nursery) -> None:
    lanes, log, leave = Lanes(GatewaySettings(pending_runs=2)), list[str](), trio.Event()
    for session in ("a", "b"):
        nursery.start_soon(stay, lanes, session, session, log, leave)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(PoolSaturated, match=r"pending_runs"):
        lanes.join("c")
    leave.set()
