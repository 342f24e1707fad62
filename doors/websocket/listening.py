"""What one connection wants to hear of beside the events that everybody gets. Pure."""

from enum import Enum, auto

from errors import PoolSaturated

__all__ = ["MOST_SESSIONS", "Audience", "Listening"]

MOST_SESSIONS = 256
"""Sessions of which one connection may follow the messages."""


class Audience(Enum):
    """Whom an event is for."""

    EVERYBODY = auto()
    APPROVERS = auto()
    """Connections that may approve."""
    SESSIONS = auto()
    """Those that follow the list of sessions."""
    MESSAGES = auto()
    """Those that follow the messages of the event's session."""


class Listening:
    """One connection's."""

    def __init__(self, *, approves: bool) -> None:
        self._approves = approves
        self.sessions = False
        """Whether it follows the list of sessions."""
        self._messages: set[str] = set()

    def follow(self, session: str) -> None:
        """Hear the messages of a session. Raises PoolSaturated."""
        if session not in self._messages and len(self._messages) >= MOST_SESSIONS:
            raise PoolSaturated(f"one connection can follow the messages of {MOST_SESSIONS} sessions, and does")
        self._messages.add(session)

    def leave(self, session: str) -> None:
        """Hear them no more."""
        self._messages.discard(session)

    def hears(self, audience: Audience, session: str) -> bool:
        """Whether an event is for this connection."""
        match audience:
            case Audience.EVERYBODY:
                return True
            case Audience.APPROVERS:
                return self._approves
            case Audience.SESSIONS:
                return self.sessions
            case Audience.MESSAGES:
                return session in self._messages
