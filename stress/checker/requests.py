"""I1 and I2: each request has one outcome, and it is its own."""

from collections.abc import Iterator

from stress.checker.base import Blame, Book, Entry, Judge, Rules
from stress.facts import (
    DAMAGED,
    Accepted,
    Answered,
    Disordered,
    Fact,
    Forgotten,
    Outlived,
    Refused,
    Remembered,
    Silence,
    Started,
    Transcribed,
)

TIMED_OUT = frozenset({"acquire_timeout", "request_timeout"})
_FELT_SECONDS = 60.0
"""What was held up by a fault may be felt by requests that are asked so much later."""
_MOST_EXCUSED = 0.5
"""Of a machine on which more than half is late nothing can be said, and nothing good is said of its pool."""
_LEAST_TO_SHARE = 40
"""Of fewer requests no share is judged."""
_BUSY_SECONDS = 0.5
"""Where the machine makes things so late it may be why a request waited in vain; full load alone makes half of it."""

_SHOWN_BEFORE = 3
"""How many earlier prompts of its session the scripted model repeats."""


class OneOutcome(Judge):
    """I1: none lost, none told twice, nothing sent again; failures are explained by the faults, and are not most."""

    invariant = "I1"

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self._remembered: dict[int, Remembered] = {}
        self._completed = bytearray()
        """By number, for more requests than the book keeps."""
        self._ended = self._served = self._in_vain = self._excused = 0

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """Judge acceptance, start, outcome, and what is asked for later."""
        match fact:
            case Accepted() | Started() | Answered() | Refused():
                yield from self._step(fact, book.entries.get(fact.number), book)
            case Remembered():
                yield from self._remember(fact, book.entries.get(fact.number))
            case Forgotten():
                self.checked += 1
                yield _name_forgotten(fact, book.entries.get(fact.number))
            case Transcribed():
                yield from self._count_prompts(fact)
            case Disordered():
                yield Blame(fact.what)
            case Outlived():
                self.checked += 1
            case Silence():
                yield from _name_open(book)
                yield from self._judge_shares()
            case _:
                pass

    def _step(self, fact: Accepted | Started | Answered | Refused, entry: Entry | None, book: Book) -> Iterator[Blame]:
        name = type(fact).__name__.lower()
        number = (fact.number,)
        if entry is None:
            yield Blame(f"request {fact.number} was {name}, long after its end or without having been asked", number)
        elif isinstance(fact, Accepted):
            return  # an answer that was lost is asked for again, also after the outcome
        elif entry.ended is not None:
            what = f"request {fact.number} was {name} after it had ended: {entry.reason} {entry.code}"
            yield Blame(what, number, harm="duplicated")
        elif isinstance(fact, Started) and entry.started is not None:
            yield Blame(f"request {fact.number} was started twice", number, harm="duplicated")
        elif not isinstance(fact, Started):
            yield from self._end(fact, entry, book)

    def _end(self, fact: Answered | Refused, entry: Entry, book: Book) -> Iterator[Blame]:
        self.checked += 1
        reason = fact.reason if isinstance(fact, Answered) else "refused"
        if reason == "completed":
            self._complete(fact.number)
            if entry.started is None and entry.life in (0, book.life):
                yield Blame(f"request {fact.number} was completed, and never began", (fact.number,))
        if (remembered := self._remembered.pop(fact.number, None)) is not None:
            yield from self._compare(remembered, reason, fact.code)
        if entry.asked.wicked:
            return
        code = fact.code or reason
        self._count(code, book)
        if code != "completed" and not self._is_explained(code, entry, book):
            yield Blame(f"request {fact.number} ended with {code!r}, which nothing explains", (fact.number,))

    def _is_explained(self, code: str, entry: Entry, book: Book) -> bool:
        if code in self.rules.overload:
            return True
        if code not in self.rules.explains:
            return False
        if code == DAMAGED:
            return book.may_be_damaged(entry.asked.session)
        return book.is_disturbed_since(entry.asked.t - _FELT_SECONDS)

    def _count(self, code: str, book: Book) -> None:
        self._ended += 1
        self._served += code == "completed"
        if code in TIMED_OUT and code not in self.rules.overload:
            is_excused = book.delay() > _BUSY_SECONDS
            self._excused += is_excused
            self._in_vain += not is_excused

    def _complete(self, number: int) -> None:
        self._completed.extend(bytes(max(0, number + 1 - len(self._completed))))
        self._completed[number] = True

    def _remember(self, fact: Remembered, entry: Entry | None) -> Iterator[Blame]:
        if entry is None or fact.reason == "live":
            return
        if entry.ended is None:
            self._remembered[fact.number] = fact
        else:
            yield from self._compare(fact, entry.reason, entry.code)

    def _compare(self, fact: Remembered, reason: str, code: str) -> Iterator[Blame]:
        self.checked += 1
        if (fact.reason, fact.code) != (reason, code):
            told, remembered = f"{reason} {code}", f"{fact.reason} {fact.code}"
            yield Blame(f"request {fact.number} ended {told} and is remembered as {remembered}", (fact.number,))

    def _judge_shares(self) -> Iterator[Blame]:
        """Faults may explain each failure, but not that most fail."""
        if self._ended < _LEAST_TO_SHARE:
            return
        self.checked += 1
        if self._excused:
            self.note = f"{self._excused} waited in vain on a busy machine, for which nobody is blamed"
        if self._in_vain > self.rules.most_in_vain * self._ended:
            yield Blame(f"{self._in_vain} of {self._ended} requests waited in vain until their time was up")
        if self._excused > _MOST_EXCUSED * self._ended:
            yield Blame(f"{self._excused} of {self._ended} requests waited in vain, more than a busy machine explains")
        if self._served < self.rules.least_served * (self._ended - self._excused):
            yield Blame(f"{self._served} of {self._ended} requests were completed, and all others failed")

    def _count_prompts(self, fact: Transcribed) -> Iterator[Blame]:
        self.checked += 1
        if fact.own > 1:
            what = f"request {fact.number} stands {fact.own} times in its transcript"
            yield Blame(what, (fact.number,), harm="duplicated")
        if fact.own == 0 and fact.number < len(self._completed) and self._completed[fact.number]:
            yield Blame(f"request {fact.number} was completed and stands in no transcript", (fact.number,))


class Apart(Judge):
    """I2: an answer has the words of its own request and session, and no other's; the session knows its past."""

    invariant = "I2"

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """Judge what answers and transcripts say."""
        if isinstance(fact, Transcribed) and fact.foreign:
            what = f"the prompt of request {fact.number} stands in another session's transcript"
            yield Blame(what, (fact.number,), harm="foreign")
        if not isinstance(fact, Answered):
            return
        number = (fact.number,)
        self.checked += 1
        session = book.sessions.get(fact.number)
        if session is not None and fact.session != session:
            yield Blame(f"request {fact.number} of session {session} was answered in {fact.session}", number)
        foreign = [other for other in fact.said if book.sessions.get(other) != session]
        if foreign:
            what = f"the answer to request {fact.number} has words of {foreign}"
            yield Blame(what, (*number, *foreign), harm="foreign")
        if fact.strange:
            what = f"the answer to request {fact.number} has words that nobody said: {fact.strange}"
            yield Blame(what, number, harm="foreign")
        entry = book.entries.get(fact.number)
        if fact.reason == "completed" and entry is not None and not entry.asked.wicked:
            yield from self._look_for_its_own(fact, entry, book)

    def _look_for_its_own(self, fact: Answered, entry: Entry, book: Book) -> Iterator[Blame]:
        if fact.number not in fact.said:
            yield Blame(f"the answer to request {fact.number} does not have its own word", (fact.number,))
        talk = book.talk(entry.asked.session)
        before = talk.answered
        if before is not None and talk.begun_since <= _SHOWN_BEFORE and before not in fact.said:
            what = f"session {entry.asked.session} has forgotten request {before} when it answers {fact.number}"
            yield Blame(what, (before, fact.number))


def _name_forgotten(fact: Forgotten, entry: Entry | None) -> Blame:
    """It is asked for again on each connection until it is answered: there is none that did not arrive."""
    was = "asked, and never answered" if entry is not None and entry.accepted is None else "accepted"
    return Blame(f"request {fact.number} was {was}, and then nobody knew of it", (fact.number,), harm="lost")


def _name_open(book: Book) -> Iterator[Blame]:
    for number, entry in book.entries.items():
        if entry.ended is None:
            yield Blame(f"request {number} has no outcome: {_how_far(entry)}", (number,), harm="lost")


def _how_far(entry: Entry) -> str:
    if entry.accepted is None:
        return "it was never accepted"
    return "it was accepted and never begun" if entry.started is None else f"it was begun by {entry.worker}"
