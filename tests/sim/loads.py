"""The loads L1 to L6 as pure streams of what front ends do: from a seeded ``Random``, ordered by time, without an end.

Each load says beside its arrivals which limits of the pool it needs, and what may be expected of the pool.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

PRIORITIES = (3, 5, 10)
PROFILES = 8
RUN_TIMEOUT = 600.0
"""Seconds a run waits at most; a direct acquire waits for the pool's ``waiting_timeout``."""
_LOST_IN_A_CROWD = 0.5
"""Even without faults a crowd is served in 500 of the 600 s that its requests wait; faults make it late."""
HOUR = 3600.0


class Scale(NamedTuple):
    """How large everything is."""

    sessions: int = 10_000
    workers: int = 64
    turn: float = 10.0
    """Mean seconds of a turn."""


class Ask(NamedTuple):
    """Somebody wants a turn."""

    at: float
    session: int
    priority: int
    turn: float
    """Seconds the worker is used for."""
    delivery: float = 0.0
    """Seconds until its output has been read, after the turn."""
    timeout: float | None = None
    """Seconds it waits at most; None = a direct acquire, which counts against the capacity of the waiting list."""
    front_end: int = 0
    stray: bool = False
    """Whether it comes with another profile than the session's usual one; never while another turn of it may run."""
    unheard: bool = False
    """Whether its profile has never been asked for before, and never will be again."""


class Leave(NamedTuple):
    """A front end drops its connection with all that it waits for, and comes back for the same a moment later."""

    at: float
    front_end: int
    away: float


Event = Ask | Leave


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One of the loads: its stream, the pool's settings it is for, and its bars."""

    name: str
    about: str
    events: Callable[[random.Random, Scale], Iterator[Event]]
    settings: Mapping[str, object] = {}
    lost: float | None = 0.02
    """Of all requests, how many may wait in vain while there are faults; without faults none may. None = any number."""
    served: float = 0.0
    """Of what the workers could do without ever pausing, how much they must do."""


def zipf(count: int, exponent: float = 1.1) -> list[float]:
    """Cumulative weights of ranks 1..count."""
    return list(itertools.accumulate(1 / rank**exponent for rank in range(1, count + 1)))


class _People:
    """Who asks: a few sessions are chatty, half of the requests are runs of a gateway and half are direct."""

    def __init__(self, rng: random.Random, scale: Scale) -> None:
        self._rng = rng
        self._scale = scale
        self._numbers = range(scale.sessions)
        self._weights = zipf(scale.sessions, 0.8)

    def ask(self, at: float, **how: object) -> Ask:
        rng = self._rng
        (session,) = rng.choices(self._numbers, cum_weights=self._weights)
        values: dict[str, object] = {
            "session": session,
            "priority": rng.choice(PRIORITIES),
            "turn": rng.expovariate(1 / self._scale.turn),
            "delivery": rng.expovariate(10.0) if rng.random() < 0.1 else 0.0,
            "timeout": RUN_TIMEOUT if rng.random() < 0.5 else None,
            "stray": session >= self._scale.sessions // 10 and rng.random() < 0.02,
        }
        return Ask(at, **{**values, **how})  # type: ignore[arg-type]  # the fields of Ask by name

    def steadily(self, utilisation: float) -> Iterator[float]:
        """Times of arrival that ask for this share of what the workers can do."""
        at = 0.0
        while True:
            at += self._rng.expovariate(utilisation * self._scale.workers / self._scale.turn)
            yield at


def _busy_day(rng: random.Random, scale: Scale) -> Iterator[Event]:
    people = _People(rng, scale)
    return (people.ask(at) for at in people.steadily(0.8))


def _overload(rng: random.Random, scale: Scale) -> Iterator[Event]:
    people = _People(rng, scale)
    return (people.ask(at) for at in people.steadily(1.5))


def _crowds(rng: random.Random, scale: Scale) -> Iterator[Event]:
    """50 times as many as there are workers, all at once, in a new crowd as soon as the last may have been served."""
    people = _People(rng, scale)
    crowd = 50 * scale.workers
    pause = 1.5 * crowd * scale.turn / scale.workers
    for wave in itertools.count():
        for session in rng.sample(range(scale.sessions), min(crowd, scale.sessions)):
            yield people.ask(wave * pause, session=session, timeout=HOUR)


def _reconnecting(rng: random.Random, scale: Scale) -> Iterator[Event]:
    """A full pool, and front ends that lose their connection every half minute for half a second each."""
    people = _People(rng, scale)
    front_ends = _front_ends(scale)
    leaving = rng.expovariate(front_ends / 30.0)
    for at in people.steadily(1.0):
        while leaving < at:
            yield Leave(leaving, rng.randrange(front_ends), rng.expovariate(2.0))
            leaving += rng.expovariate(front_ends / 30.0)
        ask = people.ask(at)
        yield ask._replace(front_end=ask.session % front_ends)


def _soak(rng: random.Random, scale: Scale) -> Iterator[Event]:
    """A long quiet time; now and then a profile that nobody has used before, which must leave nothing behind."""
    people = _People(rng, scale)
    for at in people.steadily(0.4):
        yield people.ask(at, unheard=rng.random() < 0.005)


def _slow_readers(rng: random.Random, scale: Scale) -> Iterator[Event]:
    """One front end of ten reads at most 1 KB/s: a worker's session stays busy until its output has gone out."""
    people = _People(rng, scale)
    front_ends = _front_ends(scale)
    for at in people.steadily(0.55):
        ask = people.ask(at)
        number = ask.session % front_ends
        slow = number % 10 == 0
        yield ask._replace(
            front_end=number, delivery=rng.uniform(1.0, 4.0) * scale.turn if slow else ask.delivery, stray=False
        )


def _front_ends(scale: Scale) -> int:
    return max(1, scale.sessions // 20)


_ROOM = {"waiting_capacity": 500}

LOADS = {
    load.name: load
    for load in (
        Load(name="L1", about="utilisation 0.8", events=_busy_day, settings=_ROOM),
        Load(name="L2", about="1.5 times overload", events=_overload, lost=None, served=0.8),
        Load(name="L3", about="50 waiters a worker at once", events=_crowds, lost=_LOST_IN_A_CROWD),
        Load(name="L4", about="front ends reconnecting", events=_reconnecting, settings=_ROOM, lost=None, served=0.75),
        Load(name="L5", about="soak", events=_soak, settings=_ROOM),
        Load(name="L6", about="slow readers", events=_slow_readers, settings=_ROOM),
    )
}
