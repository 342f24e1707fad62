"""Persistence of scheduled tasks: jobs of the settings, added jobs, and their states."""

from collections.abc import Awaitable, Mapping
from typing import TypeVar

import msgspec

from errors import Conflict, UsageError
from heartbeat.cron.jobs import MAX_JOBS, CronJob, CronPorts, JobSource, JobState, make_job
from heartbeat.cron.schedule import check_schedule
from heartbeat.cron.settings import CronSettings
from wire.framing import DECODE_ERRORS

JOB_KIND = "cron_job"
STATE_KIND = "cron_state"
"""Kinds of documents; their keys are the jobs' names."""

T = TypeVar("T")

_MAX_PROBLEMS = 100


class JobStore:
    """Jobs by name. A configured job hides an added one of its name, which is kept."""

    def __init__(self, ports: CronPorts) -> None:
        self._ports = ports
        self._added: dict[str, CronJob] = {}
        self._configured: dict[str, CronJob] = {}
        self._load_problems: list[str] = []
        self._settings_problems: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """The first hundred problems with jobs, as text."""
        shadowed = self._added.keys() & self._configured.keys()
        both = [f"job {name} was added, and the settings define it too: theirs holds" for name in sorted(shadowed)]
        return tuple([*self._settings_problems, *both, *self._load_problems][:_MAX_PROBLEMS])

    async def load(self) -> dict[str, JobState]:
        """Load the added jobs; return the kept states of all jobs by name."""
        documents = self._ports.documents
        jobs = _decoded(await documents.load(JOB_KIND), CronJob, self._load_problems)
        for job in jobs.values():
            try:
                check_schedule(job.schedule, job.created_at, self._ports.local)
            except UsageError as exc:
                self._load_problems.append(f"job {job.id} as it was added cannot be used any more: {exc.message}")
            else:
                self._added[job.id] = job
        return _decoded(await documents.load(STATE_KIND), JobState, self._load_problems)

    def apply_settings(self, settings: CronSettings) -> None:
        """Apply other settings. An unusable job becomes a problem and is skipped."""
        ports, now = self._ports, self._ports.wall()
        self._configured, self._settings_problems = {}, []
        for name, said in settings.jobs.items():
            try:
                self._configured[name] = make_job(
                    name, said, source=JobSource.SETTINGS, now=now, local=ports.local, names=ports.names
                )
            except UsageError as exc:
                self._settings_problems.append(f"job {name} of the settings cannot be used: {exc.message}")

    def record_expired(self, job: CronJob) -> None:
        """Report a job whose only due time had passed when it was first seen."""
        self._settings_problems.append(
            f"the time of job {job.id} had passed when it was first seen; `pool cron run` runs it"
        )

    def jobs(self) -> dict[str, CronJob]:
        """All effective jobs."""
        return {**self._added, **self._configured}

    def check_name(self, name: str, *, replace: bool) -> None:
        """Raise UsageError or Conflict where a job of that name cannot be added."""
        self.reject_configured(name, "change")
        if name in self._added and not replace:
            raise Conflict(f"there is a job {name} already; delete it, or add this one in its place (replace)")
        if name not in self._added and len(self.jobs()) >= MAX_JOBS:
            raise UsageError(f"there are {MAX_JOBS} jobs already, as many as are possible; delete some")

    def save(self, job: CronJob) -> Awaitable[None]:
        """Keep an added job; await the result until it is durable."""
        self._added[job.id] = job
        return self._ports.documents.put(JOB_KIND, job.id, msgspec.json.encode(job))

    def save_state(self, name: str, state: JobState | None) -> Awaitable[None]:
        """Keep the state of a job; None = delete it."""
        return self._ports.documents.put(STATE_KIND, name, None if state is None else msgspec.json.encode(state))

    def delete(self, name: str) -> Awaitable[None]:
        """Delete a job with its state."""
        if self._added.pop(name, None) is not None:
            self._ports.documents.put(JOB_KIND, name, None)
        return self.save_state(name, None)

    def reject_configured(self, name: str, verb: str) -> None:
        """Raise UsageError where the job is not one that was added."""
        if name in self._configured:
            raise UsageError(f"job {name} is defined by [cron.jobs.{name}] of the settings file; {verb} it there")


def _decoded(bodies: Mapping[str, bytes], kind: type[T], problems: list[str]) -> dict[str, T]:
    """What can be read; the rest stays where it is, for a version that understands it."""
    found: dict[str, T] = {}
    for name, body in bodies.items():
        try:
            found[name] = msgspec.json.decode(body, type=kind)
        except DECODE_ERRORS as exc:
            problems.append(f"what was kept of job {name} ({kind.__name__}) cannot be read: {exc}")
    return found
