"""The cron state machine: facts and ``now`` in, actions out. Pure.

A due time starts at most one run. A job never overlaps with itself: due times during a run pass. One run makes up for
those during downtime. A failure delays the next run. ``now`` is Unix time, and the clock may be set in both directions.
"""

from collections.abc import Callable, Iterator
from datetime import tzinfo

import msgspec

from errors import Conflict, UsageError
from heartbeat.cron.jobs import (
    MAX_HISTORY,
    ActiveRun,
    CronJob,
    CronRunRecord,
    CronRunResult,
    CronRunStatus,
    JobSource,
    JobState,
)
from heartbeat.cron.schedule import At, next_due, zone_of
from heartbeat.cron.settings import JobMode
from wire.timers import KeyedTimers


class SaveState(msgspec.Struct, frozen=True):
    """Keep the job's state; a ``StartRun`` after it waits until that is durable."""

    job: str
    state: JobState


class StartRun(msgspec.Struct, frozen=True):
    """Run an isolated job. The same ticket again (``is_resumed``) means the same run, begun in an earlier life.

    ``earlier``: the job's latest runs.
    """

    job: CronJob
    active_run: ActiveRun
    is_resumed: bool = False
    earlier: tuple[str, ...] = ()


class InjectEvent(msgspec.Struct, frozen=True):
    """Queue the job's text as an event of its conversation; ``ended`` follows at once."""

    job: CronJob
    active_run: ActiveRun


class ReportFailure(msgspec.Struct, frozen=True):
    """Send an alert about a failed run; ``failures`` in a row, this one included."""

    job: CronJob
    outcome: CronRunRecord
    failures: int


class DeleteJob(msgspec.Struct, frozen=True):
    """The job is gone: drop its definition and its state."""

    job: str


CronAction = SaveState | StartRun | InjectEvent | ReportFailure | DeleteJob


BACKOFF = (30.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds after the first, second, ... failure in a row; the last holds for all that follow."""

_CLOCK_SLACK = 3 * 3600.0
"""A clock that was further ahead than this was wrong; times from it do not count."""
_FAILURE_ALERT_INTERVAL = 20 * 3600.0
"""Less than a day, so that a daily failure is reported daily."""
_EXCERPT_LENGTH = 500
_MAX_DUE_PER_TICK = 256
"""Due jobs in one step; more would delay other tasks."""


class JobStatus(msgspec.Struct, frozen=True):
    """A job as it stands; ``next_due`` None = not before something else happens."""

    job: CronJob
    state: JobState
    next_due: float | None
    is_waiting: bool


class _JobEntry(msgspec.Struct, eq=False):
    """A job with the zone its schedule goes by, looked up once."""

    job: CronJob
    state: JobState
    zone: tzinfo


class CronMachine:
    """All jobs. Everything costs O(log n) in their number, but for a clock that is set back by hours.

    ``new_id`` gives each run a name that no other has, also in no earlier life; ``local`` is the machine's zone.
    """

    def __init__(self, new_id: Callable[[], str], local: tzinfo, max_running: int) -> None:
        self._new_id = new_id
        self._local = local
        self._max_running = max_running
        self._entries: dict[str, _JobEntry] = {}
        self._due: KeyedTimers[str] = KeyedTimers()
        self._waiting: dict[str, float | None] = {}
        """Jobs that wait for another's end, the longest first, with the due time (None: an operator's wish)."""
        self._in_flight: dict[str, str] = {}
        """The isolated run under way for each name, also where the job itself has been removed or replaced."""
        self._latest = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def status(self, name: str) -> JobStatus:
        """One job. Raises UsageError where there is none of that name."""
        entry = self._find(name)
        return JobStatus(entry.job, entry.state, self._due.due_of(name), name in self._waiting)

    def statuses(self) -> Iterator[JobStatus]:
        """All of them, in the order they came."""
        return map(self.status, self._entries)

    @property
    def running(self) -> int:
        """Isolated runs under way."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """Jobs that are due and wait for one of them to end."""
        return len(self._waiting)

    def next_wakeup(self) -> float | None:
        """When the next ``tick`` is needed; None = not before something else happens."""
        return self._due.next_due()

    def put(self, job: CronJob, state: JobState | None, now: float) -> list[CronAction]:
        """Add or replace a job; ``state`` is its kept state.

        Another schedule resets it and disowns a running run. A kept run is resumed. What was due while off passes.
        """
        known = self._entries.get(job.id)
        kept = state if known is None else known.state
        if kept is None or kept.schedule != job.schedule:
            state = JobState(schedule=job.schedule, reached=now, history=() if kept is None else kept.history)
        elif known is not None and job.enabled and not known.job.enabled:  # what fell due while it was off has passed
            state = msgspec.structs.replace(kept, reached=max(_trusted_reached(kept, now), now))
        else:
            state = kept
        entry = self._entries[job.id] = _JobEntry(job, state, zone_of(job.schedule, self._local))
        self._waiting.pop(job.id, None)
        resumed = self._resume(entry, now)
        self._arm(entry, now)
        changed = [SaveState(job.id, state)] if state is not kept else []
        return [*changed, *resumed]

    def remove(self, name: str) -> list[CronAction]:
        """Remove a job. Its running run finishes, unreported."""
        self._find(name)
        del self._entries[name]
        self._due.discard(name)
        self._waiting.pop(name, None)
        return [DeleteJob(name)]

    def run_now(self, name: str, now: float) -> list[CronAction]:
        """Run a job on request, due or enabled or not. Raises Conflict while it runs or waits."""
        entry = self._find(name)
        if name in self._in_flight:
            raise Conflict(f"job {name} is running; wait for its end, or abort that run")
        if name in self._waiting:
            raise Conflict(f"job {name} waits for its turn already; [cron] max_running = {self._max_running}")
        actions = self._trigger(entry, None, now)
        return [*actions, *self._start_waiting(now)]

    def ended(self, name: str, run: str, result: CronRunResult, now: float) -> list[CronAction]:
        """A run has ended. A disowned run only makes room."""
        if self._in_flight.get(name) == run:
            del self._in_flight[name]
        entry = self._entries.get(name)
        actions: list[CronAction] = []
        if entry is not None and entry.state.running is not None and entry.state.running.run == run:
            actions = self._conclude(entry, entry.state.running, result, now)
        if name in self._entries:
            self._arm(self._entries[name], now)
        return [*actions, *self._start_waiting(now)]

    def tick(self, now: float) -> list[CronAction]:
        """Time has passed."""
        if now < self._latest - _CLOCK_SLACK:
            for entry in self._entries.values():
                self._arm(entry, now)
            self._latest = now
        self._latest = max(self._latest, now)
        actions: list[CronAction] = []
        for name in self._due.pop_due(now, _MAX_DUE_PER_TICK):
            actions += self._fire(self._entries[name], now)
        return [*actions, *self._start_waiting(now)]

    def set_max_running(self, max_running: int, now: float) -> list[CronAction]:
        """Apply another limit (0: start nothing); running runs finish."""
        self._max_running = max_running
        return self._start_waiting(now)

    def _arm(self, entry: _JobEntry, now: float) -> None:
        due = self._next_due(entry, now)
        if due is None:
            self._due.discard(entry.job.id)
        else:
            self._due.set(entry.job.id, max(due, _backoff_end(entry.state, now)))

    def _next_due(self, entry: _JobEntry, now: float) -> float | None:
        """The first due time that has not been dealt with."""
        name, state = entry.job.id, entry.state
        if not entry.job.enabled or state.spent or name in self._waiting or name in self._in_flight:
            return None
        return next_due(entry.job.schedule, _trusted_reached(state, now), entry.zone)

    def _fire(self, entry: _JobEntry, now: float) -> list[CronAction]:
        """Compute the due time again: the clock may have been set since."""
        due = self._next_due(entry, now)
        if due is None or due > now:
            self._arm(entry, now)
            return []
        return self._trigger(entry, due, now)

    def _trigger(self, entry: _JobEntry, due: float | None, now: float) -> list[CronAction]:
        """Inject a ``main`` job now; queue an isolated one."""
        if entry.job.mode is JobMode.MAIN:
            return [InjectEvent(entry.job, self._begin_run(entry, due, now))]
        self._waiting[entry.job.id] = due
        self._due.discard(entry.job.id)
        return []

    def _start_waiting(self, now: float) -> list[CronAction]:
        actions: list[CronAction] = []
        while self._waiting and len(self._in_flight) < self._max_running:
            name = next(iter(self._waiting))
            entry, due = self._entries[name], self._waiting.pop(name)
            ticket = self._begin_run(entry, due, now)
            self._in_flight[name] = ticket.run
            actions += [SaveState(name, entry.state), StartRun(entry.job, ticket, earlier=_run_ids(entry.state))]
        return actions

    def _begin_run(self, entry: _JobEntry, due: float | None, now: float) -> ActiveRun:
        state = entry.state
        reached = state.reached if due is None else max(due, now)
        ticket = ActiveRun(run=self._new_id(), due=due, started_at=now, since=state.reached)
        entry.state = msgspec.structs.replace(state, running=ticket, reached=reached)
        self._due.discard(entry.job.id)
        return ticket

    def _resume(self, entry: _JobEntry, now: float) -> list[CronAction]:
        """Resume a kept run. A run in progress of a job that is now ``main`` is interrupted."""
        ticket = entry.state.running
        if ticket is None or entry.job.id in self._in_flight:
            return []
        if entry.job.mode is JobMode.MAIN:
            return self._conclude(
                entry, ticket, CronRunResult(CronRunStatus.INTERRUPTED, error="the job's mode is another now"), now
            )
        self._in_flight[entry.job.id] = ticket.run
        return [StartRun(entry.job, ticket, is_resumed=True, earlier=_run_ids(entry.state))]

    def _conclude(self, entry: _JobEntry, ticket: ActiveRun, result: CronRunResult, now: float) -> list[CronAction]:
        job, before = entry.job, entry.state
        outcome = CronRunRecord(
            run=ticket.run,
            due=ticket.due,
            started_at=ticket.started_at,
            ended_at=now,
            status=result.status,
            text=result.text[:_EXCERPT_LENGTH],
            error=result.error[:_EXCERPT_LENGTH],
        )
        missed = None if ticket.due is None else next_due(job.schedule, ticket.started_at, entry.zone)
        state = msgspec.structs.replace(
            before,
            running=None,
            reached=_reached_after(before, ticket, result.status, now),
            overlapped=before.overlapped + (missed is not None and missed <= now),
            history=(*before.history, outcome)[-MAX_HISTORY:],
        )
        if result.status is CronRunStatus.OK:
            state = msgspec.structs.replace(state, failures=0, hold_until=0.0, reported_at=0.0)
            if job.delete_after_run and ticket.due is not None:
                return self._finish(entry, state)
            entry.state = state
            return [SaveState(job.id, state)]
        if result.status is CronRunStatus.INTERRUPTED:  # it costs no back-off, and a failure after it is reported
            is_reported = True
        else:
            is_reported = ticket.due is None or now - before.reported_at >= _FAILURE_ALERT_INTERVAL
            state = _after_failure(state, now, is_reported=is_reported)
        entry.state = state
        report = [ReportFailure(job, outcome, state.failures)] if is_reported else []
        return [SaveState(job.id, state), *report]

    def _finish(self, entry: _JobEntry, state: JobState) -> list[CronAction]:
        """Retire a job: an added one is removed, a configured one stays and is never due again."""
        if entry.job.source is JobSource.ADDED:
            return self.remove(entry.job.id)
        entry.state = msgspec.structs.replace(state, spent=True)
        return [SaveState(entry.job.id, entry.state)]

    def _find(self, name: str) -> _JobEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise UsageError(f"there is no job {name[:80]!r}; `pool cron list` shows all")
        return entry


def _trusted_reached(state: JobState, now: float) -> float:
    """``reached``, unless a wrong clock set it; a job due only once has run in any case."""
    is_wrong = state.reached > now + _CLOCK_SLACK and not isinstance(state.schedule, At)
    return now if is_wrong else state.reached


def _backoff_end(state: JobState, now: float) -> float:
    """The end of the back-off; ``now`` if a wrong clock set it."""
    return state.hold_until if state.hold_until <= now + BACKOFF[-1] + _CLOCK_SLACK else now


def _reached_after(state: JobState, ticket: ActiveRun, status: CronRunStatus, now: float) -> float:
    if ticket.due is None or status is CronRunStatus.INTERRUPTED:
        return state.reached
    return ticket.since if status is CronRunStatus.REFUSED else max(_trusted_reached(state, now), now)


def _after_failure(state: JobState, now: float, *, is_reported: bool) -> JobState:
    """Count a failure and set the back-off."""
    hold = BACKOFF[min(state.failures, len(BACKOFF) - 1)]
    return msgspec.structs.replace(
        state, failures=state.failures + 1, hold_until=now + hold, reported_at=now if is_reported else state.reported_at
    )


def _run_ids(state: JobState) -> tuple[str, ...]:
    return tuple(outcome.run for outcome in state.history)
