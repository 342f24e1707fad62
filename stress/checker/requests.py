"""I1 and I2: each request has one outcome, and it is its own."""

from collections.abc import Iterator

from stress.checker.book import Book, Entry
from stress.checker.judge import Blame, Judge
from stress.facts import (
    Accepted,
    Answered,
    Disordered,
    Fact,
    Forgotten,
    Refused,
    Remembered,
    Silence,
    Started,
    Transcribed,
)

__all__ = ["Apart", "OneOutcome"]

_SHOWN_BEFORE = 3
"""How many earlier prompts of its session the scripted model repeats."""


class OneOutcome(Judge):
    """I1: none lost, none told twice, nothing sent again; failures are explained by the faults."""

    invariant = "I1"

    def see(self, fact: Fact, book: Book) -> Iterator[Blame]:
        """Judge acceptance, start, outcome, and what is asked for later."""
        match fact:
            case Accepted() | Started() | Answered() | Refused():
                yield from self._step(fact, book.entries.get(fact.number))
            case Remembered():
                yield from self._compare(fact, book.entries.get(fact.number))
            case Forgotten():
                yield from _look_for_promise(fact, book.entries.get(fact.number))
            case Transcribed():
                yield from self._count_prompts(fact, book.entries.get(fact.number))
            case Disordered():
                yield Blame(fact.what)
            case Silence():
                yield from _name_open(book)
            case _:
                pass

    def _step(self, fact: Accepted | Started | Answered | Refused, entry: Entry | None) -> Iterator[Blame]:
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
            self.checked += 1
            code = fact.code or getattr(fact, "reason", "")
            if code != "completed" and code not in self.rules.explains and not entry.asked.wicked:
                yield Blame(f"request {fact.number} ended with {code!r}, which nothing explains", number)

    def _compare(self, fact: Remembered, entry: Entry | None) -> Iterator[Blame]:
        if entry is None or entry.ended is None:
            return
        if (fact.reason, fact.code) != (entry.reason, entry.code):
            told, remembered = f"{entry.reason} {entry.code}", f"{fact.reason} {fact.code}"
            yield Blame(f"request {fact.number} ended {told} and is remembered as {remembered}", (fact.number,))

    def _count_prompts(self, fact: Transcribed, entry: Entry | None) -> Iterator[Blame]:
        self.checked += 1
        if fact.own > 1:
            what = f"request {fact.number} stands {fact.own} times in its transcript"
            yield Blame(what, (fact.number,), harm="duplicated")
        if entry is not None and entry.reason == "completed" and fact.own == 0:
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


def _look_for_promise(fact: Forgotten, entry: Entry | None) -> Iterator[Blame]:
    if entry is None or entry.accepted is not None:
        yield Blame(f"request {fact.number} was accepted, and then nobody knew of it", (fact.number,), harm="lost")


def _name_open(book: Book) -> Iterator[Blame]:
    for number, entry in book.entries.items():
        if entry.ended is None:
            yield Blame(f"request {number} has no outcome: {_how_far(entry)}", (number,), harm="lost")


def _how_far(entry: Entry) -> str:
    if entry.accepted is None:
        return "it was never accepted"
    return "it was accepted and never begun" if entry.started is None else f"it was begun by {entry.worker}"
