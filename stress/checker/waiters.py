"""Checks of I5 and I6: requests are served in order, never beside a worker that fits, never after their deadline."""

import heapq
import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from stress.checker.base import CheckRules, InvariantCheck, ObservedRequest, ObservedState, Violation
from stress.facts import (
    Fact,
    PoolEvent,
    RequestAccepted,
    RequestAnswered,
    RequestStarted,
    StatusSample,
    SupervisorEnded,
)

_GRANT_SECONDS = 0.25
"""Seconds from the grant of a worker to the turn's start."""
_STATUS_SECONDS = 2.0
"""Seconds between two status samples, at most."""
_HELD_SECONDS = 90.0
"""Seconds by which a silent worker is detected and ended: two ping intervals and the grace."""
_QUEUED = "queued"
"""The state of a waiter that any matching worker could serve."""


class _Suspicion(NamedTuple):
    """``favoured`` got a worker at ``t``; ``passed`` must get one soon after."""

    t: float
    passed: int
    favoured: int


class FairOrder(InvariantCheck):
    """I5: within a profile the longest waiter is served first; a step of priority is worth ``age_step`` seconds."""

    invariant = "I5"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._heaps: dict[str, list[tuple[float, int]]] = {}
        self._keys: dict[int, float] = {}
        self._suspicions: deque[_Suspicion] = deque()
        self._reserved_at: dict[str, float] = {}
        """By session: when status last showed it waiting for one certain worker.

        Its former worker still holds its transcript, or the granted one is being prepared.
        """

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check bindings and starts of turns."""
        yield from self._resolve_suspicions(fact.t, state)
        match fact:
            case RequestAccepted():
                self._enqueue(fact, state)
            case RequestStarted():
                yield from self._check_session_order(fact, state)
                self._serve(fact, fact.number, state)
            case PoolEvent(what="session_bound"):
                for number in state.session(fact.session).open:
                    self._serve(fact, number, state)
            case StatusSample():
                self._reserved_at |= {waiter.session: fact.t for waiter in fact.waiting if waiter.state != _QUEUED}
            case SupervisorEnded():
                self._reserved_at.clear()
                self._heaps.clear()
                self._keys.clear()
                self._suspicions.clear()
            case _:
                pass

    def _enqueue(self, fact: RequestAccepted, state: ObservedState) -> None:
        entry = state.requests.get(fact.number)
        if entry is None or entry.accepted is not None or entry.started is not None or entry.ended is not None:
            return
        talk = state.session(entry.asked.session)
        if talk.worker or len(talk.open) > 1 or entry.asked.faulty:
            return
        key = fact.t - entry.asked.priority * self.rules.age_step
        self._keys[fact.number] = key
        heapq.heappush(self._heaps.setdefault(entry.asked.profile, []), (key, fact.number))

    def _check_session_order(self, fact: RequestStarted, state: ObservedState) -> Iterator[Violation]:
        """One turn at a time, those of one priority in order of acceptance."""
        entry = state.requests.get(fact.number)
        if entry is None or entry.started is not None or entry.ended is not None or entry.accepted is None:
            return
        self.checked += 1
        others = (state.requests[number] for number in state.session(entry.asked.session).open if number != fact.number)
        for other in others:
            if other.life != entry.life or other.accepted is None or entry.life != state.life:
                continue
            if other.started is not None:
                what = f"request {fact.number} began while {other.asked.number} of its session was running"
                yield Violation(what, (fact.number, other.asked.number))
            elif (
                other.asked.priority == entry.asked.priority
                and other.accepted_at < entry.accepted_at
                and not state.clock_was_set_since(min(entry.accepted, other.accepted))
            ):
                what = f"request {fact.number} began before {other.asked.number} of its session, which came before it"
                yield Violation(what, (fact.number, other.asked.number))

    def _serve(self, fact: RequestStarted | PoolEvent, number: int, state: ObservedState) -> None:
        key = self._keys.pop(number, None)
        entry = state.requests.get(number)
        if key is None or entry is None:
            return
        heap = self._heaps[entry.asked.profile]
        while heap and not self._still_waits(heap[0][1], state):
            heapq.heappop(heap)
        self.checked += 1
        slack = self.rules.order_slack + state.delay()
        if heap and heap[0][0] + slack < key and state.requests[heap[0][1]].accepted_at < fact.at:
            self._suspicions.append(_Suspicion(fact.t, heap[0][1], number))

    def _still_waits(self, number: int, state: ObservedState) -> bool:
        entry = state.requests.get(number)
        return number in self._keys and entry is not None and entry.waits

    def _resolve_suspicions(self, now: float, state: ObservedState) -> Iterator[Violation]:
        slack = self.rules.order_slack + state.delay()
        while self._suspicions and self._suspicions[0].t + slack <= now:
            suspicion = self._suspicions.popleft()
            if self._still_waits(suspicion.passed, state) and not self._was_reserved(suspicion, state):
                what = f"request {suspicion.favoured} was served before {suspicion.passed}, whose turn it was"
                yield Violation(what, (suspicion.passed, suspicion.favoured))

    def _was_reserved(self, suspicion: _Suspicion, state: ObservedState) -> bool:
        session = state.requests[suspicion.passed].asked.session
        at = self._reserved_at.get(session, -math.inf)
        if at > suspicion.t - _STATUS_SECONDS:
            return True
        # With many sessions status samples are rare; a suspended worker keeps what it holds until it is ended.
        since = (state.requests[suspicion.passed].accepted or 0.0) - _HELD_SECONDS - state.delay()
        held_up = state.faults_on(state.session(session).last_worker)
        return any(fault.hurts and fault.t + fault.seconds >= since for fault in held_up)


class WaitDeadlines(InvariantCheck):
    """I6: no request waits while a matching worker is idle; each is served or rejected by its deadline."""

    invariant = "I6"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._last: StatusSample | None = None

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check starts, outcomes of requests that never started, and status samples."""
        if isinstance(fact, RequestAnswered | RequestStarted):
            entry = state.requests.get(fact.number)
            if entry is not None and entry.started is None and entry.ended is None and entry.life == state.life:
                yield from self._check_deadline(fact, entry, state)
        elif isinstance(fact, StatusSample):
            yield from self._check_idle_workers(fact)
            self._last = fact

    def _check_deadline(
        self, fact: RequestAnswered | RequestStarted, entry: ObservedRequest, state: ObservedState
    ) -> Iterator[Violation]:
        if entry.accepted is None or state.clock_was_set_since(entry.accepted):
            return
        self.checked += 1
        late = fact.at - entry.accepted_at - entry.asked.timeout
        begins = isinstance(fact, RequestStarted)
        if late > self.rules.deadline_grace + state.delay() + (_GRANT_SECONDS if begins else 0.0):
            what = f"request {fact.number} waited {round(1000 * late)} ms beyond its deadline"
            yield Violation(f"{what}, and began even so" if begins else what, (fact.number,))

    def _check_idle_workers(self, now: StatusSample) -> Iterator[Violation]:
        """The same waiter and the same idle worker in two samples, a second or more apart."""
        last = self._last
        if last is None or last.life != now.life or {last.mode, now.mode} != {"running"}:
            return
        self.checked += 1
        idle = {(worker.id, worker.turns): worker for worker in last.workers if worker.state == "idle"}
        waited = {waiter.request for waiter in last.waiting}
        queued = (waiter for waiter in now.waiting if waiter.state == _QUEUED)
        still = {waiter.profile: waiter for waiter in queued if waiter.request in waited}
        for worker in now.workers:
            waiter = still.get(worker.profile)
            known = idle.get((worker.id, worker.turns))
            if waiter and known and worker.state == "idle" and worker.retiring is None:
                yield Violation(
                    f"{waiter.request} waits ({waiter.why}) beside {worker.id}, which is idle", worker=worker.id
                )
