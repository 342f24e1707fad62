"""Methods about what agents do by themselves: heartbeats and scheduled tasks."""

from errors import PoolClosed, UsageError
from gateway.autonomy import Autonomy
from gateway.caller import Caller
from gateway.requests import BeatNow, NoParams
from gateway.service import Gateway
from heartbeat.beat_records import AgentStatus, BeatReport
from heartbeat.cron.requests import CronAdd, CronJobs, CronJobView, CronList, CronName
from heartbeat.reasons import Reason
from router.keys import check_session_key

__all__ = ["AutonomyMethods"]


class AutonomyMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway, autonomy: Autonomy) -> None:
        self._gateway = gateway
        self._heartbeat = autonomy.heartbeat
        self._cron = autonomy.cron

    async def beat(self, params: BeatNow, _caller: Caller) -> BeatReport:
        """Have an agent beat, and answer with what came of it."""
        if self._gateway.intake.is_closed:
            raise PoolClosed("the supervisor is shutting down, and nothing begins any more")
        agent, session = self._whose(params)
        return await self._heartbeat.run_now(agent, Reason(params.reason), session)

    def _whose(self, params: BeatNow) -> tuple[str, str | None]:
        default = self._gateway.shelf.parts.router.default_agent
        if params.session is None:
            return params.agent or default, None
        session, agent, _role = self._gateway.sessions.whose(
            params.session, None, None, default=params.agent or default
        )
        if params.agent is not None and params.agent != agent:
            raise UsageError(f"session {session} is agent {agent}'s, not {params.agent}'s", session=session)
        return agent, check_session_key(session)

    async def heartbeats(self, _params: NoParams, _caller: Caller) -> list[AgentStatus]:
        """How every agent's heartbeat stands."""
        return self._heartbeat.status()

    async def add(self, params: CronAdd, _caller: Caller) -> CronJobView:
        """Keep a task."""
        return await self._cron.add(params)

    async def list(self, params: CronList, _caller: Caller) -> CronJobs:
        """Tasks by name."""
        return self._cron.list(params)

    async def get(self, params: CronName, _caller: Caller) -> CronJobView:
        """One task, with its history."""
        return self._cron.get(params)

    async def remove(self, params: CronName, _caller: Caller) -> CronJobView:
        """Drop a task."""
        return await self._cron.remove(params)

    async def run(self, params: CronName, _caller: Caller) -> CronJobView:
        """Run a task now."""
        return self._cron.run_now(params)
