"""Checks of I1 and I2: each request has one outcome, and it is its own."""

from collections.abc import Iterator

from stress.checker.base import CheckRules, InvariantCheck, ObservedRequest, ObservedState, Violation
from stress.facts import (
    DAMAGED_TRANSCRIPT,
    DirectViolation,
    Fact,
    OrphanedRunEnded,
    OutcomeRemembered,
    PromptOccurrences,
    RequestAccepted,
    RequestAnswered,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
    WaitingEnded,
)

TIMED_OUT = frozenset({"acquire_timeout", "request_timeout"})
_AFTERMATH_SECONDS = 60.0
"""Seconds after a fault in which new requests may still be affected by what it held up."""
_MAX_EXCUSED_SHARE = 0.5
"""Share of requests that a busy machine may excuse; beyond it the run is no evidence, and fails."""
_MIN_REQUESTS = 40
"""Below this number of requests no share is checked."""
_BUSY_SECONDS = 0.5
"""Delay of the machine in seconds that excuses a request that timed out; full load alone causes half of it."""

_SHOWN_BEFORE = 3
"""Number of earlier prompts of its session that the scripted model repeats."""


class SingleOutcome(InvariantCheck):
    """I1: none lost, none reported twice, none sent again; faults explain failures, which are a minority."""

    invariant = "I1"

    def __init__(self, rules: CheckRules) -> None:
        super().__init__(rules)
        self._remembered: dict[int, OutcomeRemembered] = {}
        self._completed = bytearray()
        """By number, for more requests than the state keeps."""
        self._ended = self._completed_count = self._timed_out = self._excused = 0

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check acceptance, start, outcome and later lookups."""
        match fact:
            case RequestAccepted() | RequestStarted() | RequestAnswered() | RequestRefused():
                yield from self._check_step(fact, state.requests.get(fact.number), state)
            case OutcomeRemembered():
                yield from self._check_lookup(fact, state.requests.get(fact.number))
            case RequestForgotten():
                self.checked += 1
                yield _lost_violation(fact, state.requests.get(fact.number))
            case PromptOccurrences():
                yield from self._count_prompts(fact)
            case DirectViolation():
                yield Violation(fact.what)
            case OrphanedRunEnded():
                self.checked += 1
            case WaitingEnded():
                yield from _open_violations(state)
                yield from self._check_shares()
            case _:
                pass

    def _check_step(
        self,
        fact: RequestAccepted | RequestStarted | RequestAnswered | RequestRefused,
        entry: ObservedRequest | None,
        state: ObservedState,
    ) -> Iterator[Violation]:
        name = type(fact).__name__.lower()
        number = (fact.number,)
        if entry is None:
            yield Violation(
                f"request {fact.number} was {name}, long after its end or without having been asked", number
            )
        elif isinstance(fact, RequestAccepted):
            return  # an answer that was lost is asked for again, also after the outcome
        elif entry.ended is not None:
            what = f"request {fact.number} was {name} after it had ended: {entry.reason} {entry.code}"
            yield Violation(what, number, harm="duplicated")
        elif isinstance(fact, RequestStarted) and entry.started is not None:
            yield Violation(f"request {fact.number} was started twice", number, harm="duplicated")
        elif not isinstance(fact, RequestStarted):
            yield from self._check_end(fact, entry, state)

    def _check_end(
        self, fact: RequestAnswered | RequestRefused, entry: ObservedRequest, state: ObservedState
    ) -> Iterator[Violation]:
        self.checked += 1
        if fact.reason == "completed":
            self._mark_completed(fact.number)
            if entry.started is None and entry.life in (0, state.life):
                yield Violation(f"request {fact.number} was completed, and never began", (fact.number,))
        if (remembered := self._remembered.pop(fact.number, None)) is not None:
            yield from self._compare_lookup(remembered, fact.reason, fact.code)
        if entry.asked.faulty:
            return
        code = fact.code or fact.reason
        self._count(code, state)
        if code != "completed" and not self._is_explained(code, entry, state):
            yield Violation(f"request {fact.number} ended with {code!r}, which nothing explains", (fact.number,))

    def _is_explained(self, code: str, entry: ObservedRequest, state: ObservedState) -> bool:
        if code in self.rules.overload:
            return True
        if code not in self.rules.explains:
            return False
        if code == DAMAGED_TRANSCRIPT:
            return state.may_be_damaged(entry.asked.session)
        return state.is_disturbed_since(entry.asked.t - _AFTERMATH_SECONDS)

    def _count(self, code: str, state: ObservedState) -> None:
        self._ended += 1
        self._completed_count += code == "completed"
        if code in TIMED_OUT and code not in self.rules.overload:
            is_excused = state.delay() > _BUSY_SECONDS
            self._excused += is_excused
            self._timed_out += not is_excused

    def _mark_completed(self, number: int) -> None:
        self._completed.extend(bytes(max(0, number + 1 - len(self._completed))))
        self._completed[number] = True

    def _check_lookup(self, fact: OutcomeRemembered, entry: ObservedRequest | None) -> Iterator[Violation]:
        if entry is None or fact.reason == "live":
            return
        if entry.ended is None:
            self._remembered[fact.number] = fact
        else:
            yield from self._compare_lookup(fact, entry.reason, entry.code)

    def _compare_lookup(self, fact: OutcomeRemembered, reason: str, code: str) -> Iterator[Violation]:
        self.checked += 1
        if (fact.reason, fact.code) != (reason, code):
            ended, remembered = f"{reason} {code}", f"{fact.reason} {fact.code}"
            yield Violation(f"request {fact.number} ended {ended} and is remembered as {remembered}", (fact.number,))

    def _check_shares(self) -> Iterator[Violation]:
        """Faults may explain each failure, but not that most fail."""
        if self._ended < _MIN_REQUESTS:
            return
        self.checked += 1
        if self._excused:
            self.note = f"{self._excused} timed out on a busy machine and are excused"
        if self._timed_out > self.rules.max_timed_out * self._ended:
            yield Violation(f"{self._timed_out} of {self._ended} requests waited in vain until their time was up")
        if self._excused > _MAX_EXCUSED_SHARE * self._ended:
            yield Violation(
                f"{self._excused} of {self._ended} requests waited in vain, more than a busy machine explains"
            )
        if self._completed_count < self.rules.min_completed * (self._ended - self._excused):
            yield Violation(f"{self._completed_count} of {self._ended} requests were completed, and all others failed")

    def _count_prompts(self, fact: PromptOccurrences) -> Iterator[Violation]:
        self.checked += 1
        if fact.own > 1:
            what = f"request {fact.number} stands {fact.own} times in its transcript"
            yield Violation(what, (fact.number,), harm="duplicated")
        if fact.own == 0 and fact.number < len(self._completed) and self._completed[fact.number]:
            yield Violation(f"request {fact.number} was completed and stands in no transcript", (fact.number,))


class SessionIsolation(InvariantCheck):
    """I2: an answer has the words of its own request and session only; the session keeps its history."""

    invariant = "I2"

    def check(self, fact: Fact, state: ObservedState) -> Iterator[Violation]:
        """Check answers and transcripts."""
        if isinstance(fact, PromptOccurrences) and fact.foreign:
            what = f"the prompt of request {fact.number} stands in another session's transcript"
            yield Violation(what, (fact.number,), harm="foreign")
        if not isinstance(fact, RequestAnswered):
            return
        number = (fact.number,)
        self.checked += 1
        session = state.sessions.get(fact.number)
        if session is not None and fact.session != session:
            yield Violation(f"request {fact.number} of session {session} was answered in {fact.session}", number)
        foreign = [other for other in fact.said if state.sessions.get(other) != session]
        if foreign:
            what = f"the answer to request {fact.number} has words of {foreign}"
            yield Violation(what, (*number, *foreign), harm="foreign")
        if fact.strange:
            what = f"the answer to request {fact.number} has words of no request: {fact.strange}"
            yield Violation(what, number, harm="foreign")
        entry = state.requests.get(fact.number)
        if fact.reason == "completed" and entry is not None and not entry.asked.faulty:
            yield from self._check_own_nonce(fact, entry, state)

    def _check_own_nonce(
        self, fact: RequestAnswered, entry: ObservedRequest, state: ObservedState
    ) -> Iterator[Violation]:
        if fact.number not in fact.said:
            yield Violation(f"the answer to request {fact.number} does not have its own word", (fact.number,))
        talk = state.session(entry.asked.session)
        before = talk.answered
        if before is not None and talk.begun_since <= _SHOWN_BEFORE and before not in fact.said:
            what = f"session {entry.asked.session} has forgotten request {before} when it answers {fact.number}"
            yield Violation(what, (before, fact.number))


def _lost_violation(fact: RequestForgotten, entry: ObservedRequest | None) -> Violation:
    """A request is sent again on each connection until it is answered, so it must have arrived."""
    was = "sent without an answer" if entry is not None and entry.accepted is None else "accepted"
    return Violation(f"request {fact.number} was {was}, then unknown to the supervisor", (fact.number,), harm="lost")


def _open_violations(state: ObservedState) -> Iterator[Violation]:
    for number, entry in state.requests.items():
        if entry.ended is None:
            yield Violation(f"request {number} has no outcome: {_progress_text(entry)}", (number,), harm="lost")


def _progress_text(entry: ObservedRequest) -> str:
    if entry.accepted is None:
        return "it was never accepted"
    return "it was accepted and never begun" if entry.started is None else f"it was begun by {entry.worker}"
