"""What a token may do: three scopes, each of which holds the one before, and approvals beside them. Pure."""

from enum import IntEnum

__all__ = ["APPROVALS", "METHODS", "Scope", "scope_of"]


class Scope(IntEnum):
    """From looking to everything."""

    READ = 1
    WRITE = 2
    ADMIN = 3


_READ = (
    *("ping", "status", "agent.wait", "explain", "route", "events.peek", "subscribe", "unsubscribe"),
    *("sessions.list", "sessions.get", "sessions.history", "agents.list", "workers.list", "waiting.list"),
    *("heartbeat.status", "cron.list", "cron.get", "approvals.list", "approvals.show"),
)
_WRITE = (
    *("agent", "prompt", "steer", "abort", "delegate", "process", "sessions.reset", "sessions.patch", "events.inject"),
    *("acquire", "release", "decide", "ui.respond", "heartbeat.run"),
)

METHODS = {**dict.fromkeys(_READ, Scope.READ), **dict.fromkeys(_WRITE, Scope.WRITE)}
"""What a method needs; one that is not named needs ``ADMIN``."""

APPROVALS = frozenset({"decide", "ui.respond"})
"""Methods that need the right to approve instead of a scope."""


def scope_of(method: str) -> Scope:
    """The scope that a method needs, of those that are not for approvals."""
    return METHODS.get(method, Scope.ADMIN)
