"""What is known of the requests, sessions and workers so far; every judge reads it before it takes in the next fact."""

import itertools
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from stress.facts import (
    Accepted,
    Answered,
    Asked,
    Delayed,
    Fact,
    Forgotten,
    Injected,
    LifeBegan,
    LifeEnded,
    Moved,
    Refused,
    Started,
)

__all__ = ["CLOCK", "DAMAGED", "EVERYBODY", "KEPT", "Book", "Entry", "Talk"]

KEPT = 20_000
"""Requests that have ended are forgotten when there are more of them, but for their session."""
_DELAY_WINDOW = 3.0
_FAULTS_KEPT = 1000
_CLOCK_SLACK = 1.0
"""A clock is right again so many seconds after it was to be, at most."""
DAMAGED = "resume_failed"
"""The code of requests of a session whose transcript cannot be read, whenever it was damaged."""
EVERYBODY = "*"
"""The worker of a fault that is done to all of them."""
CLOCK = "clock"
"""What the actions of a fault begin with that sets the supervisor's wall clock."""


class Entry:
    """One request. Times are ``t`` of the facts, None = not yet; those in ``_at`` on the supervisor's clock."""

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

    def __init__(self, asked: Asked) -> None:
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


class Talk:
    """One session: its open requests, its worker, its last request that was answered, how many turns began since.

    ``was_hit``: its worker was, or all were, or their supervisor ended, at any time since it was first heard of.
    ``last_worker``: the one that has its transcript, or had it last.
    """

    __slots__ = ("answered", "begun_since", "last_worker", "open", "was_hit", "worker")

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.worker = ""
        self.answered: int | None = None
        self.begun_since = 0
        self.was_hit = False
        self.last_worker = ""


class Book:
    """``entries`` has the open requests and the latest ended ones, ``sessions`` the session of every request."""

    def __init__(self) -> None:
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self.sessions: dict[int, str] = {}
        self.talks: dict[str, Talk] = {}
        self.running: dict[str, set[int]] = {}
        """By worker: the requests whose turns it runs."""
        self.born: dict[str, float] = {}
        """By worker of this life: when it was started."""
        self.faults: list[Injected] = []
        """The latest ones, in order."""
        self._on: dict[str, str] = {}
        """By worker: the session that it had last."""
        self._faults_on: dict[str, list[Injected]] = {}
        self._longest_fault = 0.0
        self.life = 0
        self.life_began = 0.0
        self.is_alive = False
        self._on.clear()
        self._hit(self.talks)
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._delays: list[Delayed] = []

    def delay(self) -> float:
        """How late this machine has been of late, in seconds."""
        return max((delay.seconds for delay in self._delays), default=0.0)

    def talk(self, session: str) -> Talk:
        """The session; a new one where it was never heard of."""
        talk = self.talks.get(session)
        if talk is None:
            talk = self.talks[session] = Talk()
        return talk

    def faults_since(self, t: float) -> Iterable[Injected]:
        """Those injected after ``t``, or still going on then."""
        recent = itertools.takewhile(lambda fault: fault.t + self._longest_fault >= t, reversed(self.faults))
        return (fault for fault in recent if fault.t + fault.seconds >= t)

    def faults_on(self, worker: str) -> Sequence[Injected]:
        """The latest ones that were done to that worker, in order; ``*``: to all of them."""
        return self._faults_on.get(worker, ())

    def is_disturbed_since(self, t: float) -> bool:
        """Whether requests may have felt a fault since ``t``, or a further supervisor has begun its life."""
        has_new_life = self.life > 1 and self.life_began >= t
        return has_new_life or any(fault.hurts for fault in self.faults_since(t))

    def may_be_damaged(self, session: str) -> bool:
        """Whether a fault may have damaged the session's transcript, however long ago: it fails when it is read."""
        return self.talk(session).was_hit

    def clock_was_set_since(self, t: float) -> bool:
        """Whether somebody has set the supervisor's wall clock, so that its times from before say nothing now."""
        return any(fault.action.startswith(CLOCK) for fault in self.faults_since(t - _CLOCK_SLACK))

    def take(self, fact: Fact) -> None:
        """Take the next fact in."""
        match fact:
            case Asked() | Accepted() | Started() | Answered() | Refused() | Forgotten():
                self._take_request(fact)
            case Moved():
                self._move(fact)
            case LifeBegan():
                self.life, self.life_began, self.is_alive = fact.life, fact.t, True
            case LifeEnded():
                self._end_life()
            case Injected():
                self._note_fault(fact)
            case Delayed():
                self._delays = [delay for delay in self._delays if delay.t > fact.t - _DELAY_WINDOW]
                self._delays.append(fact)
            case _:
                pass

    def _note_fault(self, fact: Injected) -> None:
        if fact.hurts:
            self._hit(list(self.talks) if fact.worker == EVERYBODY else [self._on.get(fact.worker, "")])
        if len(self.faults) > 2 * _FAULTS_KEPT:
            self.faults = self.faults[-_FAULTS_KEPT:]
            self._faults_on = {}
            for fault in self.faults:
                self._faults_on.setdefault(fault.worker, []).append(fault)
        self.faults.append(fact)
        self._faults_on.setdefault(fact.worker, []).append(fact)
        self._longest_fault = max(self._longest_fault, fact.seconds)

    def _hit(self, sessions: Iterable[str]) -> None:
        for session in sessions:
            self.talk(session).was_hit = True

    def _take_request(self, fact: Asked | Accepted | Started | Answered | Refused | Forgotten) -> None:
        match fact:
            case Asked():
                self.entries[fact.number] = Entry(fact)
                self.sessions[fact.number] = sys.intern(fact.session)  # that of every request is kept
                self.talk(fact.session).open.add(fact.number)
            case Accepted():
                self._accept(fact)
            case Started():
                self._start(fact)
            case Answered():
                self._end(fact.number, fact.t, fact.reason, fact.code)
            case Refused():
                self._end(fact.number, fact.t, "refused", fact.code)
            case Forgotten():
                self._end(fact.number, fact.t, "forgotten", "")

    def _accept(self, fact: Accepted) -> None:
        entry = self.entries.get(fact.number)
        if entry is None or entry.accepted is not None:
            return
        talk = self.talk(entry.asked.session)
        entry.accepted, entry.accepted_at, entry.life = fact.t, fact.at, self.life
        entry.is_alone = len(talk.open) == 1
        entry.waits = entry.is_alone and not talk.worker and entry.started is None

    def _start(self, fact: Started) -> None:
        entry = self.entries.get(fact.number)
        if entry is None:
            return
        entry.started, entry.started_at = fact.t, fact.at
        entry.worker, entry.waits = fact.worker, False
        self.running.setdefault(fact.worker, set()).add(fact.number)
        self.talk(entry.asked.session).begun_since += 1

    def _end(self, number: int, t: float, reason: str, code: str) -> None:
        entry = self.entries.get(number)
        if entry is None or entry.ended is not None:
            return
        entry.ended, entry.reason, entry.code, entry.waits = t, reason, code, False
        self.running.get(entry.worker, set()).discard(number)
        talk = self.talk(entry.asked.session)
        talk.open.discard(number)
        if reason == "completed":
            talk.answered, talk.begun_since = number, 0
        elif code == "resume_failed":  # its transcript was set aside, and it begins anew
            talk.answered = None
        self._ended[number] = None
        if len(self._ended) > KEPT:
            forgotten, _ = self._ended.popitem(last=False)
            del self.entries[forgotten]

    def _move(self, fact: Moved) -> None:
        match fact.what:
            case "session_bound":
                talk = self.talk(fact.session)
                talk.worker = talk.last_worker = fact.worker
                talk.was_hit |= any(fault.hurts for fault in self.faults_on(fact.worker))
                self._on[fact.worker] = fact.session
                for number in talk.open:
                    self.entries[number].waits = False
            case "session_parked" | "session_failed":
                self.talk(fact.session).worker = ""
            case "worker_spawned":
                self.born[fact.worker] = fact.t
            case "worker_exited":
                self.running.pop(fact.worker, None)
                self._on.pop(fact.worker, None)
            case _:
                pass

    def _end_life(self) -> None:
        self.is_alive = False
        self.running.clear()
        self.born.clear()
        for talk in self.talks.values():
            talk.worker = ""
        for number in {number for talk in self.talks.values() for number in talk.open}:
            self.entries[number].waits = False
