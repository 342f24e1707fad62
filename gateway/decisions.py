"""Deciding about a tool call that waits for a person: the decision goes to the worker that asks, in its turn only."""

from typing import Literal

import msgspec

from errors import ProtocolViolation, UsageError, WorkerRefused
from gateway.conductor import Conductor
from gateway.permissions import PendingCall, Permissions
from pool.lease import Lease
from wire.call_parts import PAGE_CHARS, CallPage, CallPart, bounded
from wire.framing import DECODE_ERRORS

__all__ = ["Decisions", "ShownCall"]


class ShownCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of a pending call. ``is_partial``: its agent shows only the beginning of its calls."""

    session: str
    call: PendingCall
    page: CallPage
    is_partial: bool = False


class Decisions:
    """Who asks is found by the call's id; the worker writes the decision down before it acts on it."""

    def __init__(self, permissions: Permissions, conductor: Conductor) -> None:
        self._permissions = permissions
        self._conductor = conductor

    async def decide(
        self,
        call_id: str,
        decision: Literal["allow", "deny"],
        *,
        by: str,
        note: str | None,
        session: str | None,
        seen: str | None = None,
    ) -> str:
        """Decide, once; returns the session whose call it is. ``note`` reaches the model, ``by`` names the person.

        ``seen``: from the last page of a call whose question shows only its beginning, and required to allow it.

        Raises UsageError where nothing waits under that name, WorkerError where the worker does not take it; then
        nothing was run.
        """
        session, lease = self._found(call_id, session)
        facts = {"call_id": call_id, "decision": decision, "note": note or None, "by": by, "seen": seen}
        await lease.request("decide", {name: fact for name, fact in facts.items() if fact is not None})
        return session

    async def show(self, call_id: str, session: str | None, offset: int) -> ShownCall:
        """The description of a pending call, from ``offset`` characters on. Raises what ``decide`` raises."""
        session, lease = self._found(call_id, session)
        call = next(call for call in self._permissions.pending(session) if call.id == call_id)
        try:
            answer = await lease.request("describe_call", {"call_id": call_id, "offset": offset})
            page = msgspec.json.decode(answer, type=CallPage)
        except WorkerRefused as exc:
            if exc.details.get("worker_code") != "unknown_method":
                raise
            return ShownCall(session, call, CallPage([CallPart("input", call.input_preview)]), is_partial=True)
        except DECODE_ERRORS as exc:
            raise ProtocolViolation(f"the worker's description of the call {call_id!r} makes no sense: {exc}") from exc
        return ShownCall(session, call, bounded(page, chars=2 * PAGE_CHARS))

    def _found(self, call_id: str, session: str | None) -> tuple[str, Lease]:
        session = self._permissions.session_of(call_id, session)
        lease = self._conductor.lease_of(session)
        if lease is None:
            # No other worker, and no later turn, may be asked: there the same name would be another call's.
            raise UsageError(f"the tool call {call_id!r} waits no more: its turn is over", call=call_id)
        return session, lease
