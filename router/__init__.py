"""From where a message came to whose it is: session key, agent, role, workspace. Pure but for one directory."""

from router.keys import (
    MAX_KEY_LENGTH,
    ChannelKey,
    CronKey,
    DmKey,
    FreeKey,
    GroupKey,
    HookKey,
    MainKey,
    NamedKey,
    SessionKey,
    format_session_key,
    main_session_key,
    normalize_session_key,
    parse_session_key,
    session_dir,
)
from router.route import RouteDecision, RouteReasons, route
from router.settings import Binding, RoleTables, RouterSettings, router_problems
from router.source import ChatType, MessageSource, Peer
from router.workspaces import WorkspaceDecision, find_workspace, make_workspace

__all__ = [
    "MAX_KEY_LENGTH",
    "Binding",
    "ChannelKey",
    "ChatType",
    "CronKey",
    "DmKey",
    "FreeKey",
    "GroupKey",
    "HookKey",
    "MainKey",
    "MessageSource",
    "NamedKey",
    "Peer",
    "RoleTables",
    "RouteDecision",
    "RouteReasons",
    "RouterSettings",
    "SessionKey",
    "WorkspaceDecision",
    "find_workspace",
    "format_session_key",
    "main_session_key",
    "make_workspace",
    "normalize_session_key",
    "parse_session_key",
    "route",
    "router_problems",
    "session_dir",
]
