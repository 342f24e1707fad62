"""Limits of the port, without a socket: who gives way, requests a second, CPU of connections without a token."""

import time
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from doors.http.connection import ReceiveQueue
from doors.http.limits import (
    BURST_SECONDS,
    CPU_SHARE,
    FREE_READS,
    READ_PAUSE_SECONDS,
    AnonymousThrottle,
    ConnectionCost,
    ConnectionLimiter,
    CpuBudget,
    Rank,
    RateLimiter,
    run_metered,
)


def test_strangers_give_way_before_those_who_rest_and_the_busy_never() -> None:
    crowd: ConnectionLimiter[str] = ConnectionLimiter()
    for name, rank in (("a", Rank.BUSY), ("b", Rank.IDLE), ("c", Rank.ANONYMOUS), ("d", Rank.ANONYMOUS)):
        crowd.set_rank(name, rank)
    crowd.set_rank("c", Rank.ANONYMOUS)
    left = []
    while (victim := crowd.eviction_candidate()) is not None:
        left.append(victim)
        crowd.remove(victim)
    assert (left, crowd.members()) == (["c", "d", "b"], ["a"])


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*Rank, None]))))
def test_the_crowd_is_as_large_as_those_who_came_and_have_not_gone(steps: list[tuple[int, Rank | None]]) -> None:
    crowd: ConnectionLimiter[int] = ConnectionLimiter()
    model: dict[int, Rank] = {}
    for member, rank in steps:
        if rank is None:
            crowd.remove(member)
            model.pop(member, None)
        else:
            crowd.set_rank(member, rank)
            model[member] = rank
        assert (len(crowd), set(crowd.members())) == (len(model), set(model))
        victim = crowd.eviction_candidate()
        assert (victim is None) == (set(model.values()) <= {Rank.BUSY})
        assert victim is None or Rank.ANONYMOUS not in model.values() or model[victim] is Rank.ANONYMOUS


def test_a_burst_has_twice_the_rate_and_then_the_rate_holds() -> None:
    rates = RateLimiter()
    assert [rates.acquire("a", 10, 100.0) for _ in range(20)] == [0.0] * 20
    assert rates.acquire("a", 10, 100.0) == pytest.approx(0.1)
    assert rates.acquire("b", 10, 100.0) == 0.0
    assert rates.acquire("a", 10, 100.11) == 0.0
    assert rates.acquire("a", 10, 100.11) > 0
    assert {RateLimiter().acquire("a", 0, 0.0) for _ in range(1000)} == {0.0}, "without a rate all may be done"


@given(st.lists(st.floats(0, 0.5), max_size=200), st.integers(1, 20))
def test_no_second_has_more_than_the_burst_and_the_rate(pauses: list[float], rate: int) -> None:
    rates, now, taken = RateLimiter(), 0.0, []
    for pause in pauses:
        now += pause
        if not rates.acquire("a", rate, now):
            taken.append(now)
    for begin in taken:
        assert sum(begin <= at < begin + 1 for at in taken) <= 3 * rate + 1


def test_keys_are_forgotten_when_there_are_too_many() -> None:
    rates = RateLimiter()
    for number in range(10_000):
        rates.acquire(f"address {number}", 1, 0.0)
    assert len(rates._full_at) <= 4096


def test_cpu_time_is_saved_up_to_the_burst_spent_given_back_and_comes_back_with_time() -> None:
    budget = CpuBudget(share=0.0625, burst=0.125, now=0.0)
    delays = []
    for spent, now in ((0.125, 0.0), (0.125, 0.0), (0, 1.5), (0, 2.5), (0.1875, 1000.0), (-5.0, 1000.0)):
        budget.spend(spent, now)
        delays.append(budget.delay(now))
    assert delays == [0.0, 2.0, 0.5, 0.0, 1.0, 0.0]
    budget.spend(0.1875, 1000.0)
    assert budget.delay(1000.0) == 1.0, "no more was given back than the burst"


@pytest.fixture
async def strangers(autojump_clock: MockClock, nursery: trio.Nursery) -> AnonymousThrottle:
    made = AnonymousThrottle()
    nursery.start_soon(made.run)
    return made


def cost_of(strangers: AnonymousThrottle, seconds: float) -> ConnectionCost:
    cost = ConnectionCost(strangers)
    cost.add(seconds)
    return cost


async def test_what_is_overdrawn_is_waited_for(autojump_clock: MockClock, strangers: AnonymousThrottle) -> None:
    cost = cost_of(strangers, BURST_SECONDS)
    await cost.acquire()
    assert trio.current_time() == 0.0
    cost.add(1.0)
    await cost.acquire()
    assert trio.current_time() == pytest.approx(1.0 / CPU_SHARE)


async def test_turns_go_to_the_connection_that_has_cost_least_and_among_equals_to_the_first(
    autojump_clock: MockClock, strangers: AnonymousThrottle, nursery: trio.Nursery
) -> None:
    served: list[str] = []

    async def visit(name: str, cost: ConnectionCost) -> None:
        await cost.acquire()
        served.append(name)
        cost.add(0.01)

    strangers.charge(BURST_SECONDS)
    for name, seconds in (("old", 0.5), ("first", 0.001), ("second", 0.001), ("newest", 0.0)):
        nursery.start_soon(visit, name, cost_of(strangers, seconds))
        await wait_all_tasks_blocked()
    await trio.sleep(60)
    assert served == ["newest", "first", "second", "old"]


async def test_a_connection_that_shows_a_token_waits_no_more_and_its_cost_is_given_back(
    autojump_clock: MockClock, strangers: AnonymousThrottle
) -> None:
    known = cost_of(strangers, 5.0)
    known.refund()
    known.add(5.0)
    known.refund()
    await known.acquire()
    await cost_of(strangers, 0.01).acquire()
    assert trio.current_time() == 0.0


async def test_after_its_first_pieces_each_further_one_is_looked_for_after_a_pause_until_it_shows_a_token(
    autojump_clock: MockClock, strangers: AnonymousThrottle
) -> None:
    cost, times = ConnectionCost(strangers), []
    for _ in range(FREE_READS + 1):
        await cost.pause()
        times.append(trio.current_time())
    cost.refund()
    await cost.pause()
    assert [*times, trio.current_time()] == [0.0] * FREE_READS + [READ_PAUSE_SECONDS] * 2


async def test_a_connection_that_ends_while_it_waits_takes_no_turn(
    autojump_clock: MockClock, strangers: AnonymousThrottle
) -> None:
    strangers.charge(BURST_SECONDS + CPU_SHARE)
    with trio.move_on_after(0.5):
        await strangers.acquire(0.0)
    assert trio.current_time() == 0.5
    await strangers.acquire(0.0)
    assert trio.current_time() == pytest.approx(1.0)


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_only_the_own_steps_of_what_is_measured_count(
    autojump_clock: MockClock, strangers: AnonymousThrottle, nursery: trio.Nursery
) -> None:
    cost, other_has_worked = ConnectionCost(strangers), trio.Event()

    async def other() -> None:
        burn(0.1)
        other_has_worked.set()

    async def doing() -> None:
        burn(0.01)
        await other_has_worked.wait()
        burn(0.01)

    nursery.start_soon(other)
    await run_metered(doing(), cost)
    assert 0.02 <= cost.spent < 0.1


async def test_what_is_measured_can_be_cancelled_and_fails_as_without(
    autojump_clock: MockClock, strangers: AnonymousThrottle
) -> None:
    cost, left = ConnectionCost(strangers), []

    async def doing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            left.append("cleaned up")

    async def failing() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a defect")

    with trio.move_on_after(1) as scope:
        await run_metered(doing(), cost)
    assert (scope.cancelled_caught, left) == (True, ["cleaned up"])
    with pytest.raises(ValueError, match="a defect"):
        await run_metered(failing(), cost)


GONE = {"type": "http.disconnect"}


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def text(content: str) -> dict[str, Any]:
    return {"type": "websocket.receive", "text": content, "bytes": None}


async def test_pieces_of_a_body_that_wait_are_joined() -> None:
    inbox = ReceiveQueue(10)
    for piece in (b"a", b"b", b"c"):
        await inbox.put(body(piece))
    await inbox.put(body(b"", more=False))
    assert await inbox.receive() == body(b"abc", more=False)


@pytest.mark.parametrize(("first", "second"), [(body(b"abcd"), body(b"e")), (text("abcd"), text("e"))])
async def test_more_than_has_room_waits_and_stays_apart(nursery: trio.Nursery, first: Any, second: Any) -> None:
    inbox = ReceiveQueue(3)
    await inbox.put(first)
    nursery.start_soon(inbox.put, second)
    await wait_all_tasks_blocked()
    assert inbox._size == 4
    assert [await inbox.receive(), await inbox.receive()] == [first, second]
    assert inbox._size == 0


@pytest.mark.parametrize("end", ["disconnect", "close"])
async def test_a_sender_that_waits_for_room_is_let_go_at_the_end(end: str) -> None:
    inbox = ReceiveQueue(1)
    await inbox.put(body(b"a"))
    with trio.fail_after(20):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(inbox.put, body(b"b"))
            await wait_all_tasks_blocked()
            if end == "close":
                inbox.close()
            else:
                await inbox.put(GONE)
        await inbox.put(GONE)


async def test_a_peer_that_has_gone_is_told_of_after_what_it_has_sent_and_each_time() -> None:
    inbox = ReceiveQueue(10)
    await inbox.put(body(b"a"))
    await inbox.put(GONE)
    assert [await inbox.receive() for _ in range(3)] == [body(b"a"), GONE, GONE]
