"""What is independent of how many wait: the cost of a step, counted in lines that run, and what the heap keeps."""

import sys
from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.lanes.lane_entries import IndexedHeap
from gateway.lanes.machine import LaneMachine
from gateway.lanes.messages import Clear, LaneStimulus, Submit, TurnEnded, Withdraw
from gateway.settings import Overflow, QueueSettings
from wire.messages import QueueMode


def submit(run: object, session: object, mode: QueueMode = QueueMode.FOLLOWUP, **options: Any) -> Submit:
    return Submit(run=str(run), session=str(session), text="hello", mode=mode, **options)


def lines_per_step(machine: LaneMachine, stimuli: Iterable[LaneStimulus]) -> float:
    """The average over ``stimuli``: compaction of the heaps is spread over many steps."""
    count, stimuli = 0, list(stimuli)

    def trace(_frame: object, event: str, _value: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        for stimulus in stimuli:
            machine.handle(stimulus, 0.0)
    finally:
        sys.settrace(old)
    return count / len(stimuli)


def crowded(sessions: int, **settings: Any) -> LaneMachine:
    """A machine in which every session runs and has a message waiting."""
    machine = LaneMachine(QueueSettings(**{"pending": 2 * sessions, "cap": 10 * sessions, **settings}))
    for number in range(sessions):
        machine.handle(submit(f"running {number}", number), 0.0)
        machine.handle(submit(f"waiting {number}", number), 0.0)
    return machine


def costs(sessions: int) -> dict[str, float]:
    """What steps of each kind cost among this number of sessions that wait."""
    numbers = range(100)
    in_line = crowded(sessions, lanes={"cron": 1})
    one = crowded(sessions, overflow=Overflow.OLD, cap=sessions, pending=10 * sessions)
    for number in range(sessions):
        in_line.handle(submit(f"cron {number}", f"c{number}", lane="cron"), 0.0)
        one.handle(submit(f"more {number}", "0", QueueMode.COLLECT), 0.0)
    steps: dict[str, tuple[LaneMachine, Iterable[LaneStimulus]]] = {
        "evict": (crowded(sessions, pending=sessions), (submit(n, n, priority=9) for n in numbers)),
        "withdraw": (crowded(sessions), (Withdraw(f"waiting {n}") for n in numbers)),
        "clear": (crowded(sessions), (Clear(f"{n}") for n in numbers)),
        "end": (crowded(sessions), (TurnEnded(f"t{n + 1}") for n in numbers)),
        "collect": (crowded(sessions), (submit(n, n, QueueMode.COLLECT) for n in numbers)),
        "line up": (in_line, (submit(n, f"d{n}", lane="cron") for n in numbers)),
        "drop the oldest": (one, (submit(n, "0", QueueMode.COLLECT) for n in numbers)),
    }
    return {kind: lines_per_step(machine, stimuli) for kind, (machine, stimuli) in steps.items()}


def test_a_step_costs_the_same_among_many_sessions_as_among_few() -> None:
    few, many = costs(120), costs(1200)
    assert {kind: (few[kind], many[kind]) for kind in few if many[kind] > 1.5 * few[kind]} == {}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=200), st.randoms(use_true_random=False))
def test_whatever_is_taken_out_the_smallest_rank_of_the_rest_comes_first_and_among_equals_the_first(
    ranks: list[tuple[int, int]], choice: Random
) -> None:
    heap: IndexedHeap[int] = IndexedHeap()
    inside = {number: heap.add(rank, number) for number, rank in enumerate(ranks)}
    while inside:
        best = min(inside, key=lambda number: (inside[number].rank, number))
        assert (heap.first(), len(heap), set(heap)) == (best, len(inside), set(inside))
        leaves = best if choice.random() < 0.5 else choice.choice(sorted(inside))
        heap.remove(inside.pop(leaves))
    assert heap.first() is None


def test_items_that_come_and_go_behind_one_that_stays_leave_nothing_behind() -> None:
    heap: IndexedHeap[str] = IndexedHeap()
    heap.add((0, 0), "stays")
    for number in range(10_000):
        heap.remove(heap.add((1, number), "goes"))
    assert len(heap._heap) < 200
    assert heap.first() == "stays"
