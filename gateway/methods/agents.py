"""Methods about agents: which there are."""

from typing import Any

import msgspec

from gateway.caller import Caller
from gateway.requests import NoParams
from gateway.service import Gateway

__all__ = ["AgentMethods", "AgentView"]


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as front ends see it."""

    name: str
    dialect: str
    is_default: bool
    """Whether a message that names none is for it."""
    client_tools: bool
    """Whether whoever sends a message may bring tools of its own."""


class AgentMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._shelf = gateway.shelf

    async def list(self, _params: NoParams, _caller: Caller) -> Any:
        """Every agent that the settings know."""
        return [self._view(name) for name in self._shelf.parts.profiles.agent_names()]

    def _view(self, name: str) -> AgentView:
        parts = self._shelf.parts
        dialect = parts.profiles.dialect_of(name)
        return AgentView(
            name=name,
            dialect=dialect,
            is_default=name == parts.router.default_agent,
            client_tools=dialect != "pi",
        )
