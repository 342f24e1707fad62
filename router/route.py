"""The whole way of a message: agent, session, role, workspace, each with its reasons. Pure."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from profiles import ProfilesSettings
from router.agents import AgentFinding, find_agent
from router.priorities import PriorityFinding, find_priority
from router.roles import RoleFinding, find_role
from router.sessions import SessionFinding, find_session
from router.settings import RouterSettings
from router.source import MessageSource
from router.workspaces import WorkspaceFinding, find_workspace

__all__ = ["RouteDecision", "RouteReasons", "route"]


class RouteReasons(msgspec.Struct, frozen=True, kw_only=True):
    """What each layer found, and why."""

    agent: AgentFinding
    session: SessionFinding
    role: RoleFinding
    workspace: WorkspaceFinding
    priority: PriorityFinding


class RouteDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a message is. Encodes to JSON."""

    session: str
    """The session key."""
    agent: str
    role: str
    workspace: str
    """The directory where it would work; it need not exist yet."""
    priority: int
    """Which message gets a worker first, where its caller does not say otherwise."""
    text: str
    """The message, without the prefix that chose the agent."""
    reasons: RouteReasons


def route(
    settings: RouterSettings,
    profiles: ProfilesSettings,
    source: MessageSource,
    text: str,
    *,
    data_dir: Path,
    commands: Collection[str] = (),
) -> RouteDecision:
    """Decide for a message. ``commands``: names of the gateway's own slash commands, which come before any prefix.

    Raises UsageError for a source that lacks what its session key needs, and for settings that name an unknown agent or
    role.
    """
    agent = find_agent(settings, profiles.agent_names(), commands, source, text)
    session = find_session(settings, source, agent.agent)
    role = find_role(settings.roles, source, agent.agent)
    workspace = find_workspace(settings, profiles, agent.agent, role.role, data_dir, session=session.key)
    priority = find_priority(settings, source, session.key)
    return RouteDecision(
        session=session.key,
        agent=agent.agent,
        role=role.role,
        workspace=workspace.path,
        priority=priority.priority,
        text=agent.text,
        reasons=RouteReasons(agent=agent, session=session, role=role, workspace=workspace, priority=priority),
    )
