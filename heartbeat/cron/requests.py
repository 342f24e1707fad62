"""Parameters and answers of the ``cron.*`` methods."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

import msgspec

from errors import UsageError
from heartbeat.cron.jobs import CronRunRecord, JobSource, WakePort
from heartbeat.cron.machine import JobStatus
from heartbeat.cron.schedule import Schedule, format_schedule
from heartbeat.cron.settings import CronJobSettings, JobMode
from wire.units import Seconds

_EXCERPT_LENGTH = 200

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=32_768)]


class CronAdd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cron.add``: a job that is kept until it is deleted; as ``[cron.jobs.NAME]``, with times as people write them.

    ``at``: a time (``2031-05-01T08:00``, in ``tz`` where it has no offset) or a span from now (``20m``). ``every`` and
    ``timeout``: spans. ``id`` is made where it is absent. ``replace``: in place of an added job of that id.
    """

    text: Text
    id: Name | None = None
    cron: Short | None = None
    every: Short | None = None
    at: Short | None = None
    tz: Annotated[str, msgspec.Meta(max_length=64)] = ""
    anchor: Short | None = None
    mode: JobMode = JobMode.MAIN
    agent: Name | None = None
    session: Short | None = None
    delivery: Short | None = None
    timeout: Short | None = None
    keep: bool = False
    delete_after_run: bool | None = None
    enabled: bool = True
    replace: bool = False


class CronName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cron.get``, ``cron.delete``, ``cron.enable``, ``cron.disable``, ``cron.run``: one job."""

    id: Name


class CronList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cron.list``: at most ``limit`` jobs by name, after the one named ``after``."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""


class CronJobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands. Times are Unix times, spans seconds; ``next_due`` None = not due by the clock.

    ``when`` is the schedule for a person. ``running_since`` None = no run is under way; ``is_waiting``: one is due and
    waits for another's end. ``failures`` in a row; until ``hold_until`` it is not run. ``overlapped``: how many
    runs took until after the next due time, which passed. In a list ``text`` is cut and ``history`` is empty.

    Of mode ``main`` only: ``problem`` says why the agent would not be woken for it now; ``heard_at``: when the agent
    is woken for what is said now, where that is later (its active hours, the flood guard).
    """

    id: str
    schedule: Schedule
    when: str
    text: str
    mode: JobMode
    agent: str
    session: str
    delivery: str
    timeout: float
    keep: bool
    delete_after_run: bool
    enabled: bool
    source: JobSource
    next_due: float | None
    running_since: float | None
    is_waiting: bool
    failures: int
    hold_until: float | None
    overlapped: int
    last: CronRunRecord | None
    history: tuple[CronRunRecord, ...] = ()
    problem: str | None = None
    heard_at: float | None = None


class CronJobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs by name. ``more``: there are others after the last one. ``problems``: what could not be taken."""

    jobs: tuple[CronJobView, ...]
    total: int
    more: bool
    problems: tuple[str, ...]


class CronStats(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs at one moment, for the status. ``next_due``: Unix time of the earliest."""

    jobs: int
    running: int
    waiting: int
    failing: int
    next_due: float | None
    problems: tuple[str, ...]


_SHARED = ("mode", "agent", "session", "keep", "delete_after_run", "enabled")
_SAME_AS_SETTINGS = (*_SHARED, "text", "cron", "tz", "delivery")
_SAME_AS_JOB = (*_SHARED, "id", "schedule", "timeout", "source")


def job_settings_from(add: CronAdd, *, now: float) -> CronJobSettings:
    """What an operator says, as the settings would say it. Raises UsageError for what cannot be read."""
    try:
        return CronJobSettings(
            every=_span("every", add.every),
            at=_moment("at", add.at, now),
            anchor=_moment("anchor", add.anchor, now),
            timeout=_span("timeout", add.timeout),
            **{name: getattr(add, name) for name in _SAME_AS_SETTINGS},
        )
    except ValueError as exc:
        raise UsageError(str(exc)) from exc


def job_view(standing: JobStatus, local: tzinfo, waker: WakePort, *, whole: bool) -> CronJobView:
    """One job; ``whole`` with all its text and its history."""
    job, state = standing.job, standing.state
    place = {"agent": job.agent, "session": job.session}
    is_main = job.mode is JobMode.MAIN
    cut = len(job.text) > _EXCERPT_LENGTH and not whole
    return CronJobView(
        **{name: getattr(job, name) for name in _SAME_AS_JOB},
        when=format_schedule(job.schedule, local),
        text=f"{job.text[: _EXCERPT_LENGTH - 1]}…" if cut else job.text,
        delivery=job.target,
        next_due=standing.next_due,
        running_since=None if state.running is None else state.running.started_at,
        is_waiting=standing.is_waiting,
        failures=state.failures,
        hold_until=state.hold_until or None,
        overlapped=state.overlapped,
        last=state.history[-1] if state.history else None,
        history=state.history if whole else (),
        problem=waker.wake_problem(**place) if is_main else None,
        heard_at=waker.wakes_at(**place) if is_main else None,
    )


def _span(name: str, text: str | None) -> Seconds | None:
    try:
        return None if text is None else Seconds.parse(text)
    except ValueError as exc:
        raise UsageError(f"{name}: {exc}") from exc


def _moment(name: str, text: str | None, now: float) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return datetime.fromtimestamp(now, UTC) + timedelta(seconds=Seconds.parse(text))
    except (ValueError, OverflowError) as exc:
        raise UsageError(
            f'{name} = {text[:80]!r} is not understood; write a time as "2031-05-01T08:00", or a span from now as "20m"'
        ) from exc
