"""A cron machine on a clock of its own, with what it decided performed on paper."""

from collections.abc import Iterable
from datetime import UTC, tzinfo
from itertools import count
from typing import Any

import msgspec

from heartbeat.cron.jobs import ActiveRun, CronJob, CronRunRecord, CronRunResult, CronRunStatus, JobState
from heartbeat.cron.machine import CronAction, CronMachine, DeleteJob, InjectEvent, ReportFailure, SaveState, StartRun
from heartbeat.cron.schedule import Every, Schedule
from heartbeat.cron.settings import JobMode

BEGIN = 1_700_000_000.0
OK = CronRunResult(CronRunStatus.OK)


def make_cron_job(
    name: str = "job",
    schedule: Schedule | None = None,
    *,
    mode: JobMode = JobMode.ISOLATED,
    delete_after_run: bool = False,
    enabled: bool = True,
    **facts: object,
) -> CronJob:
    job = CronJob(
        id=name,
        schedule=schedule or Every(60.0, BEGIN),
        text="water the plants",
        mode=mode,
        agent="main",
        session="agent:main:main:main",
        delete_after_run=delete_after_run,
        enabled=enabled,
    )
    return msgspec.structs.replace(job, **facts)


class Paper:
    """What was decided, in the order of it; ``states`` is what a later life finds."""

    def __init__(self, max_running: int = 4, local: tzinfo = UTC) -> None:
        self.local = local
        self.max_running = max_running
        self.now = BEGIN
        self.ids = count(1)
        self.jobs: dict[str, CronJob] = {}
        self.states: dict[str, JobState] = {}
        self.open: dict[str, StartRun] = {}
        """Isolated runs under way, by their ids."""
        self.begun: list[tuple[str, ActiveRun]] = []
        self.reported: list[ReportFailure] = []
        self.machine = self._build()

    @classmethod
    def with_job(cls, *args: Any, **facts: Any) -> "Paper":
        paper = cls()
        paper.put(make_cron_job(*args, **facts))
        return paper

    def _build(self) -> CronMachine:
        return CronMachine(lambda: f"r{next(self.ids)}", self.local, self.max_running)

    def put(self, job: CronJob) -> None:
        self.jobs[job.id] = job
        self._perform(self.machine.put(job, None, self.now))

    def remove(self, name: str) -> None:
        self._perform(self.machine.remove(name))

    def run_now(self, name: str = "job") -> None:
        self._perform(self.machine.run_now(name, self.now))

    def tick(self, by: float = 0.0) -> None:
        self.now += by
        self._perform(self.machine.tick(self.now))

    def end(self, status: CronRunStatus = CronRunStatus.OK, name: str = "job", error: str = "") -> None:
        run, start = next((run, start) for run, start in self.open.items() if start.job.id == name)
        del self.open[run]
        self._perform(
            self.machine.ended(start.job.id, run, CronRunResult(status, error=error or status.value), self.now)
        )

    def run_through(self, until: float, status: CronRunStatus = CronRunStatus.OK) -> list[float]:
        """Let time pass, each run ending as soon as it has begun; when they began, counted from ``BEGIN``."""
        begun = len(self.begun)
        while (due := self.machine.next_wakeup()) is not None and due <= BEGIN + until:
            self.now = max(self.now, due)
            self.tick()
            while self.open:
                self.end(status, next(iter(self.open.values())).job.id)
        self.now = max(self.now, BEGIN + until)
        return [ticket.started_at - BEGIN for _, ticket in self.begun[begun:]]

    def restart(self, after: float = 0.0) -> None:
        """The supervisor is killed; the next one finds what was kept."""
        self.now += after
        kept = {name: msgspec.json.encode(state) for name, state in self.states.items()}
        self.open.clear()
        self.machine = self._build()
        for name, job in self.jobs.items():
            state = msgspec.json.decode(kept[name], type=JobState) if name in kept else None
            self._perform(self.machine.put(job, state, self.now))

    def state(self, name: str = "job") -> JobState:
        return self.machine.status(name).state

    def next_due(self, name: str = "job") -> float | None:
        """Counted from ``BEGIN``."""
        due = self.machine.status(name).next_due
        return None if due is None else due - BEGIN

    def history(self, name: str = "job") -> list[CronRunStatus]:
        return [outcome.status for outcome in self.outcomes(name)]

    def outcomes(self, name: str = "job") -> tuple[CronRunRecord, ...]:
        return self.state(name).history

    def _perform(self, actions: Iterable[CronAction]) -> None:
        for action in actions:
            match action:
                case SaveState(name, state):
                    self.states[name] = state
                case DeleteJob(name):
                    self.states.pop(name, None)
                    self.jobs.pop(name, None)
                case StartRun(job, ticket, is_resumed):
                    assert ticket.run not in self.open, "it is under way"
                    self.open[ticket.run] = action
                    assert self.states[job.id].running == ticket, "a later life would not know of it"
                    if not is_resumed:
                        self.begun.append((job.id, ticket))
                case InjectEvent(job, ticket):
                    self.begun.append((job.id, ticket))
                    self._perform(self.machine.ended(job.id, ticket.run, OK, self.now))
                case ReportFailure():
                    self.reported.append(action)
