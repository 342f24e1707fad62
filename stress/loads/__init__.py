"""Loads: who asks what when, as pure generators from a seeded source of choices."""

import math
from collections.abc import Iterator
from random import Random

from stress.loads.arrivals import Arrival, Crowd, mixed_with_wicked, zipf_weights
from stress.plan import Plan

__all__ = ["Arrival", "Crowd", "arrivals", "mixed_with_wicked", "zipf_weights"]


def arrivals(plan: Plan, rng: Random) -> Iterator[Arrival]:
    """All requests of the plan's load in order of time; the same choices for the same seed."""
    crowd = Crowd(plan, rng)
    yield from _bursts(plan, crowd) if plan.load == "L3" else _steady(plan, crowd, rng)


def _steady(plan: Plan, crowd: Crowd, rng: Random) -> Iterator[Arrival]:
    """Independent of one another, ``plan.rate`` a second once the ramp is over."""
    passed = 0.0
    for number in range(plan.requests):
        passed += rng.expovariate(1.0)
        at = _when(plan, passed)
        if plan.is_timed and at > plan.seconds:
            return
        yield crowd.arrival(number, at, crowd.next_session())


def _when(plan: Plan, requests: float) -> float:
    """When so many requests are to be expected, where the rate grows evenly until the ramp is over."""
    in_ramp = plan.rate * plan.ramp / 2
    return (
        math.sqrt(2 * plan.ramp * requests / plan.rate) if requests < in_ramp else plan.ramp / 2 + requests / plan.rate
    )


def _bursts(plan: Plan, crowd: Crowd) -> Iterator[Arrival]:
    """``plan.burst`` at one moment, and again when all of those have their outcomes."""
    for number in range(plan.requests):
        yield crowd.arrival(number, 0.0, number % plan.sessions, alone=number > 0 and number % plan.burst == 0)
