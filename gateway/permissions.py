"""Which tool calls await a person's approval, and in which session: a decision finds its worker by the call's id."""

from errors import UsageError
from gateway.events.translate import Single
from gateway.status import PendingPermission
from wire.messages import ToolCallView

__all__ = ["Permissions"]

_MOST = 10_000


class Permissions:
    """Learns from what turns publish; a call is open until it is decided or its turn is over."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[str, ToolCallView]] = {}

    def note(self, session: str, event: Single) -> None:
        """Take an event of a turn; only those about permissions change anything."""
        if event.type == "permission_required" and self.count < _MOST:
            call: ToolCallView = event.data.call
            self._sessions.setdefault(session, {})[call.id] = call
        elif event.type == "permission_decided":
            self._sessions.get(session, {}).pop(event.data.call_id, None)

    def forget(self, session: str) -> None:
        """The session's turn is over: nothing of it waits any more."""
        self._sessions.pop(session, None)

    @property
    def count(self) -> int:
        """Calls that await approval now."""
        return sum(map(len, self._sessions.values()))

    def pending(self, session: str) -> list[ToolCallView]:
        """The session's calls that await approval, oldest first."""
        return list(self._sessions.get(session, {}).values())

    def session_of(self, call_id: str, session: str | None = None) -> str:
        """The session whose call this is. Raises UsageError: unknown, decided, or of several sessions."""
        found = [key for key, calls in self._sessions.items() if call_id in calls and session in (None, key)]
        if not found:
            raise UsageError(
                f"no tool call {call_id!r} awaits approval; it was decided, or its turn is over", call=call_id
            )
        if len(found) > 1:
            raise UsageError(f"{len(found)} sessions have a call {call_id!r}; give the session too", call=call_id)
        return found[0]

    def snapshot(self) -> list[PendingPermission]:
        """Every call that awaits approval, with its session."""
        return [
            PendingPermission(session=key, call=call)
            for key, calls in self._sessions.items()
            for call in calls.values()
        ]
