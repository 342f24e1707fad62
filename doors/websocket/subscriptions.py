"""The subscriptions of one connection, beside the events that every connection gets. Pure."""

from enum import Enum, auto

from errors import PoolSaturated

__all__ = ["MOST_SESSIONS", "Audience", "Subscriptions"]

MOST_SESSIONS = 256
"""Sessions whose messages one connection may follow."""


class Audience(Enum):
    """The connections that get an event."""

    ALL = auto()
    APPROVERS = auto()
    """Connections that may approve."""
    SESSIONS = auto()
    """Those that follow the list of sessions."""
    MESSAGES = auto()
    """Those that follow the messages of the event's session."""


class Subscriptions:
    """The subscriptions of one connection."""

    def __init__(self) -> None:
        self.approves = False
        """Whether it may approve tool calls."""
        self.sessions = False
        """Whether it follows the list of sessions."""
        self._messages: set[str] = set()

    def follow(self, session: str) -> None:
        """Add a session's messages. Raises PoolSaturated."""
        if session not in self._messages and len(self._messages) >= MOST_SESSIONS:
            raise PoolSaturated(
                f"this connection follows the messages of {MOST_SESSIONS} sessions already, which is the limit"
            )
        self._messages.add(session)

    def leave(self, session: str) -> None:
        """Remove them."""
        self._messages.discard(session)

    def includes(self, audience: Audience, session: str) -> bool:
        """Whether this connection gets the event."""
        match audience:
            case Audience.ALL:
                return True
            case Audience.APPROVERS:
                return self.approves
            case Audience.SESSIONS:
                return self.sessions
            case Audience.MESSAGES:
                return session in self._messages
