"""Background commands that have ended and can still be asked about: for a time, a number, and a size."""

from collections.abc import Iterator

import msgspec

from agent.processes.session import Session

__all__ = ["Finished", "FinishedLimits"]


class FinishedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``age`` in seconds, ``chars`` of output in all; what is above goes, the oldest first."""

    age: float = 1800.0
    sessions: int = 50
    chars: int = 2_000_000


class Finished:
    """One entry for each id of a scope; every method takes the present, in seconds of one clock."""

    def __init__(self, limits: FinishedLimits) -> None:
        self._limits = limits
        self._sessions: dict[tuple[str, str], tuple[float, Session]] = {}
        """In the order of their ends."""

    def add(self, session: Session, now: float, *, ago: float = 0.0) -> None:
        """Keep one that ended ``ago`` seconds before ``now``; the last one to end stays whatever its size."""
        self._sessions[session.scope_key, session.id] = (now - ago, session)
        if ago:
            self._sessions = dict(sorted(self._sessions.items(), key=lambda item: item[1][0]))
        self._prune(now)

    def all(self, now: float) -> Iterator[Session]:
        """What is kept, the first to end first."""
        self._prune(now)
        return iter([session for _, session in self._sessions.values()])

    def remove(self, session: Session) -> bool:
        """Forget one; whether it was there."""
        return self._sessions.pop((session.scope_key, session.id), None) is not None

    def _prune(self, now: float) -> None:
        sizes = {key: session.output.size for key, (_, session) in self._sessions.items()}
        total = sum(sizes.values())
        for key, (ended, _) in list(self._sessions.items()):
            is_last = len(self._sessions) == 1
            is_too_much = len(self._sessions) > self._limits.sessions or total > self._limits.chars
            if now - ended < self._limits.age and (is_last or not is_too_much):
                return  # those behind it ended later
            total -= sizes[key]
            del self._sessions[key]
