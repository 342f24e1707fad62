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
"""Ended requests beyond this number are dropped; only their session is kept."""
_DELAY_WINDOW = 3.0
_DELAY_PERIOD = 1.0
"""Seconds that one delay report covers, in addition to the delay itself."""
_MAX_FAULTS = 1000
_CLOCK_SLACK = 5.0
"""Seconds after the planned end of a clock fault, plus the machine's delay, by which the clock is right again."""
_REPLAY_SECONDS = 5.0
"""Seconds after a supervisor's start in which events of the one before, such as bindings, may still arrive."""
CLOCK = "clock"
"""Prefix of the fault actions that set the supervisor's wall clock."""


class ObservedRequest:
    """One request. Times are ``t`` of the facts, None = not yet; those that end in ``_at``: the supervisor's clock."""

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
    """One session: open requests, worker, the last request that was answered, turns begun since.

    ``last_worker``: has the transcript, or had it last; ``bound``: when it got it. ``hit_until``: end of the last fault
    in a worker of the session. ``whole``: the latest time at which the transcript was certainly intact, because it was
    read or created later and a turn was completed.
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
    """``requests``: the open and the latest ended ones; ``sessions``: the session of every request, by number."""

    def __init__(self) -> None:
        self.requests: OrderedDict[int, ObservedRequest] = OrderedDict()
        self.sessions: dict[int, str] = {}
        self.session_states: dict[str, ObservedSession] = {}
        self.running: dict[str, set[int]] = {}
        """By worker: requests whose turns it runs."""
        self.spawned_at: dict[str, float] = {}
        """By worker of this life: start time."""
        self.faults: list[FaultInjected] = []
        """The latest ones, in order."""
        self._session_on: dict[str, str] = {}
        """By worker: its last session."""
        self._faults_on: dict[str, list[FaultInjected]] = {}
        self._longest_fault = 0.0
        self._all_faulted_until = -math.inf
        """End of the last fault of all workers."""
        self._now = self._reached = 0.0
        self._supervisor_ended_at = -math.inf
        self.life = 0
        self.supervisor_started_at = 0.0
        self.is_alive = False
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._delays: list[MachineDelay] = []

    def delay(self) -> float:
        """The machine's delay in seconds at, or shortly before, the time that is checked."""
        known = (each.seconds for each in self._delays if each.t - each.seconds - _DELAY_PERIOD <= self._reached)
        return max(known, default=0.0)

    def add_delay(self, delay: MachineDelay) -> None:
        """Tolerate this delay from now on."""
        self._delays.append(delay)

    def advance_to(self, t: float) -> None:
        """The next fact, of time ``t``, is about to be checked."""
        self._reached = t
        self._delays = [delay for delay in self._delays if delay.t > t - _DELAY_WINDOW]

    def session(self, session: str) -> ObservedSession:
        """The session, created if unknown."""
        talk = self.session_states.get(session)
        if talk is None:
            talk = self.session_states[session] = ObservedSession(self._now)
        return talk

    def faults_since(self, t: float) -> Iterable[FaultInjected]:
        """Faults injected after ``t`` or still active then."""
        recent = itertools.takewhile(lambda fault: fault.t + self._longest_fault >= t, reversed(self.faults))
        return (fault for fault in recent if fault.t + fault.seconds >= t)

    def faults_on(self, worker: str) -> Sequence[FaultInjected]:
        """The latest faults of that worker of this life, or of ``ALL_WORKERS``, in order."""
        return self._faults_on.get(worker, ())

    def is_disturbed_since(self, t: float) -> bool:
        """Whether requests may have been affected by a fault, or a supervisor was replaced, since ``t``."""
        has_new_life = self.life > 1 and self.supervisor_started_at >= t
        return has_new_life or any(fault.hurts for fault in self.faults_since(t))

    def may_be_damaged(self, session: str) -> bool:
        """Whether a fault, however old, may have damaged the session's transcript: reading it fails only later."""
        talk = self.session(session)
        return max(talk.hit_until, self._all_faulted_until) + self.delay() >= talk.whole

    def clock_was_set_since(self, t: float) -> bool:
        """Whether a fault has set the supervisor's wall clock, which makes its earlier times meaningless."""
        return any(fault.action.startswith(CLOCK) for fault in self.faults_since(t - _CLOCK_SLACK - self.delay()))

    def apply(self, fact: Fact) -> None:
        """Apply the next fact."""
        self._now = fact.t
        match fact:
            case RequestAsked():
                self.requests[fact.number] = ObservedRequest(fact)
                self.sessions[fact.number] = sys.intern(fact.session)  # that of every request is kept
                self.session(fact.session).open.add(fact.number)
            case RequestAccepted():
                self._accept(fact)
            case RequestStarted():
                self._start(fact)
            case RequestAnswered() | RequestRefused() | RequestForgotten():
                self._end(fact)
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
        """Index faults by worker: each life reuses the names of the one before, but not its faults."""
        self._faults_on = {}
        for fault in self.faults:
            if fault.worker == ALL_WORKERS or fault.t >= self._supervisor_ended_at:
                self._faults_on.setdefault(fault.worker, []).append(fault)

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

    def _end(self, fact: RequestAnswered | RequestRefused | RequestForgotten) -> None:
        number = fact.number
        entry = self.requests.get(number)
        if entry is None or entry.ended is not None:
            return
        entry.ended, entry.reason, entry.code, entry.waits = fact.t, fact.reason, fact.code, False
        self.running.get(entry.worker, set()).discard(number)
        talk = self.session(entry.asked.session)
        talk.open.discard(number)
        if fact.reason == "completed":
            talk.answered, talk.begun_since = number, 0
            if entry.worker == talk.last_worker and entry.started is not None:
                talk.whole = max(talk.whole, talk.bound)
        elif fact.code == DAMAGED_TRANSCRIPT:  # its transcript was set aside, and it starts a new one
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
                    talk.hit_until = max(talk.hit_until, fact.t)  # the fault may still end it
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
        self._clear_workers()  # late events may have named some
        if fact.life > 1:
            self._all_faulted_until = max(self._all_faulted_until, fact.t + _REPLAY_SECONDS)
        self.life, self.supervisor_started_at, self.is_alive = fact.life, fact.t, True
        self._index_faults()

    def _on_supervisor_ended(self, t: float) -> None:
        """Treat the end as a fault of all workers, which are gone."""
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
"""Harm to a request: no outcome, more than one, words of another session."""


class CheckRules(msgspec.Struct, frozen=True, kw_only=True):
    """The promises in numbers (limits of the pool's settings, seconds, bytes), and the errors that faults explain.

    ``overload``: codes that requests may end with at any time under overload; ``explains``: codes allowed during and
    shortly after a fault. At least the share ``min_completed`` of all requests must be completed; without overload at
    most the share ``max_timed_out`` may time out. Between ``ramp`` and ``calm`` seconds the load was full and without
    faults. ``compares_waits``: whether waiting times under faults can be compared with earlier ones (enough workers, no
    overload). ``max_delivery_delay``: seconds until a front end receives an outcome although others read slowly.
    ``rss_growth``: allowed growth factor of the supervisor after the warm-up; 0 = not checked.
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
    """A broken promise: sentence, requests, worker (by name) and pids concerned, harm done."""

    what: str
    numbers: tuple[int, ...] = ()
    worker: str = ""
    pids: tuple[int, ...] = ()
    harm: Harm | None = None


class InvariantCheck(ABC):
    """Checks one invariant. ``checked``: number of checks made; ``note``: what limits the judgement."""

    invariant: ClassVar[str]

    def __init__(self, rules: CheckRules) -> None:
        self.rules = rules
        self.checked = 0
        self.note = ""

    @abstractmethod
    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Yield the violations that this fact shows, given the state before it."""
