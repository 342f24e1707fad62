"""The pool's decisions: what one costs while others wait or beside many workers, and how long a waiting list drains.

The machine is pure, so this measures our own code and the interpreter, no process and no clock. A usual call is the
median one: at 50,000 waiters the interpreter's garbage collector walks half a million objects now and then, which shows
in the slowest percent and is reported beside it.
"""

import heapq
import random
import time
from functools import partial

import msgspec

from benchmarks.harness import Result, best_of, median, percentile, result, timed
from benchmarks.promises import Promise
from errors import WorkerError
from pool import stimuli
from pool import stimuli as actions
from pool.machine import PoolMachine
from pool.places import Place
from pool.records import AgentWorkers, HardGroup, ProfileRecord, SessionRecord, Waiter
from pool.settings import PoolSettings
from pool.stimuli import WorkerHold
from pool.transitions import WaiterState
from pool.waiting_list import WaitingList
from profiles.profile import CapabilityProfile
from wire.units import Seconds

CROWDS = (100, 1_000, 10_000, 50_000)
SAMPLES = 2_000
WORKERS = 64
PRIORITIES = (3, 5, 10)
FAR = 1e9
FEW_WORKERS, MANY_WORKERS = 100, 10_000
FEWER_SAMPLES = 100

PROFILES = [
    CapabilityProfile(
        agent="main", role="default", dialect="native", command=("agent",), cwd="/", signature=name, hard_signature=name
    )
    for name in "abcdefgh"
]


def run() -> list[Result]:
    pushed = _heap_round_trip()
    results = [found for crowd in CROWDS for found in _acquire_beside(crowd, pushed)]
    return [*results, *_beside_workers(), *_lists_alone(), _machine_drains(50_000)]


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


def _requests(prefix: str, count: int) -> list[stimuli.Acquire]:
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


def _crowded(crowd: int, workers: int = WORKERS) -> tuple[PoolMachine, list[WorkerHold]]:
    """A pool with every worker held and ``crowd`` requests waiting; and the holds."""
    settings = PoolSettings(max=workers, spawn_burst=workers)
    machine = PoolMachine(settings, rng=random.Random(0), now=0.0)
    spawned = [
        action.worker
        for acquire in _requests("holder", workers)
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


# --- many workers ----------------------------------------------------------------------------------------------------


def _beside_workers() -> list[Result]:
    """What one event costs where every worker is idle and has a session, beside the same in a small pool."""
    small, large = _idle(FEW_WORKERS), _idle(MANY_WORKERS)
    results = []
    for name, (measure, at_most) in BESIDE_WORKERS.items():
        few, many = median(measure(small)), median(measure(large))
        beside = (few, f"us beside {FEW_WORKERS} workers")
        judge = partial(result, promise=Promise.MANY_WORKERS, beside=beside, ratio_at_most=2.0)
        results.append(judge(f"{name}, p50", many, "us", at_most=at_most))
    return results


def _idle(workers: int) -> PoolMachine:
    machine, holds = _crowded(0, workers)
    for hold in holds:
        machine.handle(stimuli.Release(hold), 0.0)
    return machine


def _cost(machine: PoolMachine, stimulus: stimuli.Stimulus) -> tuple[float, list[actions.Action]]:
    """Microseconds, and what was decided."""
    started = time.perf_counter()
    decided = machine.handle(stimulus, 10.0)
    return (time.perf_counter() - started) * 1e6, decided


def _own(machine: PoolMachine) -> list[float]:
    """Acquire, by sessions that have a worker."""
    owners = _requests("holder", machine.settings().max)
    return [_turn(machine, owners[number % len(owners)]) for number in range(SAMPLES)]


def _rebound(machine: PoolMachine) -> list[float]:
    """Acquire, by sessions that are to get a worker of another."""
    return [_turn(machine, acquire) for acquire in _requests("late", SAMPLES)]


def _turn(machine: PoolMachine, acquire: stimuli.Acquire) -> float:
    cost, decided = _cost(machine, acquire)
    granted = [found.hold for found in decided if isinstance(found, actions.Grant)]
    (hold,) = granted or _finish_resets(machine, decided, 10.0)
    machine.handle(stimuli.Release(hold), 10.0)
    return cost


def _set_unrelated(machine: PoolMachine) -> list[float]:
    limits = [Seconds(60 + number % 2) for number in range(1, FEWER_SAMPLES)]
    return [_reconfigure(machine, start_timeout=limit) for limit in limits]


def _set_max(machine: PoolMachine) -> list[float]:
    return [_reconfigure(machine, max=machine.settings().max + 1) for _ in range(FEWER_SAMPLES)]


def _reconfigure(machine: PoolMachine, **changes: object) -> float:
    settings = msgspec.structs.replace(machine.settings(), **changes)
    return _cost(machine, stimuli.SettingsChanged(settings))[0]


def _change_profile(machine: PoolMachine) -> list[float]:
    """One agent's profile changes, of which eight workers run."""
    current = stimuli.ProfilesChanged(frozenset(profile.signature for profile in PROFILES))
    _reconfigure(machine, max=len(machine.snapshot(10.0).workers) + 8, spawn_burst=2 * MANY_WORKERS)
    costs = []
    for number in range(FEWER_SAMPLES):
        profile = msgspec.structs.replace(PROFILES[0], signature=f"old{number}", hard_signature=f"old{number}")
        for acquire in _requests(f"old{number}-", 8):
            spawned = machine.handle(msgspec.structs.replace(acquire, profile=profile), 10.0)
            worker = next(action.worker for action in spawned if isinstance(action, actions.Spawn))
            for hold in _finish_resets(machine, machine.handle(stimuli.WorkerReady(worker), 10.0), 10.0):
                machine.handle(stimuli.Release(hold), 10.0)
        cost, decided = _cost(machine, current)
        costs.append(cost)
        for stopped in [action.worker for action in decided if isinstance(action, actions.Stop)]:
            machine.handle(stimuli.ProcessExited(stopped, WorkerError(f"worker {stopped} was stopped")), 10.0)
    return costs


BESIDE_WORKERS = {
    "Acquire of a session that has a worker": (_own, 15.0),
    "Acquire that is rebound": (_rebound, 15.0),
    "another start_timeout": (_set_unrelated, 50.0),
    "another max": (_set_max, 50.0),
    "another profile for one agent with 8 workers": (_change_profile, 300.0),
}


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
    agent = AgentWorkers("main", Place("", 9))
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
