"""The interface of an invariant check, and the state of requests, sessions and workers that all checks read.

A check receives each fact once, in order, and returns violations. The shared state takes a fact after all checks.
"""

import itertools
import math
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import msgspec

from stress.facts import (
    ALL_WORKERS,
    DAMAGED_TRANSCRIPT,
    Fact,
    FaultInjected,
    MachineDelay,
    PoolEvent,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
    SupervisorEnded,
    SupervisorStarted,
)

_MAX_ENDED = 20_000
"""Requests that have ended are forgotten when there are more of them, but for their session."""
_DELAY_WINDOW = 3.0
_DELAY_PERIOD = 1.0
"""Of so many seconds, and its own length before them, a delay is told."""
_MAX_FAULTS = 1000
_CLOCK_SLACK = 5.0
"""A clock is right again so many seconds after it was to be, at most, and this machine's lateness."""
_REPLAY_SECONDS = 5.0
"""For so long after a supervisor's beginning events of the one before may be heard, as its bindings."""
CLOCK = "clock"
"""What the actions of a fault begin with that sets the supervisor's wall clock."""


class ObservedRequest:
    """One request. Times are ``t`` of the facts, None = not yet; those in ``_value_at`` on the supervisor's clock."""

    __slots__ = (
        "accepted",
        "accepted_at",
        "asked",
        "code",
        "ended",
        "is_alone",
        "life",
        "reason",
        "started",
        "started_at",
        "waits",
        "worker",
    )

    def __init__(self, asked: RequestAsked) -> None:
        self.asked = asked
        self.accepted: float | None = None
        self.accepted_at = 0.0
        self.started: float | None = None
        self.started_at = 0.0
        self.ended: float | None = None
        self.worker = ""
        self.reason = ""
        self.code = ""
        self.life = 0
        self.is_alone = False
        """No other request of its session is open."""
        self.waits = False
        """It waits for any worker that fits: its session has none of its own."""


class ObservedSession:
    """One session: its open requests, its worker, its last request that was answered, how many turns began since.

    ``last_worker``: the one that has its transcript, or had it last; ``bound``: since when it had it. Until
    ``hit_until`` something was done to a worker of the session; at ``whole`` its transcript was certainly whole, since
    it was read, or began, later, and a turn was completed.
    """

    __slots__ = ("answered", "begun_since", "bound", "hit_until", "last_worker", "open", "whole", "worker")

    def __init__(self, t: float) -> None:
        self.open: set[int] = set()
        self.worker = ""
        self.answered: int | None = None
        self.begun_since = 0
        self.last_worker = ""
        self.bound = t
        self.hit_until = -math.inf
        self.whole = t


class ObservedState:
    """``entries`` has the open requests and the latest ended ones, ``sessions`` the session of every request."""

    def __init__(self) -> None:
        self.requests: OrderedDict[int, ObservedRequest] = OrderedDict()
        self.sessions: dict[int, str] = {}
        self.session_states: dict[str, ObservedSession] = {}
        self.running: dict[str, set[int]] = {}
        """By worker: the requests whose turns it runs."""
        self.spawned_at: dict[str, float] = {}
        """By worker of this life: when it was started."""
        self.faults: list[FaultInjected] = []
        """The latest ones, in order."""
        self._session_on: dict[str, str] = {}
        """By worker: the session that it had last."""
        self._faults_on: dict[str, list[FaultInjected]] = {}
        self._longest_fault = 0.0
        self._all_faulted_until = -math.inf
        """Until when something was done to all workers."""
        self._now = self._reached = 0.0
        self._supervisor_ended_at = -math.inf
        self.life = 0
        self.supervisor_started_at = 0.0
        self.is_alive = False
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._delays: list[MachineDelay] = []

    def delay(self) -> float:
        """How late this machine was at the time that is being judged, or of late, in seconds."""
        known = (each.seconds for each in self._delays if each.t - each.seconds - _DELAY_PERIOD <= self._reached)
        return max(known, default=0.0)

    def add_delay(self, delay: MachineDelay) -> None:
        """What is judged from now on may have been late by so much."""
        self._delays.append(delay)

    def advance_to(self, t: float) -> None:
        """The next fact, which is of that time, is about to be judged."""
        self._reached = t
        self._delays = [delay for delay in self._delays if delay.t > t - _DELAY_WINDOW]

    def session(self, session: str) -> ObservedSession:
        """The session; a new one where it was never heard of."""
        talk = self.session_states.get(session)
        if talk is None:
            talk = self.session_states[session] = ObservedSession(self._now)
        return talk

    def faults_since(self, t: float) -> Iterable[FaultInjected]:
        """Those injected after ``t``, or still going on then."""
        recent = itertools.takewhile(lambda fault: fault.t + self._longest_fault >= t, reversed(self.faults))
        return (fault for fault in recent if fault.t + fault.seconds >= t)

    def faults_on(self, worker: str) -> Sequence[FaultInjected]:
        """The latest ones that were done to that worker of this life, in order, or to all: ``ALL_WORKERS``."""
        return self._faults_on.get(worker, ())

    def is_disturbed_since(self, t: float) -> bool:
        """Whether requests may have felt a fault since ``t``, or a further supervisor has begun its life."""
        has_new_life = self.life > 1 and self.supervisor_started_at >= t
        return has_new_life or any(fault.hurts for fault in self.faults_since(t))

    def may_be_damaged(self, session: str) -> bool:
        """Whether a fault may have damaged the session's transcript, however long ago: it fails when it is read."""
        talk = self.session(session)
        return max(talk.hit_until, self._all_faulted_until) + self.delay() >= talk.whole

    def clock_was_set_since(self, t: float) -> bool:
        """Whether somebody has set the supervisor's wall clock, so that its times from before say nothing now."""
        return any(fault.action.startswith(CLOCK) for fault in self.faults_since(t - _CLOCK_SLACK - self.delay()))

    def apply(self, fact: Fact) -> None:
        """Take the next fact in."""
        self._now = fact.t
        match fact:
            case (
                RequestAsked()
                | RequestAccepted()
                | RequestStarted()
                | RequestAnswered()
                | RequestRefused()
                | RequestForgotten()
            ):
                self._apply_request(fact)
            case PoolEvent():
                self._apply_pool_event(fact)
            case SupervisorStarted():
                self._on_supervisor_started(fact)
            case SupervisorEnded():
                self._on_supervisor_ended(fact.t)
            case FaultInjected():
                self._add_fault(fact)
            case _:
                pass

    def _add_fault(self, fact: FaultInjected) -> None:
        until = fact.t + fact.seconds
        if fact.hurts and fact.worker == ALL_WORKERS:
            self._all_faulted_until = max(self._all_faulted_until, until)
        elif fact.hurts and (session := self._session_on.get(fact.worker)) is not None:
            self.session(session).hit_until = max(self.session(session).hit_until, until)
        if len(self.faults) > 2 * _MAX_FAULTS:
            self.faults = self.faults[-_MAX_FAULTS:]
            self._index_faults()
        self.faults.append(fact)
        self._faults_on.setdefault(fact.worker, []).append(fact)
        self._longest_fault = max(self._longest_fault, fact.seconds)

    def _index_faults(self) -> None:
        """By worker. Workers of each life have the names of those of the life before, and none of their faults."""
        self._faults_on = {}
        for fault in self.faults:
            if fault.worker == ALL_WORKERS or fault.t >= self._supervisor_ended_at:
                self._faults_on.setdefault(fault.worker, []).append(fault)

    def _apply_request(
        self,
        fact: RequestAsked | RequestAccepted | RequestStarted | RequestAnswered | RequestRefused | RequestForgotten,
    ) -> None:
        match fact:
            case RequestAsked():
                self.requests[fact.number] = ObservedRequest(fact)
                self.sessions[fact.number] = sys.intern(fact.session)  # that of every request is kept
                self.session(fact.session).open.add(fact.number)
            case RequestAccepted():
                self._accept(fact)
            case RequestStarted():
                self._start(fact)
            case RequestAnswered():
                self._end(fact.number, fact.t, fact.reason, fact.code)
            case RequestRefused():
                self._end(fact.number, fact.t, "refused", fact.code)
            case RequestForgotten():
                self._end(fact.number, fact.t, "forgotten", "")

    def _accept(self, fact: RequestAccepted) -> None:
        entry = self.requests.get(fact.number)
        if entry is None or entry.accepted is not None:
            return
        talk = self.session(entry.asked.session)
        entry.accepted, entry.accepted_at, entry.life = fact.t, fact.at, self.life
        entry.is_alone = len(talk.open) == 1
        entry.waits = entry.is_alone and not talk.worker and entry.started is None

    def _start(self, fact: RequestStarted) -> None:
        entry = self.requests.get(fact.number)
        if entry is None:
            return
        entry.started, entry.started_at = fact.t, fact.at
        entry.worker, entry.waits = fact.worker, False
        self.running.setdefault(fact.worker, set()).add(fact.number)
        self.session(entry.asked.session).begun_since += 1

    def _end(self, number: int, t: float, reason: str, code: str) -> None:
        entry = self.requests.get(number)
        if entry is None or entry.ended is not None:
            return
        entry.ended, entry.reason, entry.code, entry.waits = t, reason, code, False
        self.running.get(entry.worker, set()).discard(number)
        talk = self.session(entry.asked.session)
        talk.open.discard(number)
        if reason == "completed":
            talk.answered, talk.begun_since = number, 0
            if entry.worker == talk.last_worker and entry.started is not None:
                talk.whole = max(talk.whole, talk.bound)
        elif code == DAMAGED_TRANSCRIPT:  # its transcript was set aside, and it starts a new one
            talk.answered = None
        self._ended[number] = None
        if len(self._ended) > _MAX_ENDED:
            forgotten, _ = self._ended.popitem(last=False)
            del self.requests[forgotten]

    def _apply_pool_event(self, fact: PoolEvent) -> None:
        match fact.what:
            case "session_bound":
                talk = self.session(fact.session)
                talk.worker = talk.last_worker = fact.worker
                talk.bound = fact.t
                if any(fault.hurts for fault in self.faults_on(fact.worker)):
                    talk.hit_until = max(talk.hit_until, fact.t)  # whatever was done to it may end it yet
                self._session_on[fact.worker] = fact.session
                for number in talk.open:
                    self.requests[number].waits = False
            case "session_parked" | "session_failed":
                self.session(fact.session).worker = ""
            case "worker_spawned":
                self.spawned_at[fact.worker] = fact.t
            case "worker_exited":
                self.running.pop(fact.worker, None)
                self._session_on.pop(fact.worker, None)
            case _:
                pass

    def _on_supervisor_started(self, fact: SupervisorStarted) -> None:
        self._clear_workers()  # whom late events have named
        if fact.life > 1:
            self._all_faulted_until = max(self._all_faulted_until, fact.t + _REPLAY_SECONDS)
        self.life, self.supervisor_started_at, self.is_alive = fact.life, fact.t, True
        self._index_faults()

    def _on_supervisor_ended(self, t: float) -> None:
        """As a fault that is done to all workers, who are gone."""
        self.is_alive = False
        self._supervisor_ended_at = t
        self._all_faulted_until = max(self._all_faulted_until, t)
        self._clear_workers()

    def _clear_workers(self) -> None:
        self._session_on.clear()
        self.running.clear()
        self.spawned_at.clear()
        for talk in self.session_states.values():
            talk.worker = talk.last_worker = ""
        for number in {number for talk in self.session_states.values() for number in talk.open}:
            self.requests[number].waits = False


Harm = Literal["lost", "duplicated", "foreign"]
"""What became of a request that must not: no outcome, more than one, words of another session."""


class CheckRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool has promised, in numbers: limits of its settings, seconds, bytes; and what its faults explain.

    ``overload``: codes that requests may end with at any time, since more is asked than can be done; ``explains``:
    those that they may end with when a fault was injected meanwhile, or not long before. Of all requests at least
    the share ``min_completed`` must be completed, and without overload at most ``max_timed_out`` may time out. Between
    ``ramp`` and ``calm`` seconds the load was full and there was no fault. ``compares_waits``: whether waiting times
    under faults can be compared with those before (enough workers, no overload). ``max_delivery_delay``: seconds until
    a front end receives an outcome although others read slowly. ``rss_growth``: how many times its size after the
    warm-up the supervisor may grow to; 0 = not judged.
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
    max_delivery_delay: float = math.inf
    overload: frozenset[str] = frozenset()
    explains: frozenset[str] = frozenset()
    min_completed: float = 0.0
    max_timed_out: float = 1.0
    ramp: float = 0.0
    calm: float = 0.0
    compares_waits: bool = False


class Violation(NamedTuple):
    """A broken promise: in a sentence, which requests, workers (by name) and pids it is about, and the harm done."""

    what: str
    numbers: tuple[int, ...] = ()
    worker: str = ""
    pids: tuple[int, ...] = ()
    harm: Harm | None = None


class InvariantCheck(ABC):
    """Judges one invariant. ``checked``: how often it could have been found broken; ``note``: what limits it."""

    invariant: ClassVar[str]

    def __init__(self, rules: CheckRules) -> None:
        self.rules = rules
        self.checked = 0
        self.note = ""

    @abstractmethod
    def check(self, fact: Fact, book: ObservedState) -> Iterator[Violation]:
        """What is wrong, judging by this fact and by the book as it was before it."""
