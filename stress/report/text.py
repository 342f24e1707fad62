"""Text of the report: short figures, facts as sentences, HTML that escapes its contents. Pure."""

from collections.abc import Iterable
from html import escape
from typing import assert_never

from stress.facts import (
    ALL_WORKERS,
    DirectViolation,
    Fact,
    FaultInjected,
    LeftoverProcesses,
    MachineDelay,
    OrphanedRunEnded,
    OutcomeReceived,
    OutcomeRemembered,
    PoolDrained,
    PoolEvent,
    ProcessSample,
    PromptOccurrences,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestFact,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
    ReusedPid,
    StatusSample,
    SupervisorEnded,
    SupervisorStarted,
    WaitingEnded,
)

_MIB = 1024 * 1024


def count(number: float) -> str:
    """``12,345``; below 100 with one decimal if it is not 0: ``2.5``."""
    if number < 100 and round(number, 1) != round(number):
        return f"{number:.1f}"
    return f"{number:,.0f}"


def plural(number: int, thing: str) -> str:
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


_MAX_CHARS = 300


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY_MARKUP = Markup()
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
    """The concatenated parts; text is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def truncate(text: str, most: int = _MAX_CHARS) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escaped(text: str) -> str:
    """Escape for HTML; unprintable characters (control, bidi, surrogates) are shown by their codes."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
    return escape(text)


_MAX_LISTED = 6


def describe_fact(fact: Fact) -> str:
    """A fact as a sentence, without its time."""
    match fact:
        case FaultInjected():
            said = _describe_fault(fact)
        case ReusedPid():
            became = "was signalled" if fact.signalled else "was not signalled"
            said = f"an unrelated process with the pid {fact.pid} of a dead worker {became}"
        case OutcomeReceived():
            said = f"front end {fact.front_end} received an outcome after {duration(fact.seconds)}"
        case OrphanedRunEnded():
            said = f"the run {fact.run} ended, although its front end was killed"
        case DirectViolation():
            said = f"a promise was broken: {fact.what}"
        case MachineDelay():
            said = f"the machine was up to {duration(fact.seconds)} late"
        case WaitingEnded():
            said = "end of the run: open requests are given up"
        case RequestFact():
            said = f"request {fact.number} {_describe_request(fact)}"
        case _:
            said = _describe_pool(fact)
    return said


def _describe_request(
    fact: RequestAsked
    | RequestAccepted
    | RequestRefused
    | RequestStarted
    | RequestAnswered
    | OutcomeRemembered
    | RequestForgotten
    | PromptOccurrences,
) -> str:
    match fact:
        case RequestAsked():
            faulty = ", of a faulty worker" if fact.faulty else ""
            said = (
                f"is asked in session {fact.session}, profile {fact.profile}, priority {fact.priority}, "
                f"at most {duration(fact.timeout)}, its turn takes {duration(fact.turn)}{faulty}"
            )
        case RequestAccepted():
            said = "is accepted"
        case RequestRefused():
            said = f"is refused: {fact.code}"
        case RequestStarted():
            said = f"begins on {fact.worker}"
        case RequestAnswered():
            said = f"ends in session {fact.session}: {_outcome(fact)}{_nonces_text(fact)}"
        case OutcomeRemembered():
            said = f"is remembered as {_outcome(fact)}"
        case RequestForgotten():
            said = "is unknown to the supervisor"
        case PromptOccurrences():
            said = f"stands {plural(fact.own, 'time')} in its own transcript, {plural(fact.foreign, 'time')} in others"
        case _:
            assert_never(fact)
    return said


def _outcome(fact: RequestAnswered | OutcomeRemembered) -> str:
    return f"{fact.reason} {fact.code}".strip()


def _nonces_text(fact: RequestAnswered) -> str:
    said = f", with the words of {_list_some(fact.said)}" if fact.said else ""
    return f"{said}, and words of no request: {_list_some(fact.strange)}" if fact.strange else said


def _describe_pool(
    fact: PoolEvent
    | ProcessSample
    | StatusSample
    | SupervisorStarted
    | SupervisorEnded
    | LeftoverProcesses
    | PoolDrained,
) -> str:
    match fact:
        case PoolEvent():
            parts = (fact.what.replace("_", " "), fact.session, fact.worker, f"({fact.why})" if fact.why else "")
            said = f"the supervisor says: {' '.join(filter(None, parts))}"
        case ProcessSample():
            zombies = f", not waited for: {_list_some(fact.zombies)}" if fact.zombies else ""
            files = "" if fact.fds is None else f", {fact.fds} files"
            size = "" if fact.rss is None else f"; the supervisor has {mebibytes(fact.rss)}{files}"
            said = f"{_workers(tuple(worker.pid for worker in fact.workers))} in /proc{zombies}{size}"
        case StatusSample():
            waiting = f", {len(fact.waiting)} waiting" if fact.waiting else ""
            sums = f"{fact.grants} grants, {fact.releases} released, {fact.lost} lost, {fact.active} active"
            known = tuple(worker.pid for worker in fact.workers if worker.pid is not None)
            said = f"status ({fact.mode}): {_workers(known)}{waiting}; {sums}"
        case SupervisorStarted():
            said = f"supervisor {fact.life} is ready, pid {fact.supervisor}"
        case SupervisorEnded():
            said = f"supervisor {fact.life} ended with {fact.code}, {'signalled' if fact.signals else 'by itself'}"
        case LeftoverProcesses():
            said = f"{len(fact.pids)} processes are left {duration(fact.seconds)} later: {_list_some(fact.pids)}"
        case PoolDrained():
            files = f"{fact.fds} files ({fact.fds_before} at the beginning), " if fact.fds is not None else ""
            said = f"the pool is drained: {fact.workers} workers, {fact.zombies} zombies, {files}{mebibytes(fact.rss)}"
        case _:
            assert_never(fact)
    return said


def _describe_fault(fault: FaultInjected) -> str:
    whom = {"": "", ALL_WORKERS: " to all workers"}.get(fault.worker, f" to {fault.worker}")
    pid = f", pid {fault.pid}" if fault.pid else ""
    lasting = f", for {duration(fault.seconds)}" if fault.seconds else ""
    return f"fault {fault.fault}: {fault.action}{whom}{pid}{lasting}"


def _workers(pids: tuple[int, ...]) -> str:
    return f"{plural(len(pids), 'worker')}{f' ({_list_some(pids)})' if pids else ''}"


def _list_some(things: tuple[int, ...] | tuple[str, ...]) -> str:
    more = f" and {len(things) - _MAX_LISTED} more" if len(things) > _MAX_LISTED else ""
    return ", ".join(str(thing) for thing in things[:_MAX_LISTED]) + more
