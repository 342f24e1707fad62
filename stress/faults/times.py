"""When strokes of a fault come: spread over the run by a seeded source of choices, each kind as often as the others."""

from collections.abc import Mapping, Sequence
from random import Random

from stress.faults.port import Stroke
from stress.plan import Plan

__all__ = ["spread"]


def spread(plan: Plan, rng: Random, kinds: Mapping[str, tuple[float, float]], *, every: float) -> Sequence[Stroke]:
    """Strokes between the calm and the end, one each ``every`` seconds on average, and each kind at least once.

    ``kinds``: between which two values the amount of each lies.
    """
    room = max(0.0, plan.longest - plan.calm)
    count = max(len(kinds), round(room / every))
    times = sorted(plan.calm + room * rng.random() for _ in range(count))
    names = [name for _ in range(count // len(kinds) + 1) for name in rng.sample(list(kinds), len(kinds))]
    return [
        Stroke(at=at, kind=name, pick=rng.random(), amount=rng.uniform(*kinds[name]))
        for at, name in zip(times, names, strict=False)
    ]
