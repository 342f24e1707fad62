"""The errors a request can end with: what failed, what to do, and the pool's figures at that moment."""

from errors import AcquireTimeout, NestedSaturated, PoolClosed, PoolError, PoolSaturated, ProfileBroken, ResumeFailed
from pool.records import Kind, Session
from pool.snapshot import Figures
from pool.waiting import Waiter

__all__ = ["broken", "closed", "nested_saturated", "no_room", "resume_failed", "saturated", "timed_out"]


def saturated(figures: Figures, why: str, retry_after: float) -> PoolSaturated:
    """No worker, and no place to wait for one."""
    return PoolSaturated(
        f"{why}; try again in {retry_after:.1f} s ({figures})",
        retry_after=retry_after,
        figures=_plain(figures),
    )


def no_room(figures: Figures, kind: Kind, retry_after: float) -> PoolSaturated:
    """The room that a request was to take is gone, or its worker did not start."""
    last = kind.budget.last_error
    why = f"its worker did not start: {last}" if last else "the pool has no room left for another worker"
    return saturated(figures, why, retry_after)


def nested_saturated(figures: Figures) -> NestedSaturated:
    """A nested run must not wait for what its own ancestor may hold."""
    return NestedSaturated(
        f"every worker is in use, and a nested run does not wait for its ancestors ({figures})",
        figures=_plain(figures),
    )


def timed_out(figures: Figures, waiter: Waiter) -> AcquireTimeout:
    """The deadline passed."""
    waited = waiter.deadline - waiter.enqueued_at
    return AcquireTimeout(
        f"no worker for session {waiter.session.key!r} within {waited:.1f} s ({figures})",
        session=waiter.session.key,
        figures=_plain(figures),
    )


def closed(figures: Figures, mode: str) -> PoolClosed:
    """The pool takes nothing new."""
    return PoolClosed(f"the pool is {mode} and takes no new work ({figures})", figures=_plain(figures))


def broken(figures: Figures, kind: Kind, now: float) -> ProfileBroken:
    """The profile's breaker is open."""
    last = kind.budget.last_error
    retry_after = max(0.0, kind.budget.opened_until - now)
    return ProfileBroken(
        f"workers of profile {kind.profile.agent}/{kind.profile.role} ({kind.profile.short}) fail to start; "
        f"next trial in {retry_after:.1f} s; last failure: {last} ({figures})",
        retry_after=retry_after,
        stderr_tail=last.stderr_tail if last else None,
        profile=kind.profile.short,
        figures=_plain(figures),
    )


def resume_failed(session: Session, cause: PoolError) -> ResumeFailed:
    """The session's transcript could not be taken up again, twice."""
    return ResumeFailed(
        f"the transcript of session {session.key!r} could not be resumed ({cause}); reset the session to go on",
        session=session.key,
        transcript=session.transcript,
        stderr_tail=cause.stderr_tail,
    )


def _plain(figures: Figures) -> dict[str, int]:
    return {name: getattr(figures, name) for name in figures.__struct_fields__}
