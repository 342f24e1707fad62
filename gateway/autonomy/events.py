"""System events as heartbeats see them: what waits and nobody tells, and whom it wakes."""

import math
from collections.abc import Sequence

from errors import PoolError, UsageError
from gateway.service import Gateway
from heartbeat.reasons import reason_of
from heartbeat.run_ports import PendingEvent
from heartbeat.service import Heartbeat
from heartbeat.system_events import EventKind, SystemEvent

__all__ = ["GatewayEvents", "GatewayVoice", "Waker"]


class GatewayEvents:
    """Implements ``heartbeat.run_ports.EventPort``: a turn of a person's and a beat never tell the same event."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._events = gateway.system_events

    def waiting(self) -> Sequence[tuple[str, str]]:
        """See ``EventPort.waiting``."""
        return [
            (agent, session)
            for session in self._events.waiting()
            if self._events.untold(session) and (agent := agent_of(self._gateway, session)) is not None
        ]

    def peek(self, session: str) -> Sequence[PendingEvent]:
        """See ``EventPort.peek``."""
        return self._events.untold(session)

    def claim(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.claim``."""
        self._events.claim(session, ids)

    def release(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.release``."""
        self._events.release(session, ids)

    def acknowledge(self, session: str, ids: Sequence[str]) -> None:
        """See ``EventPort.acknowledge``."""
        self._events.acknowledge(session, ids)


class Waker:
    """Wakes whoever is to be told something, as soon as it is queued.

    An agent whose settings say ``wake = false`` is not: what is queued is told with its session's next turn.
    """

    def __init__(self, gateway: Gateway, heartbeat: Heartbeat) -> None:
        self._gateway = gateway
        self._heartbeat = heartbeat

    def heard(self, event: SystemEvent) -> None:
        """An event has been queued."""
        agent = agent_of(self._gateway, event.session)
        if agent is not None:
            self._heartbeat.wake(agent, reason_of(event.kind), event.session)


class GatewayVoice:
    """Implements ``heartbeat.cron.ports.Voice``: what is queued wakes, see ``Waker``."""

    def __init__(self, gateway: Gateway, heartbeat: Heartbeat) -> None:
        self._gateway = gateway
        self._heartbeat = heartbeat

    def speak(self, *, agent: str, session: str, text: str, context: str) -> None:
        """See ``Voice.speak``."""
        problem = self.problem(agent=agent, session=session)
        if problem is not None:
            raise UsageError(problem)
        self._gateway.system_events.inject(session, text, kind=EventKind.CRON, context=context)

    def problem(self, *, agent: str, session: str) -> str | None:
        """See ``Voice.problem``."""
        owner = agent_of(self._gateway, session)
        if owner != agent:
            return (
                f"session {session} is agent {owner}'s, and the job is agent {agent}'s, who would not hear of it "
                f'there; name a session of {agent}\'s, or give the job agent = "{owner}"'
            )
        if not self._heartbeat.is_woken(agent):
            return (
                f"events do not wake agent {agent}, so a job of mode main does not run; set "
                f'agents.{agent}.heartbeat.wake = true, or give the job mode = "isolated"'
            )
        if self._heartbeat.wakes_at(agent, session) == math.inf:
            return (
                f"the active hours of agent {agent} never begin, so a job of mode main does not run; change "
                f'agents.{agent}.heartbeat.active_hours, or give the job mode = "isolated"'
            )
        return None

    def heard_at(self, *, agent: str, session: str) -> float | None:
        """See ``Voice.heard_at``."""
        return self._heartbeat.wakes_at(agent, session)


def agent_of(gateway: Gateway, session: str) -> str | None:
    """Whose the session is; the default agent's where it is nobody's yet. None for what is no key."""
    default = gateway.shelf.parts.router.default_agent
    try:
        return gateway.sessions.whose(session, None, None, default=default)[1]
    except PoolError:
        return None
