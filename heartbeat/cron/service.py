"""The cron service: timer and action shell of the machine, and the ``cron.*`` methods."""

import math
import uuid
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import assert_never

import msgspec
import trio

from errors import Conflict, PoolError, RunInterrupted, UsageError
from heartbeat.answers import BeatKind, SilentAnswer, classify_answer
from heartbeat.cron.job_store import JobStore
from heartbeat.cron.jobs import (
    ActiveRun,
    CronJob,
    CronPorts,
    CronRunResult,
    CronRunStatus,
    JobSource,
    JobState,
    make_job,
)
from heartbeat.cron.machine import CronAction, CronMachine, DeleteJob, InjectEvent, ReportFailure, SaveState, StartRun
from heartbeat.cron.requests import (
    CronAdd,
    CronJobPage,
    CronJobView,
    CronList,
    CronName,
    CronStats,
    job_settings_from,
    job_view,
)
from heartbeat.cron.schedule import At
from heartbeat.cron.settings import CronSettings, JobMode
from heartbeat.delivery.channel import Alert
from heartbeat.ports import BeatAnswer, BeatRequest
from heartbeat.wake import WakeReason
from router.keys import CronKey, format_session_key
from wire.events import EventType

_MAX_SLEEP = 60.0
"""With scheduled jobs the wall clock is read this often: the event loop's clock stops while the machine sleeps."""
_PRIORITY = 3
_LANE = "cron"


class CronRunner:
    """Performs actions in order; follow-up actions come after those already decided."""

    def __init__(self, machine: CronMachine, book: JobStore, ports: CronPorts) -> None:
        self._machine = machine
        self._store = book
        self._ports = ports
        self._actions: deque[CronAction] = deque()
        self._nursery: trio.Nursery | None = None
        self._is_performing = False
        self._wake = trio.Event()
        self._next_wakeup = -math.inf
        """Unix time of the next tick."""

    async def run(self) -> None:
        """Run due jobs until cancelled; isolated runs are then aborted and recorded as interrupted."""
        try:
            async with trio.open_nursery() as self._nursery:
                self.perform(())
                await self._keep_time()
        finally:
            self._nursery = None

    def perform(self, actions: Iterable[CronAction]) -> list[Awaitable[None]]:
        """Perform actions, or queue them until ``run`` starts. Await the results until the changes are durable."""
        self._actions.extend(actions)
        if self._nursery is None or self._is_performing:
            return []
        self._is_performing = True
        try:
            return self._perform_all(self._nursery)
        finally:
            self._is_performing = False
            self._rearm()

    async def _keep_time(self) -> None:
        while True:
            self._wake = trio.Event()
            now = self._ports.wall()
            due = self._machine.next_wakeup()
            self._next_wakeup = math.inf if due is None else min(due, now + _MAX_SLEEP)
            with trio.move_on_after(max(self._next_wakeup - now, 0.0)):
                await self._wake.wait()
            self.perform(self._machine.tick(self._ports.wall()))

    def _rearm(self) -> None:
        due = self._machine.next_wakeup()
        if due is not None and due < self._next_wakeup:
            self._wake.set()

    def _perform_all(self, nursery: trio.Nursery) -> list[Awaitable[None]]:
        kept: dict[str, Awaitable[None]] = {}
        while self._actions:
            match self._actions.popleft():
                case SaveState(job, state):
                    kept[job] = self._store.save_state(job, state)
                case DeleteJob(job):
                    kept[job] = self._store.delete(job)
                case InjectEvent(job, ticket):
                    self._inject_event(job, ticket)
                case StartRun(job, ticket, earlier=earlier):
                    nursery.start_soon(self._run, job, ticket, earlier, kept.get(job.id), name=f"cron {job.id}")
                case ReportFailure(job, outcome, failures):
                    self._report_failure(job, outcome.run, CronRunResult(outcome.status, error=outcome.error), failures)
                case other:
                    assert_never(other)
        return list(kept.values())

    def _inject_event(self, job: CronJob, ticket: ActiveRun) -> None:
        try:
            self._ports.waker.inject_and_wake(
                agent=job.agent, session=job.session, text=_prompt(job), context=f"cron:{job.id}:{ticket.run}"
            )
        except PoolError as exc:
            self._conclude(job, ticket, CronRunResult(CronRunStatus.REFUSED, error=exc.message))
        else:
            self._conclude(job, ticket, CronRunResult(CronRunStatus.OK))

    async def _run(
        self, job: CronJob, ticket: ActiveRun, earlier: tuple[str, ...], kept: Awaitable[None] | None
    ) -> None:
        """Run the job once its state is durable, so that the next supervisor knows the run."""
        if kept is not None:
            await kept
        self._publish_monitor(job, ticket, "started")
        try:
            answer = await self._ports.runs.run(_request(job, ticket, earlier))
        except trio.Cancelled:
            self._actions.extend(self._machine.set_max_running(0, self._ports.wall()))
            self._conclude(
                job, ticket, CronRunResult(CronRunStatus.INTERRUPTED, error="the supervisor was stopped during the run")
            )
            raise
        except PoolError as exc:
            answer = BeatAnswer(ok=False, code=exc.code, message=exc.message, started=False)
        result = _result(answer)
        if result.status is CronRunStatus.OK:
            self._deliver(job, ticket, answer)
        self._conclude(job, ticket, result)

    def _conclude(self, job: CronJob, ticket: ActiveRun, result: CronRunResult) -> None:
        self._publish_monitor(job, ticket, result.status.value, result.error)
        self.perform(self._machine.ended(job.id, ticket.run, result, self._ports.wall()))

    def _deliver(self, job: CronJob, ticket: ActiveRun, answer: BeatAnswer) -> None:
        verdict = classify_answer(answer.text, kind=BeatKind.CRON, ack_max_chars=0, has_media=bool(answer.media))
        if not isinstance(verdict, SilentAnswer):
            self._send_alert(job, ticket.run, verdict.text, answer.media)

    def _report_failure(self, job: CronJob, run: str, result: CronRunResult, failures: int) -> None:
        again = f", {failures} times in a row" if failures > 1 else ""
        self._send_alert(job, run, f"The scheduled task {job.id} {_STATUS_TEXTS[result.status]}{again}: {result.error}")

    def _send_alert(self, job: CronJob, run: str, text: str, media: tuple[str, ...] = ()) -> None:
        self._ports.alerts.accept(
            Alert(
                id=f"cron:{run}",
                agent=job.agent,
                session=job.session,
                text=text,
                reason=WakeReason.CRON.value,
                ts=self._ports.wall(),
                target=job.target,
                media=media,
            )
        )

    def _publish_monitor(self, job: CronJob, ticket: ActiveRun, status: str, error: str = "") -> None:
        facts = {"job": job.id, "run": ticket.run, "due": ticket.due, "status": status, "error": error}
        known = {name: fact for name, fact in facts.items() if fact != ""}
        self._ports.monitor.publish(_session(job), EventType.CRON, known)


_STATUS_TEXTS = {
    CronRunStatus.FAILED: "has failed",
    CronRunStatus.REFUSED: "could not begin",
    CronRunStatus.INTERRUPTED: "was interrupted and is not run again",
}


def _request(job: CronJob, ticket: ActiveRun, earlier: tuple[str, ...]) -> BeatRequest:
    return BeatRequest(
        session=_session(job),
        agent=job.agent,
        run_id=ticket.run,
        text=_prompt(job),
        priority=_PRIORITY,
        timeout=job.timeout,
        lane=_LANE,
        new_conversation=not job.keep,
        earlier=earlier,
        touch=True,
    )


def _session(job: CronJob) -> str:
    return format_session_key(CronKey(job.id)) if job.mode is JobMode.ISOLATED else job.session


def _prompt(job: CronJob) -> str:
    """The prompt with its mark, so that a leading slash is no command."""
    return f"[CRON:{job.id}] {job.text}"


def _result(answer: BeatAnswer) -> CronRunResult:
    if answer.ok:
        return CronRunResult(CronRunStatus.OK, text=answer.text)
    error = answer.message or answer.code or "the run failed without a word"
    if answer.code == RunInterrupted.code:
        return CronRunResult(CronRunStatus.INTERRUPTED, error=error)
    return CronRunResult(CronRunStatus.FAILED if answer.started else CronRunStatus.REFUSED, error=error)


_LOAD_BATCH = 100


class CronService:
    """``await load()`` once, then ``run()`` in a task until it is cancelled."""

    def __init__(self, settings: CronSettings, ports: CronPorts) -> None:
        self._ports = ports
        self._settings = settings
        self._machine = CronMachine(lambda: uuid.uuid4().hex, ports.local, settings.max_running)
        self._store = JobStore(ports)
        self._runner = CronRunner(self._machine, self._store, ports)

    async def load(self) -> None:
        """Load configured and added jobs with their kept states."""
        states = await self._store.load()
        self._store.apply_settings(self._settings)
        for count, job in enumerate(self._store.jobs().values()):
            self._put_job(job, states.pop(job.id, None))
            if count % _LOAD_BATCH == 0:
                await trio.lowlevel.checkpoint()
        for name in states:
            self._store.save_state(name, None)

    async def run(self) -> None:
        """Run due jobs until cancelled."""
        await self._runner.run()

    def close(self) -> None:
        """Start no more runs; the next supervisor runs them."""
        self._runner.perform(self._machine.set_max_running(0, self._ports.wall()))

    def reconfigure(self, settings: CronSettings) -> None:
        """Apply other settings. Unchanged jobs keep their state."""
        before = {standing.job.id: standing.job for standing in self._machine.statuses()}
        self._store.apply_settings(settings)
        jobs = self._store.jobs()
        for name in before.keys() - jobs.keys():
            self._runner.perform(self._machine.remove(name))
        for name, job in jobs.items():
            if before.get(name) != job:
                self._put_job(job, None)
        self._runner.perform(self._machine.set_max_running(settings.max_running, self._ports.wall()))

    async def add(self, params: CronAdd) -> CronJobView:
        """Add a job; returns once it is durable. Raises UsageError, or Conflict for an existing id."""
        job = self._make_job(params)
        self._store.check_name(job.id, replace=params.replace)
        kept = self._store.save(job)
        await _await_all([kept, *self._runner.perform(self._machine.put(job, None, self._ports.wall()))])
        return self._view(job.id)

    async def delete(self, params: CronName) -> CronJobView:
        """Delete an added job and return it once that is durable. Its running run finishes."""
        view = self._view(params.id)
        self._store.reject_configured(params.id, "delete")
        await _await_all(self._runner.perform(self._machine.remove(params.id)))
        return view

    async def enable(self, params: CronName) -> CronJobView:
        """Have an added job due by the clock again; returns once that is durable. What was due meanwhile passes."""
        return await self._switch(params.id, enabled=True)

    async def disable(self, params: CronName) -> CronJobView:
        """Have an added job due by the clock no more; returns once that is durable. Its running run finishes."""
        return await self._switch(params.id, enabled=False)

    async def _switch(self, name: str, *, enabled: bool) -> CronJobView:
        job = msgspec.structs.replace(self._machine.status(name).job, enabled=enabled)
        self._store.reject_configured(name, "change")
        kept = self._store.save(job)
        await _await_all([kept, *self._runner.perform(self._machine.put(job, None, self._ports.wall()))])
        return self._view(name)

    def run_now(self, params: CronName) -> CronJobView:
        """Run a job now, due or not.

        Raises Conflict while it runs or waits, and for a ``main`` job whose agent would not be woken.
        """
        problem = self._view(params.id).problem
        if problem is not None:
            raise Conflict(f"job {params.id} does not run: {problem}")
        self._runner.perform(self._machine.run_now(params.id, self._ports.wall()))
        return self._view(params.id)

    def get(self, params: CronName) -> CronJobView:
        """One job with its history."""
        return self._view(params.id)

    def list(self, params: CronList) -> CronJobPage:
        """A page of all jobs."""
        names = sorted(standing.job.id for standing in self._machine.statuses())
        rest = [name for name in names if name > params.after]
        views = (self._view(name, whole=False) for name in rest[: params.limit])
        return CronJobPage(
            jobs=tuple(views), total=len(names), more=len(rest) > params.limit, problems=self._store.problems
        )

    def status(self) -> CronStats:
        """Figures of this moment."""
        machine = self._machine
        return CronStats(
            jobs=len(machine),
            running=machine.running,
            waiting=machine.waiting,
            failing=sum(standing.state.failures > 0 for standing in machine.statuses()),
            next_due=machine.next_wakeup(),
            problems=self._store.problems,
        )

    def _put_job(self, job: CronJob, state: JobState | None) -> None:
        now = self._ports.wall()
        if isinstance(job.schedule, At) and job.schedule.when <= now:
            known = state or (self._machine.status(job.id).state if job.id in self._machine else None)
            if known is None or known.schedule != job.schedule:
                self._store.record_expired(job)
        self._runner.perform(self._machine.put(job, state, now))

    def _make_job(self, params: CronAdd) -> CronJob:
        ports, now = self._ports, self._ports.wall()
        said = job_settings_from(params, now=now)
        name = uuid.uuid4().hex[:8] if params.id is None else params.id
        job = make_job(name, said, source=JobSource.ADDED, now=now, local=ports.local, names=ports.names)
        if isinstance(job.schedule, At) and job.schedule.when <= now:
            raise UsageError(f'at = "{params.at}" has passed; `pool cron run` runs a job at once')
        return job

    def _view(self, name: str, *, whole: bool = True) -> CronJobView:
        standing = self._machine.status(name)
        return job_view(standing, self._ports.local, self._ports.waker, whole=whole)


async def _await_all(kept: Iterable[Awaitable[None]]) -> None:
    for each in kept:
        await each
