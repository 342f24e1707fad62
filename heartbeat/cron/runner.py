"""The machine's async shell: it keeps time by the calendar's clock, and has what the machine decides performed."""

import math
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import assert_never

import trio

from errors import PoolError, RunInterrupted
from heartbeat.acknowledgement import Silent, judge
from heartbeat.cron.actions import Action, Forget, Keep, Speak, Start, Tell
from heartbeat.cron.book import Book
from heartbeat.cron.jobs import CronJob
from heartbeat.cron.machine import CronMachine
from heartbeat.cron.ports import CronPorts
from heartbeat.cron.records import Result, Status, Ticket
from heartbeat.cron.settings import Mode
from heartbeat.delivery.channel import Alert
from heartbeat.kinds import BeatKind
from heartbeat.reasons import Reason
from heartbeat.run_ports import BeatAnswer, BeatRequest
from router.keys import CronKey, format_session_key

__all__ = ["Runner"]

_LONGEST_NAP = 60.0
"""The event loop's clock stands still while the machine sleeps, and nobody says when the calendar's is set: while a
job is due some day, the calendar is looked at so often."""
_PRIORITY = 3
_LANE = "cron"


class Runner:
    """Performs actions in their order; what performing one leads to comes after those decided before it."""

    def __init__(self, machine: CronMachine, book: Book, ports: CronPorts) -> None:
        self._machine = machine
        self._book = book
        self._ports = ports
        self._actions: deque[Action] = deque()
        self._nursery: trio.Nursery | None = None
        self._is_performing = False
        self._wake = trio.Event()
        self._awake_at = -math.inf
        """When the task that keeps time looks by itself, Unix time."""

    async def run(self) -> None:
        """Keep time until cancelled; isolated runs under way are then aborted, and remembered as interrupted."""
        try:
            async with trio.open_nursery() as self._nursery:
                self.perform(())
                await self._keep_time()
        finally:
            self._nursery = None

    def perform(self, actions: Iterable[Action]) -> list[Awaitable[None]]:
        """Perform the actions; before ``run``, as soon as that begins. Returns what waits until all kept is durable."""
        self._actions.extend(actions)
        if self._nursery is None or self._is_performing:
            return []
        self._is_performing = True
        try:
            return self._perform_all(self._nursery)
        finally:
            self._is_performing = False
            self._rearm()

    # --- keeping time -------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            self._wake = trio.Event()
            now = self._ports.wall()
            due = self._machine.next_wakeup()
            self._awake_at = math.inf if due is None else min(due, now + _LONGEST_NAP)
            with trio.move_on_after(max(self._awake_at - now, 0.0)):
                await self._wake.wait()
            self.perform(self._machine.tick(self._ports.wall()))

    def _rearm(self) -> None:
        due = self._machine.next_wakeup()
        if due is not None and due < self._awake_at:
            self._wake.set()

    # --- performing ---------------------------------------------------------------------------------------------------

    def _perform_all(self, nursery: trio.Nursery) -> list[Awaitable[None]]:
        kept: dict[str, Awaitable[None]] = {}
        while self._actions:
            match self._actions.popleft():
                case Keep(job, state):
                    kept[job] = self._book.keep_state(job, state)
                case Forget(job):
                    kept[job] = self._book.forget(job)
                case Speak(job, ticket):
                    self._speak(job, ticket)
                case Start(job, ticket, earlier=earlier):
                    nursery.start_soon(self._run, job, ticket, earlier, kept.get(job.id), name=f"cron {job.id}")
                case Tell(job, outcome, failures):
                    self._tell_failure(job, outcome.run, Result(outcome.status, error=outcome.error), failures)
                case other:
                    assert_never(other)
        return list(kept.values())

    def _speak(self, job: CronJob, ticket: Ticket) -> None:
        try:
            self._ports.voice.speak(
                agent=job.agent, session=job.session, text=_prompt(job), context=f"cron:{job.id}:{ticket.run}"
            )
        except PoolError as exc:
            self._conclude(job, ticket, Result(Status.REFUSED, error=exc.message))
        else:
            self._conclude(job, ticket, Result(Status.OK))

    async def _run(self, job: CronJob, ticket: Ticket, earlier: tuple[str, ...], kept: Awaitable[None] | None) -> None:
        """Begin only what a later life would know of."""
        if kept is not None:
            await kept
        self._monitor(job, ticket, "started")
        try:
            answer = await self._ports.runs.run(_request(job, ticket, earlier))
        except trio.Cancelled:
            self._actions.extend(self._machine.set_max_running(0, self._ports.wall()))
            self._conclude(job, ticket, Result(Status.INTERRUPTED, error="the supervisor was stopped during the run"))
            raise
        except PoolError as exc:
            answer = BeatAnswer(ok=False, code=exc.code, message=exc.message, started=False)
        result = _result(answer)
        if result.status is Status.OK:
            self._deliver(job, ticket, answer)
        self._conclude(job, ticket, result)

    def _conclude(self, job: CronJob, ticket: Ticket, result: Result) -> None:
        self._monitor(job, ticket, result.status.value, result.error)
        self.perform(self._machine.ended(job.id, ticket.run, result, self._ports.wall()))

    # --- telling ------------------------------------------------------------------------------------------------------

    def _deliver(self, job: CronJob, ticket: Ticket, answer: BeatAnswer) -> None:
        verdict = judge(answer.text, kind=BeatKind.CRON, ack_max_chars=0, has_media=bool(answer.media))
        if not isinstance(verdict, Silent):
            self._post(job, ticket.run, verdict.text, answer.media)

    def _tell_failure(self, job: CronJob, run: str, result: Result, failures: int) -> None:
        again = f", {failures} times in a row" if failures > 1 else ""
        self._post(job, run, f"The scheduled task {job.id} {_WENT[result.status]}{again}: {result.error}")

    def _post(self, job: CronJob, run: str, text: str, media: tuple[str, ...] = ()) -> None:
        self._ports.alerts.accept(
            Alert(
                id=f"cron:{run}",
                agent=job.agent,
                session=job.session,
                text=text,
                reason=Reason.CRON.value,
                ts=self._ports.wall(),
                target=job.target,
                media=media,
            )
        )

    def _monitor(self, job: CronJob, ticket: Ticket, status: str, error: str = "") -> None:
        facts = {"job": job.id, "run": ticket.run, "due": ticket.due, "status": status, "error": error}
        self._ports.monitor.tell("cron", _session(job), {name: fact for name, fact in facts.items() if fact != ""})


_WENT = {
    Status.FAILED: "has failed",
    Status.REFUSED: "could not begin",
    Status.INTERRUPTED: "was interrupted and is not run again",
}


def _request(job: CronJob, ticket: Ticket, earlier: tuple[str, ...]) -> BeatRequest:
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
    """Where the job is done."""
    return format_session_key(CronKey(job.id)) if job.mode is Mode.ISOLATED else job.session


def _prompt(job: CronJob) -> str:
    """Marked, also where it stands alone: the agent knows that nobody waits, and a slash in front is no command."""
    return f"[CRON:{job.id}] {job.text}"


def _result(answer: BeatAnswer) -> Result:
    if answer.ok:
        return Result(Status.OK, text=answer.text)
    error = answer.message or answer.code or "the run failed without a word"
    if answer.code == RunInterrupted.code:
        return Result(Status.INTERRUPTED, error=error)
    return Result(Status.FAILED if answer.started else Status.REFUSED, error=error)
