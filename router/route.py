"""The route of a message (agent, session, role, workspace, each with its reasons) and its default priority. Pure."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from errors import UsageError
from profiles import ProfilesSettings
from router.agents import AgentDecision, RoleDecision, find_agent, find_role
from router.keys import ChannelKey, DmKey, GroupKey, HookKey, parse_session_key
from router.sessions import SessionDecision, find_identity, find_session
from router.settings import RouterSettings
from router.source import MessageSource
from router.workspaces import WorkspaceDecision, find_workspace

_DIRECT, _GROUP, _WEBHOOK, _OTHER = 10, 5, 3, 5
_PRIORITY_SENDER_BONUS = 2
"""More for a sender of ``router.priority_senders``."""
_WEBHOOK_CHANNELS = frozenset({"webhook", "hook"})
"""Names of channels over which programs write."""


class PriorityDecision(msgspec.Struct, frozen=True):
    """The priority of a message, and why: higher ones are served first."""

    priority: int
    reason: str


_NO_SOURCE = PriorityDecision(_OTHER, "a message without a source")


def find_priority(
    settings: RouterSettings, source: MessageSource | None, session: str, *, said: int | None = None
) -> PriorityDecision:
    """The priority that the caller has ``said``, else that of the source; without one that of the session's key."""
    if said is not None:
        return PriorityDecision(said, "as its caller says")
    if source is None:  # only a structured key has a colon, and says more
        return _session_priority(session) if ":" in session else _NO_SOURCE
    found = _source_priority(source)
    listed = find_identity({"": settings.priority_senders}, source.channel, source.sender_id)
    if listed.link is None:
        return found
    return PriorityDecision(
        found.priority + _PRIORITY_SENDER_BONUS, f"{found.reason}, from a sender of router.priority_senders"
    )


def _source_priority(source: MessageSource) -> PriorityDecision:
    if source.channel in _WEBHOOK_CHANNELS:
        return PriorityDecision(_WEBHOOK, "a webhook")
    if source.chat_type == "dm":
        return PriorityDecision(_DIRECT, "a direct message")
    return PriorityDecision(_GROUP, f"a message in a {source.chat_type}")


def _session_priority(session: str) -> PriorityDecision:
    try:
        key = parse_session_key(session)
    except UsageError:  # raised where the message is addressed
        key = None
    match key:
        case DmKey():
            return PriorityDecision(_DIRECT, "a message in a direct conversation")
        case GroupKey() | ChannelKey():
            return PriorityDecision(_GROUP, "a message in a conversation of several")
        case HookKey():
            return PriorityDecision(_WEBHOOK, "a message in a webhook's conversation")
        case _:
            return _NO_SOURCE


class RouteReasons(msgspec.Struct, frozen=True, kw_only=True):
    """What each layer found, and why."""

    agent: AgentDecision
    session: SessionDecision
    role: RoleDecision
    workspace: WorkspaceDecision
    priority: PriorityDecision


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
