"""Scheduled tasks: definition, validation, state and ports. Pure."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Protocol

import msgspec

from errors import UsageError
from heartbeat.cron.schedule import At, Cron, Every, Schedule, check_schedule, zone_named
from heartbeat.cron.settings import CronJobSettings, CronSettings, JobMode
from heartbeat.delivery.channel import EventPublisher
from heartbeat.delivery.targets import LAST
from heartbeat.ports import AlertPort, Documents, RunPort
from router.keys import main_session_key, normalize_session_key, parse_session_key

MAX_JOBS = 10_000
"""In settings and added ones together."""
_DEFAULT_TIMEOUT = 600.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class JobSource(StrEnum):
    """Who defines a job, and so who can change it."""

    SETTINGS = "settings"
    ADDED = "added"


class CronJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be done, and when. ``session`` is the conversation it belongs to, ``target`` who gets the answer.

    ``timeout`` in seconds; ``created_at`` Unix time, 0 in settings. Times and texts are in bounds, names looked up.
    """

    id: str
    schedule: Schedule
    text: str
    mode: JobMode
    agent: str
    session: str
    target: str = LAST
    timeout: float = _DEFAULT_TIMEOUT
    keep: bool = False
    delete_after_run: bool = False
    enabled: bool = True
    source: JobSource = JobSource.ADDED
    created_at: float = 0.0


class NameValidators(msgspec.Struct, frozen=True):
    """What jobs may name: each says what is wrong with a name, or None; and the agent of a job that names none."""

    agent_problem: Callable[[str], str | None]
    target_problem: Callable[[str], str | None]
    default_agent: Callable[[], str]


def make_job(
    name: str, said: CronJobSettings, *, source: JobSource, now: float, local: tzinfo, names: NameValidators
) -> CronJob:
    """The job of that name. ``now``: Unix time; ``local``: the machine's zone.

    Raises UsageError that says which of its keys is wrong, why, and what to write.
    """
    _check_name(name)
    schedule = _schedule(said, anchor=now if source is JobSource.ADDED else 0.0, local=local)
    check_schedule(schedule, now, local)
    agent = names.default_agent() if said.agent is None else said.agent
    target = LAST if said.delivery is None else said.delivery
    for problem in (names.agent_problem(agent), names.target_problem(target)):
        if problem is not None:
            raise UsageError(problem)
    once = isinstance(schedule, At)
    return CronJob(
        id=name,
        schedule=schedule,
        text=said.text.strip(),
        mode=said.mode,
        agent=agent,
        session=_session(said, agent),
        target=target,
        timeout=_DEFAULT_TIMEOUT if said.timeout is None else float(said.timeout),
        keep=said.keep,
        delete_after_run=once if said.delete_after_run is None else said.delete_after_run,
        enabled=said.enabled,
        source=source,
        created_at=now if source is JobSource.ADDED else 0.0,
    )


def cron_problems(
    settings: CronSettings, *, now: float, local: tzinfo, names: NameValidators
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every job of the settings that cannot be meant: the path of its table, and what is wrong with it."""
    if len(settings.jobs) > MAX_JOBS:
        yield ("cron", "jobs"), f"there are {len(settings.jobs)} jobs; {MAX_JOBS} are possible"
    for name, said in settings.jobs.items():
        try:
            make_job(name, said, source=JobSource.SETTINGS, now=now, local=local, names=names)
        except UsageError as exc:
            yield ("cron", "jobs", name), exc.message


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]!r} is no name of a job: 1 to 64 of a-z, 0-9, _ and -, no _ or - in front")


def _session(said: CronJobSettings, agent: str) -> str:
    """Its agent's own, or the one named; where it is to speak, that must not be another agent's."""
    if said.session is None:
        return main_session_key(agent)
    session = normalize_session_key(said.session)
    owner = getattr(parse_session_key(session), "agent", agent)
    if said.mode is JobMode.MAIN and owner != agent:
        raise UsageError(
            f"session {session} is agent {owner}'s, and the job is agent {agent}'s; write agent = \"{owner}\", "
            f'or mode = "isolated"'
        )
    return session


def _schedule(said: CronJobSettings, *, anchor: float, local: tzinfo) -> Schedule:
    zone = zone_named(said.tz, local)
    if said.cron is not None:
        return Cron(" ".join(said.cron.split()), said.tz)
    if said.every is not None:
        return Every(float(said.every), anchor if said.anchor is None else _instant(said.anchor, zone))
    assert said.at is not None  # noqa: S101 - the settings hold one of the three
    return At(_instant(said.at, zone))


def _instant(moment: datetime, zone: tzinfo) -> float:
    """A time without an offset is the wall clock's; one that a change leaves out is as much later."""
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    except (OverflowError, ValueError) as exc:
        raise UsageError(f"{moment} is no moment between the years 1970 and 3000") from exc


MAX_HISTORY = 20


class CronRunStatus(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    """The agent had begun."""
    REFUSED = "refused"
    """It never began: its due time is tried again after the back-off."""
    INTERRUPTED = "interrupted"
    """The supervisor ended during the run; the conversation shows how far it came."""


class ActiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run under way. ``due`` None: an operator asked for it. ``since``: the state's ``reached`` before it."""

    run: str
    due: float | None
    started_at: float
    since: float


class CronRunResult(msgspec.Struct, frozen=True):
    """What a run came to: the agent's answer, or what went wrong."""

    status: CronRunStatus
    text: str = ""
    error: str = ""


class CronRunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of the past. Times are Unix times; ``text`` is the beginning of what the agent answered."""

    run: str
    due: float | None
    started_at: float
    ended_at: float
    status: CronRunStatus
    text: str = ""
    error: str = ""


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a job. It belongs to ``schedule``; another schedule resets it.

    ``reached``: every due time up to there is settled. ``failures`` in a row; the next run is not before
    ``hold_until``. ``reported_at``: when a failure was last reported. ``spent``: it has run for good.
    ``overlapped``: runs that lasted beyond the next due time, which passed without a run.
    """

    schedule: Schedule
    reached: float
    running: ActiveRun | None = None
    failures: int = 0
    hold_until: float = 0.0
    reported_at: float = 0.0
    spent: bool = False
    overlapped: int = 0
    history: tuple[CronRunRecord, ...] = ()
    """The latest ``MAX_HISTORY``, the newest last."""


class WakePort(Protocol):
    """System events and wakes, together."""

    def inject_and_wake(self, *, agent: str, session: str, text: str, context: str) -> None:
        """Queue a system event of kind ``cron`` for the session, and wake the agent there with reason ``cron``.

        It counts from the call on, in the same transaction of the store as what is kept right after it. Never blocks.
        Raises UsageError where ``problem`` has something to say.
        """
        ...

    def wake_problem(self, *, agent: str, session: str) -> str | None:
        """Why the agent would not be woken there, and what to do; None = it would be."""
        ...

    def wakes_at(self, *, agent: str, session: str) -> float | None:
        """When the agent is woken for what is said now, in Unix time; None = at once."""
        ...


class CronPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What scheduled tasks use. ``wall``: Unix time, which may be set; ``local``: the machine's time zone."""

    documents: Documents
    runs: RunPort
    waker: WakePort
    alerts: AlertPort
    monitor: EventPublisher
    names: NameValidators
    wall: Callable[[], float]
    local: tzinfo
