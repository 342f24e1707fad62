"""Requests and faults of a run, the rules of its checks, and the supervisor's settings, from plan and seed. Pure."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import tomli_w

from stress.agents import AGENTS
from stress.arrivals import Arrival, arrivals, mix_in_faulty
from stress.attached_target import PoolLimits
from stress.checker import TIMED_OUT, CheckRules
from stress.faults import Fault
from stress.faults.base import FaultEvent, FaultSetup
from stress.plan import Plan

_MIN_WORKERS_TO_COMPARE = 16
_MAX_DELIVERY_DELAY = 2.0
_MAX_GROWTH = 1.25
_MOST_REMEMBERED, _FEWEST_REMEMBERED = 100_000, 20_000
_MIN_COMPLETED = 0.9
_MIN_COMPLETED_BY_FAULT = {"F4": 0.7, "F5": 0.5, "F7": 0.7}
"""While nothing can be started, requests that need a worker fail; the end of a supervisor interrupts turns."""
_SHORT_RUN_SECONDS = 10.0
_MIN_COMPLETED_SHORT_RUN = 0.1
"""If supervisors are replaced within seconds, more than half of the requests may be interrupted."""
_MIN_COMPLETED_OVERLOAD = 0.2
"""Many turns begin too late to end in time: of 1.5 times the capacity some 40 % is served."""
_MAX_TIMED_OUT = 0.05


def rng_of(seed: int, what: str) -> Random:
    """An independent source of choices for each part."""
    return Random(f"{seed}/{what}")  # noqa: S311 - choices that can be repeated are the point


def all_arrivals(plan: Plan, preparations: Sequence[FaultSetup]) -> Iterator[Arrival]:
    """All requests, including those to faulty workers, in order of time."""
    found = arrivals(plan, rng_of(plan.seed, "load"))
    for number, preparation in enumerate(preparations):
        found = mix_in_faulty(found, preparation, rng_of(plan.seed, f"faulty {number}"), plan.workers)
    return found


def all_fault_events(plan: Plan, faults: Sequence[Fault]) -> list[tuple[Fault, FaultEvent]]:
    """The events of all faults in order of time."""
    schedules = ([(fault, event) for event in fault.schedule(plan, rng_of(plan.seed, fault.name))] for fault in faults)
    return sorted(itertools.chain.from_iterable(schedules), key=lambda each: each[1].at)


def check_rules(plan: Plan, faults: Sequence[Fault], limits: PoolLimits) -> CheckRules:
    """The promises of a pool with these limits for this plan."""
    return CheckRules(
        max_workers=limits.max,
        spawn_burst=limits.spawn_burst,
        spawn_rate=limits.spawn_rate,
        backoff_max=limits.backoff_max,
        age_step=limits.age_step,
        overload=TIMED_OUT if plan.load == "L2" else frozenset(),
        explains=frozenset[str]().union(*(fault.explains for fault in faults)),
        min_completed=_min_completed(plan, faults),
        max_timed_out=_MAX_TIMED_OUT,
        ramp=plan.ramp,
        calm=plan.calm,
        compares_waits=plan.workers >= _MIN_WORKERS_TO_COMPARE and plan.load in ("L1", "L5"),
        rss_growth=_MAX_GROWTH if plan.load == "L5" else 0.0,
        max_delivery_delay=_MAX_DELIVERY_DELAY if plan.load == "L6" else math.inf,
    )


def _min_completed(plan: Plan, faults: Sequence[Fault]) -> float:
    """The share of requests that must be completed."""
    least = [_MIN_COMPLETED_OVERLOAD if plan.load == "L2" else _MIN_COMPLETED]
    least += [_MIN_COMPLETED_BY_FAULT.get(fault.name, _MIN_COMPLETED) for fault in faults]
    if plan.longest - plan.calm < _SHORT_RUN_SECONDS and any(fault.name == "F5" for fault in faults):
        least.append(_MIN_COMPLETED_SHORT_RUN)
    return min(least)


WORKER_BYTES = 64 * 1024 * 1024
"""Assumed memory of a worker."""


def own_limits(plan: Plan) -> PoolLimits:
    """The limits of a supervisor of our own; ``spawn_rate`` is the default: a start costs 0.25 s of a CPU."""
    return PoolLimits(max=plan.workers, spawn_burst=8, spawn_rate=4.0, backoff_max=2.0, age_step=3.0)


def settings_text(plan: Plan, preparations: Iterable[FaultSetup]) -> str:
    """The settings file: roles with different prompts, room for every request, fast health checks."""
    remembered = _remembered_runs(plan)
    kind = AGENTS[plan.agents]
    table: dict[str, Any] = {
        "pool": {
            **msgspec.structs.asdict(own_limits(plan)),
            "min": 1,
            "worker_memory": WORKER_BYTES,
            "waiting_capacity": plan.requests + plan.sessions,
            "ping_interval_idle": 3.0,
            "ping_interval_busy": 3.0,
            "ping_timeout": 3.0,
            "ping_failures": 2,
            "backoff_min": 0.1,
            "breaker_failures": 1000,
            "drain_timeout": 30.0,
        },
        "gateway": {
            "runs": max(remembered, 2 * plan.sessions),
            "outcomes": remembered,
            # no message may be summarised: each request needs its own outcome
            "queue": {"pending": max(10_000, plan.requests), "cap": plan.requests},
            "dedupe": {"window": 0},
        },
        "agents": {"main": dict(kind.good)} if kind.good else {},
        "roles": {role: {"append_system_prompt": f"You are {role}."} for role in plan.roles},
    }
    for preparation in preparations:
        table = merged(table, preparation.settings)
    return tomli_w.dumps(table)


def _remembered_runs(plan: Plan) -> int:
    """How many ended runs the supervisor remembers: none may be forgotten while a front end is away.

    In a soak their memory fills up within the warm-up, after which the supervisor must not grow.
    """
    return min(_MOST_REMEMBERED, max(_FEWEST_REMEMBERED, plan.requests // 5)) if plan.load == "L5" else _MOST_REMEMBERED


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of both; where both have a value, that of ``over``."""
    both = {key: merged(under[key], over[key]) for key in over if _are_tables(under.get(key), over[key])}
    return {**under, **over, **both}


def _are_tables(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)
