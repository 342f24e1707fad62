"""The priority of a message whose caller sets none: by where the message comes from. Pure."""

import msgspec

from errors import UsageError
from router.keys import ChannelKey, DmKey, GroupKey, HookKey, parse_session_key
from router.links import find_identity
from router.settings import RouterSettings
from router.source import MessageSource

__all__ = ["PriorityFinding", "find_priority"]

DIRECT = 10
GROUP = 5
WEBHOOK = 3
OTHER = 5
ALLOWED = 2
"""More for a sender of ``router.priority_senders``."""

_WEBHOOKS = frozenset({"webhook", "hook"})
"""Names of channels over which programs write."""


class PriorityFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The priority of a message, and why: higher ones are served first."""

    priority: int
    reason: str


def find_priority(
    settings: RouterSettings, source: MessageSource | None, session: str, *, said: int | None = None
) -> PriorityFinding:
    """The priority that the caller has ``said``, else that of the source; without one that of the session's key."""
    if said is not None:
        return PriorityFinding(priority=said, reason="as its caller says")
    found = _of_session(session) if source is None else _of_source(source)
    if source is not None and _is_allowed(settings, source):
        reason = f"{found.reason}, from a sender of router.priority_senders"
        return PriorityFinding(priority=found.priority + ALLOWED, reason=reason)
    return found


def _of_source(source: MessageSource) -> PriorityFinding:
    if source.channel in _WEBHOOKS:
        return PriorityFinding(priority=WEBHOOK, reason="a webhook")
    if source.chat_type == "dm":
        return PriorityFinding(priority=DIRECT, reason="a direct message")
    return PriorityFinding(priority=GROUP, reason=f"a message in a {source.chat_type}")


def _of_session(session: str) -> PriorityFinding:
    try:
        key = parse_session_key(session)
    except UsageError:  # raised where the message is addressed
        return PriorityFinding(priority=OTHER, reason="a message without a source")
    match key:
        case DmKey():
            return PriorityFinding(priority=DIRECT, reason="a message in a direct conversation")
        case GroupKey() | ChannelKey():
            return PriorityFinding(priority=GROUP, reason="a message in a conversation of several")
        case HookKey():
            return PriorityFinding(priority=WEBHOOK, reason="a message in a webhook's conversation")
        case _:
            return PriorityFinding(priority=OTHER, reason="a message without a source")


def _is_allowed(settings: RouterSettings, source: MessageSource) -> bool:
    listed = {"": settings.priority_senders}
    return find_identity(listed, source.channel, source.sender_id).link is not None
