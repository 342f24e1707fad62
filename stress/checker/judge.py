"""What every judge of an invariant is: it sees each fact once, in order, and says what is wrong."""

import math
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple

import msgspec

from stress.checker.book import Book
from stress.facts import Fact

__all__ = ["Blame", "Harm", "Judge", "Rules"]

Harm = Literal["lost", "duplicated", "foreign"]
"""What became of a request that must not: no outcome, more than one, words of another session."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool has promised, in numbers: limits of its settings, seconds, bytes; and what its faults explain.

    ``overload``: codes that requests may end with at any time, since more is asked than can be done; ``explains``:
    those that they may end with when a fault was injected meanwhile, or not long before. Of all requests at least
    ``least_served`` have to be completed, and without overload at most ``most_in_vain`` may wait in vain. Between
    ``ramp`` and ``calm`` seconds the load was full and there was no fault. ``compares``: whether waiting times under
    faults can be compared with those before (enough workers, no overload). ``told_within``: seconds until a front end
    hears of its outcome although others read slowly. ``rss_growth``: how many times its size after the warm-up the
    supervisor may grow to; 0 = not judged.
    """

    max_workers: int
    spawn_burst: int
    spawn_rate: float
    backoff_max: float
    age_step: float = 3.0
    deadline_grace: float = 0.05
    order_slack: float = 1.0
    zombie_seconds: float = 1.0
    recovery: float = 10.0
    rss_limit: int = 400 * 1024 * 1024
    rss_growth: float = 0.0
    fds_slack: int = 8
    told_within: float = math.inf
    overload: frozenset[str] = frozenset()
    explains: frozenset[str] = frozenset()
    least_served: float = 0.0
    most_in_vain: float = 1.0
    ramp: float = 0.0
    calm: float = 0.0
    compares: bool = False


class Blame(NamedTuple):
    """A broken promise: in a sentence, which requests, workers (by name) and pids it is about, and the harm done."""

    what: str
    numbers: tuple[int, ...] = ()
    worker: str = ""
    pids: tuple[int, ...] = ()
    harm: Harm | None = None


class Judge:
    """Judges one invariant. ``checked``: how often it could have been found broken; ``note``: what limits it."""

    invariant: ClassVar[str]

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.checked = 0
        self.note = ""

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """What is wrong, judging by this fact and by the book as it was before it."""
        raise NotImplementedError
