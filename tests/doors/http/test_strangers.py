import time

import pytest
import trio
import trio.testing

from doors.http.anonymous import (
    BURST_SECONDS,
    CPU_SHARE,
    FREE_READS,
    READ_PAUSE_SECONDS,
    AnonymousThrottle,
    ConnectionCost,
    run_metered,
)


@pytest.fixture
async def strangers(autojump_clock: trio.testing.MockClock, nursery: trio.Nursery) -> AnonymousThrottle:
    made = AnonymousThrottle()
    nursery.start_soon(made.run)
    return made


def expense_of(strangers: AnonymousThrottle, seconds: float) -> ConnectionCost:
    expense = ConnectionCost(strangers)
    expense.add(seconds)
    return expense


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_what_is_overdrawn_is_waited_for(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle
) -> None:
    expense = expense_of(strangers, BURST_SECONDS)
    await expense.acquire()
    assert trio.current_time() == 0.0
    expense.add(1.0)
    await expense.acquire()
    assert trio.current_time() == pytest.approx(1.0 / CPU_SHARE)


async def test_turns_go_to_whoever_has_cost_least_and_among_equals_to_the_first(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle, nursery: trio.Nursery
) -> None:
    served: list[str] = []

    async def visit(name: str, expense: ConnectionCost) -> None:
        await expense.acquire()
        served.append(name)
        expense.add(0.01)

    strangers.charge(BURST_SECONDS)
    for name, cost in (("old", 0.5), ("first", 0.001), ("second", 0.001), ("newest", 0.0)):
        nursery.start_soon(visit, name, expense_of(strangers, cost))
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(60)
    assert served == ["newest", "first", "second", "old"]


async def test_who_shows_a_token_waits_no_more_and_what_it_cost_is_given_back(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle
) -> None:
    known = expense_of(strangers, 5.0)
    known.refund()
    known.add(5.0)
    known.refund()
    await known.acquire()
    await expense_of(strangers, 0.01).acquire()
    assert trio.current_time() == 0.0


async def test_after_its_first_pieces_each_further_one_is_looked_for_after_a_pause_until_it_shows_a_token(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle
) -> None:
    expense = ConnectionCost(strangers)
    for _ in range(FREE_READS):
        await expense.pause()
    assert trio.current_time() == 0.0
    await expense.pause()
    assert trio.current_time() == READ_PAUSE_SECONDS
    expense.refund()
    await expense.pause()
    assert trio.current_time() == READ_PAUSE_SECONDS


async def test_a_connection_that_ends_while_it_waits_takes_no_turn(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle, nursery: trio.Nursery
) -> None:
    strangers.charge(BURST_SECONDS + CPU_SHARE)
    with trio.move_on_after(0.5):
        await strangers.acquire(0.0)
    assert trio.current_time() == 0.5
    await strangers.acquire(0.0)
    assert trio.current_time() == pytest.approx(1.0)


async def test_only_the_own_steps_of_what_is_measured_count(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle, nursery: trio.Nursery
) -> None:
    expense = ConnectionCost(strangers)
    other_has_worked = trio.Event()

    async def other() -> None:
        burn(0.1)
        other_has_worked.set()

    async def doing() -> None:
        burn(0.01)
        await other_has_worked.wait()
        burn(0.01)

    nursery.start_soon(other)
    await run_metered(doing(), expense)
    assert 0.02 <= expense.spent < 0.1


async def test_what_is_measured_can_be_cancelled_and_fails_as_without(
    autojump_clock: trio.testing.MockClock, strangers: AnonymousThrottle
) -> None:
    expense = ConnectionCost(strangers)
    left: list[str] = []

    async def doing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append("cleaned up")

    async def failing() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a defect")

    with trio.move_on_after(1) as scope:
        await run_metered(doing(), expense)
    assert scope.cancelled_caught
    assert left == ["cleaned up"]
    with pytest.raises(ValueError, match="a defect"):
        await run_metered(failing(), expense)
