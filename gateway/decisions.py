"""Deciding about a tool call that waits for a person: the decision goes to the worker that asks, in its turn only."""

from typing import Literal

from errors import UsageError
from gateway.conductor import Conductor
from gateway.permissions import Permissions

__all__ = ["Decisions"]


class Decisions:
    """Who asks is found by the call's id; the worker writes the decision down before it acts on it."""

    def __init__(self, permissions: Permissions, conductor: Conductor) -> None:
        self._permissions = permissions
        self._conductor = conductor

    async def decide(
        self, call_id: str, decision: Literal["allow", "deny"], *, by: str, note: str | None, session: str | None
    ) -> str:
        """Decide, once; returns the session whose call it is. ``note`` reaches the model, ``by`` names the person.

        Raises UsageError where nothing waits under that name, WorkerError where the worker does not take it; then
        nothing was run.
        """
        session = self._permissions.session_of(call_id, session)
        lease = self._conductor.lease_of(session)
        if lease is None:
            # No other worker, and no later turn, may be asked: there the same name would be another call's.
            raise UsageError(f"the tool call {call_id!r} waits no more: its turn is over", call=call_id)
        facts = {"call_id": call_id, "decision": decision, "note": note or None, "by": by}
        await lease.request("decide", {name: fact for name, fact in facts.items() if fact is not None})
        return session
