"""Load generators L1 to L6: which client asks what, when and how urgently, from one seed. Pure."""

import itertools
import math
from collections import deque
from collections.abc import Iterator
from random import Random

import msgspec

from stress.faults.base import FaultSetup
from stress.plan import Plan

_ZIPF = 1.1
_PRIORITIES = (3, 5, 10)
_PRIORITY_WEIGHTS = (2, 5, 3)
_RECENT_PER_WORKER = 2
_LONGEST_TURNS = 5.0


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One request: ``at`` seconds after the run began; ``turn``: seconds of its turn; ``prefix``: of its prompt.

    ``alone``: sent only when every earlier request has its outcome.
    """

    number: int
    at: float
    session: str
    role: str
    priority: int
    turn: float
    agent: str = "main"
    prefix: str = ""
    alone: bool = False
    faulty: bool = False


def zipf_weights(count: int) -> list[float]:
    """Relative popularity of ``count`` profiles: 1 / n ** 1.1 for the n-th."""
    return [1 / (rank**_ZIPF) for rank in range(1, count + 1)]


class Clients:
    """The sessions of a run, each with one profile, and the choice of the next one."""

    def __init__(self, plan: Plan, rng: Random) -> None:
        self._rng = rng
        self._turn = plan.turn
        self._roles = rng.choices(plan.roles, zipf_weights(len(plan.roles)), k=plan.sessions)
        self._unseen = list(range(plan.sessions))
        rng.shuffle(self._unseen)
        self._seen: list[int] = []
        self._recent: deque[int] = deque(maxlen=_RECENT_PER_WORKER * plan.workers)
        self._remaining = plan.requests
        self._at_once = plan.workers

    def role(self, session: int) -> str:
        """The profile of a session, which it keeps."""
        return self._roles[session]

    def next_session(self) -> int:
        """A new session, often enough that all are used by the end; else a recent one or any.

        The first ones are new, one for each worker: fewer could not use the pool, as a session has one turn at a time.
        """
        rng = self._rng
        is_new = len(self._seen) < self._at_once or rng.random() * max(1, self._remaining) < len(self._unseen)
        self._remaining -= 1
        if self._unseen and is_new:
            session = self._unseen.pop()
            self._seen.append(session)
        else:
            session = rng.choice(self._recent if rng.random() < 0.5 else self._seen)
        self._recent.append(session)
        return session

    def arrival(self, number: int, at: float, session: int, *, alone: bool = False) -> Arrival:
        """The request of that session at that time."""
        rng = self._rng
        turn = min(rng.expovariate(1 / self._turn), _LONGEST_TURNS * self._turn) if self._turn else 0.0
        return Arrival(
            number=number,
            at=at,
            session=f"s{session:05}",
            role=self.role(session),
            priority=rng.choices(_PRIORITIES, _PRIORITY_WEIGHTS)[0],
            turn=round(turn, 3),
            alone=alone,
        )


def mix_in_faulty(arrivals: Iterator[Arrival], faulty: FaultSetup, rng: Random, sessions: int) -> Iterator[Arrival]:
    """The same arrivals; the share ``faulty.share`` of them goes to profiles with faulty workers."""
    if not faulty.profiles:
        yield from arrivals
        return
    prompts = itertools.cycle(faulty.prompts)
    for arrival in arrivals:
        if rng.random() >= faulty.share:
            yield arrival
            continue
        agent, role = rng.choice(faulty.profiles)
        session = f"faulty-{agent}-{role}-{rng.randrange(sessions):03}"
        yield msgspec.structs.replace(
            arrival, session=session, agent=agent, role=role, prefix=next(prompts), faulty=True
        )


def arrivals(plan: Plan, rng: Random) -> Iterator[Arrival]:
    """All requests of the plan's load in order of time, determined by ``rng``."""
    crowd = Clients(plan, rng)
    yield from _bursts(plan, crowd) if plan.load == "L3" else _steady(plan, crowd, rng)


def _steady(plan: Plan, crowd: Clients, rng: Random) -> Iterator[Arrival]:
    """Independent arrivals, ``plan.rate`` a second after the ramp."""
    passed = 0.0
    for number in range(plan.requests):
        passed += rng.expovariate(1.0)
        at = _arrival_time(plan, passed)
        if plan.is_timed and at > plan.seconds:
            return
        yield crowd.arrival(number, at, crowd.next_session())


def _arrival_time(plan: Plan, requests: float) -> float:
    """Time at which this number of requests is expected; the rate grows linearly during the ramp."""
    in_ramp = plan.rate * plan.ramp / 2
    return (
        math.sqrt(2 * plan.ramp * requests / plan.rate) if requests < in_ramp else plan.ramp / 2 + requests / plan.rate
    )


def _bursts(plan: Plan, crowd: Clients) -> Iterator[Arrival]:
    """``plan.burst`` requests at once, the next burst when all of those have their outcomes."""
    for number in range(plan.requests):
        yield crowd.arrival(number, 0.0, number % plan.sessions, alone=number > 0 and number % plan.burst == 0)
