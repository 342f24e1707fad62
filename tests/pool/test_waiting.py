import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.places import Place
from pool.queues import ConditionQueue
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, Waiter
from pool.stimuli import Acquire
from pool.transitions import WaiterState
from pool.waiting_list import WaitingList
from tests.pool.world import make_profile
from wire.states import IllegalTransition

AGENT = AgentWorkers("main", Place("", 9))
numbers = iter(range(10**9))


def make_kind(name: str = "a") -> ProfileRecord:
    return ProfileRecord(make_profile(name), HardGroup(), AGENT)


def make_waiter(
    kind: ProfileRecord, *, at: float = 0.0, priority: int = 5, bounded: bool = True, nested: bool = False
) -> Waiter:
    number = next(numbers)
    acquire = Acquire(
        request=f"r{number}",
        session=f"s{number}",
        profile=kind.profile,
        priority=priority,
        bounded=bounded,
        nested=nested,
    )
    waiter = Waiter(acquire, SessionRecord(acquire.session), kind, at, number)
    waiter.sort_key = at - priority * 3.0
    return waiter


def queued(waiting: WaitingList, kind: ProfileRecord, **options: Any) -> Waiter:
    waiter = make_waiter(kind, **options)
    waiting.transition(waiter, WaiterState.QUEUED)
    return waiter


def drain(waiting: WaitingList) -> list[Waiter]:
    served = []
    while (line := waiting.ready.peek()) is not None:
        head = line.head()
        assert head is not None
        waiting.transition(head, WaiterState.DONE)
        served.append(head)
    return served


def test_an_ended_waiter_cannot_move_any_more() -> None:
    waiting, kind = WaitingList(), make_kind()
    waiter = queued(waiting, kind)
    waiting.transition(waiter, WaiterState.DONE)
    with pytest.raises(IllegalTransition):
        waiting.transition(waiter, WaiterState.QUEUED)


def test_a_line_is_at_one_gate_at_a_time_and_a_better_head_moves_it_forward_there() -> None:
    waiting = WaitingList()
    a, b = make_kind("a"), make_kind("b")
    queued(waiting, a, at=5.0)
    queued(waiting, b, at=1.0)
    for line in (a.queues[False], b.queues[False]):
        waiting.pool_full.add(line)
    assert (waiting.ready.count, waiting.pool_full.count) == (0, 2)
    assert waiting.pool_full.peek() is b.queues[False]
    queued(waiting, a, at=5.0, priority=9)
    assert waiting.pool_full.peek() is a.queues[False]
    assert waiting.ready.peek() is None
    waiting.wake(b)
    assert (waiting.ready.count, waiting.pool_full.count) == (1, 1)


def test_an_emptied_line_is_looked_at_again_when_somebody_joins_it() -> None:
    waiting, kind = WaitingList(), make_kind()
    gone = queued(waiting, kind)
    waiting.pool_full.add(kind.queues[False])
    waiting.transition(gone, WaiterState.DONE)
    queued(waiting, kind)
    assert waiting.ready.peek() is kind.queues[False]


def test_heaps_do_not_keep_what_has_gone() -> None:
    waiting, kind = WaitingList(), make_kind()
    keeper = queued(waiting, kind, at=0.0, priority=9)
    for number in range(5000):
        waiting.transition(queued(waiting, kind, at=number + 1.0), WaiterState.DONE)
    assert list(kind.queues[False]) == [keeper]
    assert len(kind.queues[False]._heap) < 300
    gate = ConditionQueue("test")
    for number in range(5000):
        queued(waiting, kind, at=-float(number))
        gate.add(kind.queues[False])
    assert len(gate._heap) < 300


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_any_history_is_served_in_the_order_of_the_static_key(seed: int, profiles: int) -> None:
    rng = random.Random(seed)
    waiting = WaitingList()
    kinds = [make_kind(str(number)) for number in range(profiles)]
    alive: list[Waiter] = []
    for step in range(120):
        chance = rng.random()
        if chance < 0.6 or not alive:
            alive.append(queued(waiting, rng.choice(kinds), at=step * 0.5, priority=rng.choice((3, 5, 10))))
        else:
            waiter = alive.pop(rng.randrange(len(alive)))
            waiting.transition(waiter, WaiterState.BLOCKED)
            if chance < 0.8:
                waiting.transition(waiter, WaiterState.QUEUED)
                alive.append(waiter)
            else:
                waiting.transition(waiter, WaiterState.DONE)
    assert len(waiting) == len(alive)
    assert drain(waiting) == sorted(alive, key=lambda waiter: waiter.rank)
    assert len(waiting) == waiting.bounded == 0
