"""Loads: who asks what when, as pure generators from a seeded source of choices."""

from collections.abc import Iterator
from random import Random

from stress.loads.arrivals import Arrival, Crowd, mixed_with_wicked, zipf_weights
from stress.plan import Plan

__all__ = ["Arrival", "Crowd", "arrivals", "mixed_with_wicked", "zipf_weights"]

_LEAST_RATE = 0.05
"""Of the plan's rate, at the very beginning."""


def arrivals(plan: Plan, rng: Random) -> Iterator[Arrival]:
    """All requests of the plan's load in order of time; the same choices for the same seed."""
    crowd = Crowd(plan, rng)
    yield from _bursts(plan, crowd) if plan.load == "L3" else _steady(plan, crowd, rng)


def _steady(plan: Plan, crowd: Crowd, rng: Random) -> Iterator[Arrival]:
    """Independent of one another, ``plan.rate`` a second once the ramp is over."""
    at = 0.0
    for number in range(plan.requests):
        grown = max(_LEAST_RATE, at / plan.ramp) if plan.ramp else 1.0
        at += rng.expovariate(plan.rate * min(1.0, grown))
        if at > plan.seconds:
            return
        yield crowd.arrival(number, at, crowd.next_session())


def _bursts(plan: Plan, crowd: Crowd) -> Iterator[Arrival]:
    """``plan.burst`` at one moment, and again when all of those have their outcomes."""
    for number in range(plan.requests):
        yield crowd.arrival(number, 0.0, number % plan.sessions, alone=number > 0 and number % plan.burst == 0)
