"""The errors a request can end with: what failed, what to do, and the pool's figures at that moment."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import asdict

from errors import (
    AcquireTimeout,
    NestedSaturated,
    NoWorker,
    PoolClosed,
    PoolError,
    PoolSaturated,
    ProfileBroken,
    ResumeFailed,
)
from pool.records import ProfileRecord, SessionRecord, Waiter
from pool.snapshot import PoolCounts
from wire.terminal import last_words

_MAX_NAMED_SESSIONS = 5
"""Sessions that an error names in its words."""
_MAX_NAMED_QUESTIONS = 3


class KeepingSessions(NamedTuple):
    """Sessions that keep a worker though no request of them runs: the first of them by name, and how many in all."""

    named: tuple[str, ...] = ()
    total: int = 0


_NONE = KeepingSessions()


def saturated(
    figures: PoolCounts,
    why: str,
    retry_after: float,
    pins: KeepingSessions = _NONE,
    stderr_tail: str | None = None,
) -> PoolSaturated:
    """No worker, and no place to wait for one."""
    return PoolSaturated(
        f"{why}; try again in {retry_after:.1f} s ({figures}){_pinned(pins)}",
        retry_after=retry_after,
        figures=asdict(figures),
        pinned=list(pins.named),
        stderr_tail=stderr_tail,
    )


def no_room(figures: PoolCounts, kind: ProfileRecord, retry_after: float) -> PoolSaturated:
    """The room that a request was to take is gone, or its worker did not start."""
    last = kind.budget.last_error
    why = f"its worker did not start: {last}" if last else "the pool has no room left for another worker"
    return saturated(figures, why, retry_after, stderr_tail=last.stderr_tail if last else None)


def spawn_not_allowed(figures: PoolCounts, session: str) -> NoWorker:
    """There is room for another worker, and the request may start none."""
    return NoWorker(
        f"no worker that runs now fits session {session!r}, and the request may start none, although there is room "
        f"(spawn = false); ask with spawn = true ({figures})",
        session=session,
        figures=asdict(figures),
    )


def all_dedicated(figures: PoolCounts, kind: ProfileRecord, retry_after: float, kept: KeepingSessions) -> PoolSaturated:
    """As many sessions keep a worker to themselves as may."""
    auto = f'or set agents.{kind.profile.agent}.resume = "auto" ({figures})'
    sessions = "1 session keeps a worker" if kept.total == 1 else f"{kept.total} sessions keep a worker each"
    return PoolSaturated(
        f'{sessions} (resume = "pin"), and the rest of pool.max = {figures.max} is for other sessions; end one with '
        f"`pool sessions delete KEY`, raise pool.max or the limit of the agent, {auto}: {_names(kept)}"
        if kept.total
        else f'no session can keep a worker (resume = "pin"): the only one of pool.max = {figures.max} is for all '
        f"sessions; raise pool.max to 2 or more, {auto}",
        retry_after=retry_after,
        figures=asdict(figures),
        dedicated=list(kept.named),
    )


def nested_saturated(figures: PoolCounts, pins: KeepingSessions) -> NestedSaturated:
    """A nested run must not wait for what its own ancestor may hold."""
    return NestedSaturated(
        f"every worker is in use, and a nested run does not wait for its ancestors ({figures}){_pinned(pins)}",
        figures=asdict(figures),
        pinned=list(pins.named),
    )


def timed_out(figures: PoolCounts, waiter: Waiter, pins: KeepingSessions, asking: Mapping[str, str]) -> AcquireTimeout:
    """The deadline passed."""
    waited = waiter.deadline - waiter.enqueued_at
    return AcquireTimeout(
        f"no worker for session {waiter.session.key!r} within {waited:.1f} s ({figures}){_pinned(pins)}"
        + "".join(f"; {words}" for words in questions(asking, asking)),
        session=waiter.session.key,
        figures=asdict(figures),
        pinned=list(pins.named),
    )


def closed(figures: PoolCounts, mode: str) -> PoolClosed:
    """The pool takes nothing new."""
    return PoolClosed(f"the pool is {mode} and takes no new work ({figures})", figures=asdict(figures))


def broken(figures: PoolCounts, kind: ProfileRecord, now: float) -> ProfileBroken:
    """The profile's breaker is open."""
    retry_after = max(0.0, kind.budget.opened_until - now)
    return _broken(figures, kind, f"next trial in {retry_after:.1f} s", retry_after)


def no_trial(figures: PoolCounts, kind: ProfileRecord) -> ProfileBroken:
    """The profile's breaker is half-open, and there is no room for a trial."""
    return _broken(figures, kind, "a trial needs room, and stops no other worker for it", None)


def _broken(figures: PoolCounts, kind: ProfileRecord, then: str, retry_after: float | None) -> ProfileBroken:
    last = kind.budget.last_error
    return ProfileBroken(
        f"workers of profile {kind.profile.agent}/{kind.profile.role} ({kind.profile.short}) fail to start; "
        f"{then}; last failure: {last} ({figures})",
        retry_after=retry_after,
        stderr_tail=last.stderr_tail if last else None,
        profile=kind.profile.short,
        figures=asdict(figures),
    )


def resume_failed(session: SessionRecord, cause: PoolError) -> ResumeFailed:
    """The session's transcript could not be taken up again, twice."""
    return ResumeFailed(
        f"the transcript of session {session.key!r} could not be resumed ({cause}); "
        f"put the file back and restart, or begin a new conversation: pool sessions reset {session.key}",
        session=session.key,
        transcript=session.transcript,
        stderr_tail=cause.stderr_tail,
    )


def describe_end(error: PoolError) -> dict[str, str]:
    """What a worker ended of, and what it ``said`` last on stderr where it said something."""
    said = last_words(error.message, error.stderr_tail)
    return {"error": str(error), **({} if said is None else {"said": said})}


def _pinned(sessions: KeepingSessions) -> str:
    if not sessions.total:
        return ""
    return f"; background commands keep workers for {_names(sessions)}"


def questions(sessions: Iterable[str], asking: Mapping[str, str]) -> list[str]:
    """Of the sessions whose turn waits for a person: which, and the command by which one answers; the first few."""
    found = [f"{key} waits for a person: pool approve -s {key} {asking[key]}" for key in sessions if key in asking]
    more = len(found) - _MAX_NAMED_QUESTIONS
    return found if more <= 0 else [*found[:_MAX_NAMED_QUESTIONS], f"and {more} more: pool approvals"]


def _names(sessions: KeepingSessions) -> str:
    named, more = ", ".join(sessions.named[:_MAX_NAMED_SESSIONS]), sessions.total - _MAX_NAMED_SESSIONS
    return named + (f" and {more} more sessions" if more > 0 else "")
