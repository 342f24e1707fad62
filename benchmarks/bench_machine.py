"""The pool's decisions: what an Acquire costs while others wait, and how long a long waiting list takes to drain.

The machine is pure, so this measures our own code and the interpreter, no process and no clock. A usual call is the
median one: at 50,000 waiters the interpreter's garbage collector walks half a million objects now and then, which shows
in the slowest percent and is reported beside it.
"""

import heapq
import random
import time
from collections.abc import Iterable
from functools import partial

from benchmarks.harness import Result, best_of, median, percentile, result, timed
from benchmarks.promises import Promise
from pool import stimuli
from pool import stimuli as actions
from pool.machine import PoolMachine
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, Waiter
from pool.settings import PoolSettings
from pool.stimuli import WorkerHold
from pool.transitions import WaiterState
from pool.waiting_list import WaitingList
from profiles.profile import CapabilityProfile

CROWDS = (100, 1_000, 10_000, 50_000)
SAMPLES = 2_000
WORKERS = 64
PRIORITIES = (3, 5, 10)
FAR = 1e9

PROFILES = [
    CapabilityProfile(
        agent="main", role="default", dialect="native", command=("agent",), cwd="/", signature=name, hard_signature=name
    )
    for name in "abcdefgh"
]


def run() -> list[Result]:
    pushed = _heap_round_trip()
    results = [found for crowd in CROWDS for found in _acquire_beside(crowd, pushed)]
    return [*results, *_lists_alone(), _machine_drains(50_000)]


# --- one Acquire -----------------------------------------------------------------------------------------------------


def _heap_round_trip() -> float:
    """Microseconds of heappush + heappop on a heap of 10,000."""
    heap = [(float(number), number) for number in range(10_000)]

    def push_and_pop() -> None:
        for number in range(SAMPLES):
            heapq.heappush(heap, (number + 0.5, number))
            heapq.heappop(heap)

    return best_of(3, lambda: timed(push_and_pop)) / SAMPLES * 1e6


def _acquire_beside(crowd: int, pushed: float) -> list[Result]:
    machine, _ = _crowded(crowd)
    costs = []
    for acquire in _requests("late", SAMPLES):
        started = time.perf_counter()
        machine.handle(acquire, 10.0)
        costs.append((time.perf_counter() - started) * 1e6)
    judge = partial(result, promise=Promise.ACQUIRE)
    beside = (pushed, "us heapq push + pop")
    return [
        judge(f"beside {crowd:,}, p50", median(costs), "us", beside=beside, at_most=10.0),
        judge(f"beside {crowd:,}, p99", percentile(costs, 0.99), "us"),
    ]


def _requests(prefix: str, count: int) -> Iterable[stimuli.Acquire]:
    return [
        stimuli.Acquire(
            request=f"{prefix}{number}",
            session=f"session-{prefix}{number}",
            profile=PROFILES[number % len(PROFILES)],
            priority=PRIORITIES[number % len(PRIORITIES)],
            deadline=FAR,
            bounded=False,
        )
        for number in range(count)
    ]


def _crowded(crowd: int) -> tuple[PoolMachine, list[WorkerHold]]:
    """A pool with every worker held and ``crowd`` requests waiting; and the holds."""
    settings = PoolSettings(max=WORKERS, spawn_burst=WORKERS)
    machine = PoolMachine(settings, rng=random.Random(0), now=0.0)
    spawned = [
        action.worker
        for acquire in _requests("holder", WORKERS)
        for action in machine.handle(acquire, 0.0)
        if isinstance(action, actions.Spawn)
    ]
    holds = []
    for worker in spawned:
        holds += _finish_resets(machine, machine.handle(stimuli.WorkerReady(worker), 0.0), 0.0)
    for number, acquire in enumerate(_requests("early", crowd)):
        machine.handle(acquire, number * 1e-4)
    return machine, holds


def _finish_resets(machine: PoolMachine, decided: list[actions.Action], now: float) -> list[WorkerHold]:
    """Let every reset succeed; returns the holds that were granted."""
    granted = []
    for action in decided:
        if isinstance(action, actions.Reset):
            done = stimuli.WorkerResetDone(action.worker, action.session, None)
            granted += [found.hold for found in machine.handle(done, now) if isinstance(found, actions.Grant)]
    return granted


# --- the whole list --------------------------------------------------------------------------------------------------


def _lists_alone() -> list[Result]:
    """Twice as many waiters are to take twice the time, so that the half of them is measured beside them."""
    half, whole = (_list_alone(25_000), "s half as many"), _list_alone(50_000)
    judge = partial(result, promise=Promise.DRAIN)
    return [
        judge("the waiting list", whole, "s", at_most=0.3),
        judge("the waiting list, of twice as many", whole, "s", beside=half, ratio_at_most=2.5),
    ]


def _list_alone(count: int) -> float:
    """Seconds to enqueue and drain the waiting list without the machine around it."""
    agent = AgentWorkers("main")
    kinds = [ProfileRecord(profile, HardGroup(), agent) for profile in PROFILES]
    requests = _requests("waiter", count)

    def measure() -> float:
        waiting = WaitingList()
        waiters = []
        for number, acquire in enumerate(requests):
            waiter = Waiter(acquire, SessionRecord(acquire.session), kinds[number % len(kinds)], 0.0, number)
            waiter.sort_key = number * 1e-4 - acquire.priority * 3.0
            waiters.append(waiter)
        started = time.perf_counter()
        for waiter in waiters:
            waiting.transition(waiter, WaiterState.QUEUED)
        while (line := waiting.ready.peek()) is not None:
            head = line.head()
            if head is not None:
                waiting.transition(head, WaiterState.DONE)
        return time.perf_counter() - started

    return best_of(3, measure)


def _machine_drains(count: int) -> Result:
    """The same through the machine, with a reset and a release for each."""
    started = time.perf_counter()
    machine, holds = _crowded(count)
    served = 0
    while holds:
        granted = _finish_resets(machine, machine.handle(stimuli.Release(holds.pop()), 10.0), 10.0)
        served += len(granted)
        holds += granted
    if served != count:
        raise RuntimeError(f"{served} of {count} waiters were served")
    name = "through the machine, with a reset and a release for each"
    return result(name, time.perf_counter() - started, "s", promise=Promise.DRAIN)
