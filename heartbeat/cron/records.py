"""What is kept of a job besides its definition: how far it has come, what runs, and what came of it."""

from enum import StrEnum

import msgspec

from heartbeat.cron.schedule import Schedule

__all__ = ["MAX_HISTORY", "JobState", "Outcome", "Result", "Status", "Ticket"]

MAX_HISTORY = 20


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    """The agent had begun."""
    REFUSED = "refused"
    """It never began: its due time is tried again after the back-off."""
    INTERRUPTED = "interrupted"
    """The supervisor ended meanwhile; how far the agent came is in its conversation."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One run under way. ``due`` None: an operator asked for it. ``since``: the state's ``reached`` before it."""

    run: str
    due: float | None
    started_at: float
    since: float


class Result(msgspec.Struct, frozen=True):
    """What a run came to: the agent's answer, or what went wrong."""

    status: Status
    text: str = ""
    error: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of the past. Times are Unix times; ``text`` is the beginning of what the agent answered."""

    run: str
    due: float | None
    started_at: float
    ended_at: float
    status: Status
    text: str = ""
    error: str = ""


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a job has come. It counts for the schedule it has been kept with; another one begins anew.

    ``reached``: every due time up to there has been dealt with. ``failures`` in a row; the next run is not before
    ``hold_until``. ``told_at``: when a failure was told last. ``spent``: it has run for good. ``overlapped``: so many
    runs took until after the job's next due time, which then passed without a run.
    """

    schedule: Schedule
    reached: float
    running: Ticket | None = None
    failures: int = 0
    hold_until: float = 0.0
    told_at: float = 0.0
    spent: bool = False
    overlapped: int = 0
    history: tuple[Outcome, ...] = ()
    """The latest ``MAX_HISTORY``, the newest last."""
