"""Delegation: an agent gives a task to another agent, in a session of its own, bounded in depth and number."""

import logging
import uuid
from collections import Counter
from collections.abc import Callable

import trio

from errors import NestedSaturated, PoolError
from gateway.events import EventBus
from gateway.requests import AgentRequest, DelegateRequest
from gateway.runs.intake import Intake
from gateway.runs.run import Run, RunOrigin, RunOutcome
from gateway.sessions.admin import SessionAdmin
from gateway.sessions.sessions import Sessions
from gateway.sessions.system_events import SystemEvents
from gateway.settings import CurrentSettings
from gateway.turns.scheduler import TurnScheduler
from heartbeat.system_events import SystemEventKind
from pool import Pool
from router.keys import normalize_session_key
from wire.events import EventType
from wire.messages import QueueMode

TASK_KEY_PREFIX = "subagent:"
"""Prefix of their keys, before the id of the task's run."""
_logger = logging.getLogger("pool.gateway")


_MAX_SUMMARY_CHARS = 2_000
"""Characters of a task's answer."""


class Delegation:
    """The tasks that sessions have given to other agents.

    A task's session is deleted as long after its end as its outcome is kept, unless it had another run.
    """

    def __init__(
        self,
        settings: CurrentSettings,
        *,
        pool: Pool,
        intake: Intake,
        scheduler: TurnScheduler,
        bus: EventBus,
        sessions: Sessions,
        session_admin: SessionAdmin,
        system_events: SystemEvents,
        start_soon: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._intake = intake
        self._scheduler = scheduler
        self._bus = bus
        self._sessions = sessions
        self._session_admin = session_admin
        self._system_events = system_events
        self._start_soon = start_soon
        self._running: Counter[str] = Counter()
        """Tasks by the session that gave them."""

    async def delegate(self, request: DelegateRequest, principal: str) -> Run:
        """Start a task. Raises NestedSaturated above the limits of depth and number, and what accepting a run raises.

        Its outcome is published in the session that gave it (``delegate_done``).
        """
        session = normalize_session_key(request.session)
        giver = self._scheduler.turn_of(session)
        depth = 1 + (giver.leader.request.depth if giver is not None else 0)
        self._check(session, depth)
        trace = None if giver is None else giver.leader.trace
        task = uuid.uuid4().hex
        message = AgentRequest(
            text=request.task,
            session=f"{TASK_KEY_PREFIX}{task}",
            run=task,
            agent=request.agent,
            role=request.role,
            timeout=request.timeout,
            lane="subagent",
            queue=QueueMode.FOLLOWUP,
            traceparent=None if trace is None else str(trace.turn),
            tracestate=None if giver is None else giver.leader.request.tracestate,
        )
        self._running[session] += 1
        try:
            run = await self._intake.accept(
                message, principal, RunOrigin(depth, nested=giver is not None, from_session=session)
            )
        except BaseException:
            self._decrement_running(session)
            raise
        self._start_soon(self._watch, session, run, request.mode == "async")
        return run

    def resume(self, run: Run) -> None:
        """Watch a recovered run that is a task, live or ended, for the session that gave it."""
        giver = run.request.from_session
        if giver is not None and run.request.session.startswith(TASK_KEY_PREFIX):
            self._running[giver] += 1
            self._start_soon(self._watch, giver, run, True)  # noqa: FBT003  # start_soon takes no names

    def delete_leftovers(self) -> None:
        """Delete the sessions of tasks that an earlier supervisor has left, likewise."""
        for entry in self._sessions:
            if entry.key.startswith(TASK_KEY_PREFIX):
                self._start_soon(self._delete_when_idle, entry.key)

    async def _delete_when_idle(self, key: str) -> None:
        """Wait on while anything runs in the session, even in the background."""
        seconds = float(self._settings.value.outcome_age)
        while True:
            await trio.sleep(seconds)
            entry = self._sessions.get(key)
            if entry is None or entry.last_run != key.removeprefix(TASK_KEY_PREFIX):
                return
            if not self._scheduler.is_busy(key) and self._pool.is_quiescent(key):
                break
        try:
            await self._session_admin.delete(key)
        except PoolError as exc:
            _logger.warning("could not delete session %s of a delegated task: %s", key, exc)

    def _check(self, session: str, depth: int) -> None:
        if depth > self._settings.value.delegate_depth:
            raise NestedSaturated(
                f"the task would be {depth} delegations deep, the limit is {self._settings.value.delegate_depth} "
                "(gateway.delegate_depth)",
                session=session,
            )
        if self._running[session] >= self._settings.value.delegate_fan_out:
            raise NestedSaturated(
                f"{self._running[session]} delegated tasks of session {session} are running, which is the limit "
                "(gateway.delegate_fan_out)",
                session=session,
                retry_after=1.0,
            )

    async def _watch(self, session: str, run: Run, injects: bool) -> None:  # noqa: FBT001  # as above
        """``injects``: the session that gave the task does not wait, and gets the outcome with its next turn."""
        try:
            outcome = await run.wait()
            facts = {"run_id": outcome.run_id, "session": run.request.session}
            facts |= {"status": outcome.status, "text": outcome.text}
            self._bus.publish(session, EventType.DELEGATE_DONE, facts)
            if injects:
                context = f"delegate:{outcome.run_id}"
                self._system_events.inject(
                    session, _summary(run, outcome), kind=SystemEventKind.DELEGATE, context=context
                )
        finally:
            self._decrement_running(session)
        self._start_soon(self._delete_when_idle, run.request.session)  # here it would keep the outcome as long

    def _decrement_running(self, session: str) -> None:
        self._running[session] -= 1
        if self._running[session] <= 0:
            del self._running[session]


def _summary(run: Run, outcome: RunOutcome) -> str:
    how = "completed" if outcome.status == "ok" else "failed"
    said = outcome.text or (outcome.error.message if outcome.error is not None else "")
    summary = f"Task {how} (agent {run.request.agent}, run {outcome.run_id})"
    return f"{summary} :: {said[:_MAX_SUMMARY_CHARS]}" if said.strip() else summary
