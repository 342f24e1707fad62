"""Delegation: one agent has another do a task, in a session of its own, bounded in depth and number."""

import uuid
from collections import Counter
from collections.abc import Callable

from errors import NestedSaturated
from gateway.conductor import Conductor
from gateway.events import EventBus
from gateway.intake import Intake, Lineage
from gateway.requests import AgentRequest, DelegateRequest
from gateway.run import Run, RunOutcome
from gateway.settings import GatewaySettings, QueueMode
from router.keys import check_session_key
from wire.envelope import Channel

__all__ = ["Delegation"]


class Delegation:
    """Tasks that sessions have given to other agents."""

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        intake: Intake,
        conductor: Conductor,
        bus: EventBus,
        start_soon: Callable[..., None],
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._conductor = conductor
        self._bus = bus
        self._start_soon = start_soon
        self._running: Counter[str] = Counter()
        """Tasks by the session that gave them."""

    def reconfigure(self, settings: GatewaySettings) -> None:
        """New limits."""
        self._settings = settings

    async def delegate(self, request: DelegateRequest, principal: str) -> Run:
        """Start a task. Raises NestedSaturated above the limits of depth and number, and what accepting a run raises.

        When it has ended, its outcome is told in the session that gave it (``delegate_done``).
        """
        session = check_session_key(request.session)
        giver = self._conductor.turn_of(session)
        depth = 1 + (giver.leader.request.depth if giver is not None else 0)
        self._check(session, depth)
        message = AgentRequest(
            text=request.task,
            session=f"subagent:{uuid.uuid4().hex}",
            agent=request.agent,
            role=request.role,
            timeout=request.timeout,
            lane="subagent",
            queue=QueueMode.FOLLOWUP,
        )
        self._running[session] += 1
        try:
            run = await self._intake.accept(
                message, principal, Lineage(depth, nested=giver is not None, from_session=session)
            )
        except BaseException:
            self._forget(session)
            raise
        self._start_soon(self._watch, session, run)
        return run

    def _check(self, session: str, depth: int) -> None:
        if depth > self._settings.delegate_depth:
            raise NestedSaturated(
                f"the task would be {depth} delegations deep, the limit is {self._settings.delegate_depth} "
                "(gateway.delegate_depth)",
                session=session,
            )
        if self._running[session] >= self._settings.delegate_fan_out:
            raise NestedSaturated(
                f"{self._running[session]} delegated tasks of session {session} are running, which is the limit "
                "(gateway.delegate_fan_out)",
                session=session,
                retry_after=1.0,
            )

    async def _watch(self, session: str, run: Run) -> None:
        try:
            outcome = await run.wait()
            self._tell(session, run, outcome)
        finally:
            self._forget(session)

    def _tell(self, session: str, run: Run, outcome: RunOutcome) -> None:
        self._bus.publish(
            session,
            Channel.MONITOR,
            "delegate_done",
            {"run_id": outcome.run_id, "session": run.request.session, "status": outcome.status, "text": outcome.text},
        )

    def _forget(self, session: str) -> None:
        self._running[session] -= 1
        if self._running[session] <= 0:
            del self._running[session]
