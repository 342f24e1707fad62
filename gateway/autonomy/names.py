"""What a scheduled task may name: agents and places of the settings that hold at the moment."""

from collections.abc import Collection

from gateway.service import Gateway
from heartbeat.cron.jobs import Names
from heartbeat.delivery.targets import target_problem

__all__ = ["KnownNames"]

_SHOWN = 20


class KnownNames:
    """``webhooks`` may be replaced; agents are those of the gateway."""

    def __init__(self, gateway: Gateway, webhooks: Collection[str]) -> None:
        self._gateway = gateway
        self.webhooks = webhooks

    def names(self) -> Names:
        """As scheduled tasks ask for them."""
        return Names(self._agent_problem, self._target_problem, self._default_agent)

    def _default_agent(self) -> str:
        return self._gateway.shelf.parts.router.default_agent

    def _agent_problem(self, agent: str) -> str | None:
        profiles = self._gateway.shelf.parts.profiles
        if agent in profiles.agents or agent in (known := profiles.agent_names()):
            return None
        more = ", ..." if len(known) > _SHOWN else ""
        return f"there is no agent {agent[:80]!r}; there are: {', '.join(known[:_SHOWN])}{more}"

    def _target_problem(self, target: str) -> str | None:
        return target_problem(target, self.webhooks)
