"""Markup and sentences.

Figures in words, as short as they are read. Pure.

HTML and SVG as values: whatever is put into them is escaped, unless it is markup already. Pure.

Each fact in a sentence, for whoever reads how a promise was broken. Pure.
"""

from collections.abc import Iterable
from html import escape
from typing import assert_never

from stress.facts import (
    EVERYBODY,
    Accepted,
    Answered,
    Asked,
    Delayed,
    Disordered,
    Emptied,
    Fact,
    Figures,
    Forgotten,
    Injected,
    Left,
    LifeBegan,
    LifeEnded,
    Moved,
    Outlived,
    Processes,
    Refused,
    Remembered,
    Silence,
    Started,
    Stranger,
    Told,
    Transcribed,
)

_MIB = 1024 * 1024


def count(number: float) -> str:
    """``12,345``; below 100 with one digit after the point where there is something to say: ``2.5``."""
    if number < 100 and round(number, 1) != round(number):
        return f"{number:.1f}"
    return f"{number:,.0f}"


def many(number: int, thing: str) -> str:
    """``1 fault``, ``2,400 faults``."""
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``0``, ``350 µs``, ``12 ms``, ``1.25 s``, ``90 s``, ``15 min``, ``2.5 h``."""
    if seconds <= 0:
        return "0"
    for most, unit, name, digits in (
        (0.001, 1e-6, "µs", 0),
        (0.9995, 1e-3, "ms", 0),
        (9.995, 1.0, "s", 2),
        (119.95, 1.0, "s", 1),
        (7170.0, 60.0, "min", 1),
    ):
        if seconds < most:
            return f"{_trimmed(seconds / unit, digits)} {name}"
    return f"{_trimmed(seconds / 3600, 1)} h"


def moment(seconds: float) -> str:
    """A time of the run to the millisecond: ``12.345 s``."""
    return f"{seconds:,.3f} s"


def mebibytes(size: float) -> str:
    """``84 MiB``."""
    return f"{_trimmed(size / _MIB, 1 if size < 10 * _MIB else 0)} MiB"


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_MOST_LETTERS = 300


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


NOTHING = Markup()
_EMPTY_TAGS = frozenset({"meta", "link", "rect", "path", "line"})


def tag(element: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. ``class_`` is the attribute ``class``, ``aria_label`` is ``aria-label``; None leaves one out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _EMPTY_TAGS and not children:
        return Markup(f"<{element}{said}/>")
    return Markup(f"<{element}{said}>{join(children)}</{element}>")


def join(parts: Iterable[str]) -> Markup:
    """All of them, one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def shown(text: str, most: int = _MOST_LETTERS) -> str:
    """The text, or its beginning and a sign that there was more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escaped(text: str) -> str:
    """What cannot be seen (control characters, those that turn the direction of writing, half characters) is named."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
    return escape(text)


_Request = Asked | Accepted | Refused | Started | Answered | Remembered | Forgotten | Transcribed
_NAMED = 6


def tell(fact: Fact) -> str:
    """What was seen, without the time."""
    match fact:
        case Asked() | Accepted() | Refused() | Started() | Answered() | Remembered() | Forgotten() | Transcribed():
            said = f"request {fact.number} {_of_request(fact)}"
        case Moved() | Processes() | Figures() | LifeBegan() | LifeEnded() | Left() | Emptied():
            said = _of_pool(fact)
        case Injected():
            said = _of_fault(fact)
        case Stranger():
            became = "was signalled" if fact.signalled else "was let alone"
            said = f"a stranger with the pid {fact.pid} of a dead worker {became}"
        case Told():
            said = f"front end {fact.front_end} heard of an outcome after {duration(fact.seconds)}"
        case Outlived():
            said = f"the run {fact.run} has come to its end, although its front end was killed"
        case Disordered():
            said = f"the stream of events broke its promise: {fact.what}"
        case Delayed():
            said = f"the machine was up to {duration(fact.seconds)} late"
        case Silence():
            said = "the end: nobody waits any longer"
        case _:
            assert_never(fact)
    return said


def _of_request(fact: _Request) -> str:
    match fact:
        case Asked():
            wicked = ", of a worker that misbehaves" if fact.wicked else ""
            said = (
                f"is asked in session {fact.session}, profile {fact.profile}, priority {fact.priority}, "
                f"at most {duration(fact.timeout)}, its turn takes {duration(fact.turn)}{wicked}"
            )
        case Accepted():
            said = "is accepted"
        case Refused():
            said = f"is refused: {fact.code}"
        case Started():
            said = f"begins on {fact.worker}"
        case Answered():
            said = f"ends in session {fact.session}: {_outcome(fact)}{_words(fact)}"
        case Remembered():
            said = f"is remembered as {_outcome(fact)}"
        case Forgotten():
            said = "is unknown to the supervisor"
        case Transcribed():
            said = f"stands {many(fact.own, 'time')} in its own transcript, {many(fact.foreign, 'time')} in others"
        case _:
            assert_never(fact)
    return said


def _outcome(fact: Answered | Remembered) -> str:
    return f"{fact.reason} {fact.code}".strip()


def _words(fact: Answered) -> str:
    said = f", with the words of {_some(fact.said)}" if fact.said else ""
    return f"{said}, and words of nobody: {_some(fact.strange)}" if fact.strange else said


def _of_pool(fact: Moved | Processes | Figures | LifeBegan | LifeEnded | Left | Emptied) -> str:
    match fact:
        case Moved():
            parts = (fact.what.replace("_", " "), fact.session, fact.worker, f"({fact.why})" if fact.why else "")
            said = f"the supervisor says: {' '.join(filter(None, parts))}"
        case Processes():
            zombies = f", not waited for: {_some(fact.zombies)}" if fact.zombies else ""
            files = "" if fact.fds is None else f", {fact.fds} files"
            size = "" if fact.rss is None else f"; the supervisor has {mebibytes(fact.rss)}{files}"
            said = f"{_workers(tuple(worker.pid for worker in fact.workers))} in /proc{zombies}{size}"
        case Figures():
            waiting = f", {len(fact.waiting)} waiting" if fact.waiting else ""
            sums = f"{fact.grants} grants, {fact.releases} released, {fact.lost} lost, {fact.active} active"
            known = tuple(worker.pid for worker in fact.workers if worker.pid is not None)
            said = f"status ({fact.mode}): {_workers(known)}{waiting}; {sums}"
        case LifeBegan():
            said = f"supervisor {fact.life} is ready, pid {fact.supervisor}"
        case LifeEnded():
            said = f"supervisor {fact.life} ended with {fact.code}, {'as told' if fact.signals else 'by itself'}"
        case Left():
            said = f"{len(fact.pids)} processes are left {duration(fact.seconds)} later: {_some(fact.pids)}"
        case Emptied():
            files = f"{fact.fds} files ({fact.fds_before} at the beginning), " if fact.fds is not None else ""
            said = f"all is done: {fact.workers} workers, {fact.zombies} zombies, {files}{mebibytes(fact.rss)}"
        case _:
            assert_never(fact)
    return said


def _of_fault(fault: Injected) -> str:
    whom = {"": "", EVERYBODY: " to all workers"}.get(fault.worker, f" to {fault.worker}")
    pid = f", pid {fault.pid}" if fault.pid else ""
    lasting = f", for {duration(fault.seconds)}" if fault.seconds else ""
    return f"fault {fault.fault}: {fault.action}{whom}{pid}{lasting}"


def _workers(pids: tuple[int, ...]) -> str:
    return f"{many(len(pids), 'worker')}{f' ({_some(pids)})' if pids else ''}"


def _some(things: tuple[int, ...] | tuple[str, ...]) -> str:
    more = f" and {len(things) - _NAMED} more" if len(things) > _NAMED else ""
    return ", ".join(str(thing) for thing in things[:_NAMED]) + more
