"""Scheduled tasks as the doors see them: add, list, look, remove, run; and the task that carries them out."""

import uuid
from collections.abc import Awaitable, Iterable, Sequence

import trio

from errors import Conflict, UsageError
from heartbeat.cron.actions import Action
from heartbeat.cron.book import Book
from heartbeat.cron.jobs import CronJob, Source, make_job
from heartbeat.cron.machine import CronMachine
from heartbeat.cron.ports import CronPorts
from heartbeat.cron.records import JobState
from heartbeat.cron.requests import (
    CronAdd,
    CronFigures,
    CronJobs,
    CronJobView,
    CronList,
    CronName,
    said_by,
    view_of,
)
from heartbeat.cron.runner import Runner
from heartbeat.cron.schedule import At
from heartbeat.cron.settings import CronSettings, Mode

__all__ = ["CronService"]

_TAKEN_AT_ONCE = 100


class CronService:
    """``await load()`` once, then ``run()`` in a task until it is cancelled."""

    def __init__(self, settings: CronSettings, ports: CronPorts) -> None:
        self._ports = ports
        self._settings = settings
        self._machine = CronMachine(lambda: uuid.uuid4().hex, ports.local, settings.max_running)
        self._book = Book(ports)
        self._runner = Runner(self._machine, self._book, ports)

    async def load(self) -> None:
        """Take up the jobs of the settings and the added ones, each where an earlier life has left it."""
        states = await self._book.load()
        self._book.take_settings(self._settings)
        for count, job in enumerate(self._book.jobs().values()):
            self._take(job, states.pop(job.id, None))
            if count % _TAKEN_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        for name in states:
            self._book.forget_state(name)

    async def run(self) -> None:
        """Carry out what is due, until cancelled."""
        await self._runner.run()

    def close(self) -> None:
        """Begin no more runs: what becomes due is left to the next life."""
        self._runner.perform(self._machine.set_max_running(0, self._ports.wall()))

    def reconfigure(self, settings: CronSettings) -> None:
        """Other settings hold from now on. A job that they define as before goes on as before."""
        before = {standing.job.id: standing.job for standing in self._machine.standings()}
        self._settings = settings
        self._book.take_settings(settings)
        jobs = self._book.jobs()
        for name in before.keys() - jobs.keys():
            self._runner.perform(self._machine.remove(name))
        for name, job in jobs.items():
            if before.get(name) != job:
                self._take(job, None)
        self._runner.perform(self._machine.set_max_running(settings.max_running, self._ports.wall()))

    # --- methods ------------------------------------------------------------------------------------------------------

    async def add(self, params: CronAdd) -> CronJobView:
        """Keep a job; answers once it is durable. Raises UsageError, or Conflict where there is one of that id."""
        job = self._job_of(params)
        self._book.check_name(job.id, replace=params.replace)
        kept = self._book.keep(job)
        await _all([kept, *self._perform(self._machine.put(job, None, self._ports.wall()))])
        return self._view(job.id)

    async def remove(self, params: CronName) -> CronJobView:
        """Drop an added job; answers with what it was once that is durable. A run of it goes on to its end."""
        view = self._view(params.id)
        self._book.check_removal(params.id)
        await _all(self._perform(self._machine.remove(params.id)))
        return view

    def run_now(self, params: CronName) -> CronJobView:
        """Run a job, whether it is due or not.

        Raises Conflict while it runs or waits to, and for one of mode ``main`` whose agent would not be woken.
        """
        problem = self._view(params.id).problem
        if problem is not None:
            raise Conflict(f"job {params.id} does not run: {problem}")
        self._perform(self._machine.run_now(params.id, self._ports.wall()))
        return self._view(params.id)

    def get(self, params: CronName) -> CronJobView:
        """One job with its history."""
        return self._view(params.id)

    def list(self, params: CronList) -> CronJobs:
        """A page of all jobs."""
        names = sorted(standing.job.id for standing in self._machine.standings())
        rest = [name for name in names if name > params.after]
        views = (self._view(name, whole=False) for name in rest[: params.limit])
        return CronJobs(
            jobs=tuple(views), total=len(names), more=len(rest) > params.limit, problems=self._book.problems
        )

    def status(self) -> CronFigures:
        """Figures of this moment."""
        machine = self._machine
        return CronFigures(
            jobs=len(machine),
            running=machine.running,
            waiting=machine.waiting,
            failing=sum(standing.state.failures > 0 for standing in machine.standings()),
            next_due=machine.next_wakeup(),
            problems=self._book.problems,
        )

    # --- parts --------------------------------------------------------------------------------------------------------

    def _take(self, job: CronJob, state: JobState | None) -> None:
        now = self._ports.wall()
        if isinstance(job.schedule, At) and job.schedule.when <= now:
            known = state or (self._machine.standing(job.id).state if job.id in self._machine else None)
            if known is None or known.schedule != job.schedule:
                self._book.note_too_late(job)
        self._perform(self._machine.put(job, state, now))

    def _job_of(self, params: CronAdd) -> CronJob:
        ports, now = self._ports, self._ports.wall()
        said = said_by(params, now=now)
        name = uuid.uuid4().hex[:8] if params.id is None else params.id
        job = make_job(name, said, source=Source.ADDED, now=now, local=ports.local, names=ports.names)
        if isinstance(job.schedule, At) and job.schedule.when <= now:
            raise UsageError(f'at = "{params.at}" has passed; `pool cron run` runs a job at once')
        return job

    def _perform(self, actions: Iterable[Action]) -> Sequence[Awaitable[None]]:
        return self._runner.perform(actions)

    def _view(self, name: str, *, whole: bool = True) -> CronJobView:
        standing, voice = self._machine.standing(name), self._ports.voice
        job = standing.job
        if job.mode is Mode.ISOLATED:
            return view_of(standing, self._ports.local, whole=whole)
        return view_of(
            standing,
            self._ports.local,
            whole=whole,
            problem=voice.problem(agent=job.agent, session=job.session),
            heard_at=voice.heard_at(agent=job.agent, session=job.session),
        )


async def _all(kept: Iterable[Awaitable[None]]) -> None:
    for each in kept:
        await each
