"""The settings file of the supervisor that is driven. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import tomli_w

from stress.faults.port import Preparation
from stress.plan import Plan

__all__ = ["AGE_STEP", "BACKOFF_MAX", "SPAWN_BURST", "SPAWN_RATE", "WORKER_BYTES", "settings_text"]

AGE_STEP = 3.0
SPAWN_BURST = 8
SPAWN_RATE = 4.0
"""The default: a start costs a quarter of a second of a CPU, and where profiles take turns, starts are many."""
BACKOFF_MAX = 2.0
WORKER_BYTES = 64 * 1024 * 1024
"""What a worker is taken to need."""


def settings_text(plan: Plan, preparations: Iterable[Preparation]) -> str:
    """The whole file: roles that differ in their prompt, room for every request, health checks that notice soon."""
    table: dict[str, Any] = {
        "pool": {
            "min": 1,
            "max": plan.workers,
            "worker_memory": WORKER_BYTES,
            "waiting_capacity": plan.requests + plan.sessions,
            "spawn_burst": SPAWN_BURST,
            "spawn_rate": SPAWN_RATE,
            "ping_interval_idle": 3.0,
            "ping_interval_busy": 3.0,
            "ping_timeout": 3.0,
            "ping_failures": 2,
            "backoff_min": 0.1,
            "backoff_max": BACKOFF_MAX,
            "age_step": AGE_STEP,
            "breaker_failures": 1000,
            "drain_timeout": 30.0,
        },
        "gateway": {
            "runs": max(100_000, 2 * plan.sessions),
            "outcomes": 100_000,
            # none is to be summed up: each has to be told
            "queue": {"pending": max(10_000, plan.requests), "cap": plan.requests},
            "dedupe": {"window": 0},
        },
        "roles": {role: {"append_system_prompt": f"You are {role}."} for role in plan.roles},
    }
    for preparation in preparations:
        table = merged(table, preparation.settings)
    return tomli_w.dumps(table)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of both; where both have a value, that of ``over``."""
    both = {key: merged(under[key], over[key]) for key in over if _are_tables(under.get(key), over[key])}
    return {**under, **over, **both}


def _are_tables(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)
