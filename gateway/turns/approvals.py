"""Tool calls that await a person's approval, and the decisions about them."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

from errors import ProtocolViolation, UsageError, WorkerRefused
from gateway.events.worker_events import PublishedEvent
from pool.lease import Lease
from wire.call_page import PAGE_CHARS, CallPage, CallPart, bounded_page
from wire.framing import DECODE_ERRORS
from wire.messages import PermissionOption, ToolCallView

PERMISSION_EVENTS = frozenset({"permission_required", "permission_decided"})
_MAX_CALLS = 10_000
_MAX_SESSION_CALLS = 256
"""As many as its worker's client counts; one session must not take the place of all others."""
_MAX_CLOSED = 1_000
"""Closed calls for which the reason is remembered; older ones are unknown."""
_MAX_LISTED = 10


class PendingCall(ToolCallView, frozen=True, omit_defaults=True):
    """A tool call that waits for a person; ``reason``: why one is asked; ``options``: the agent's own answers."""

    reason: str | None = None
    options: list[PermissionOption] = msgspec.field(default_factory=list)


class PendingPermission(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that awaits a person's approval."""

    session: str
    call: PendingCall


class PendingPermissions:
    """The calls that wait for approval, from the events of turns: each until it is decided or its turn ends."""

    def __init__(self, on_first: Callable[[str, str | None], None] = lambda _session, _call: None) -> None:
        """``on_first(session, call)``: the oldest open call of a session is another one now; None = it has none."""
        self._on_first = on_first
        self.sessions: dict[str, dict[str, PendingCall]] = {}
        """The open calls by session, in the order of their events; changed only here."""
        self._closed: dict[tuple[str, str], str] = {}
        """Of the latest calls that were open, by call and session: why they are not any more."""

    def observe(self, session: str, event: PublishedEvent) -> None:
        """Take one of the ``PERMISSION_EVENTS`` of a turn."""
        if event.type == "permission_required":
            if len(self.sessions.get(session, {})) < _MAX_SESSION_CALLS and self.count < _MAX_CALLS:
                asked = event.data
                facts = msgspec.structs.asdict(asked.call)
                call = PendingCall(**facts, reason=asked.reason, options=asked.options)
                self.sessions.setdefault(session, {})[call.id] = call
                if len(self.sessions[session]) == 1:
                    self._on_first(session, call.id)
        else:
            decided = event.data
            if self.sessions.get(session, {}).pop(decided.call_id, None) is not None:
                by = f" by {decided.by}" if decided.by else ""
                self._close(session, [decided.call_id], f"was decided already ({decided.decision}{by})")
                self._on_first(session, next(iter(self.sessions[session]), None))

    def close_session(self, session: str) -> None:
        """The session's turn is over: nothing of it waits any more."""
        calls = self.sessions.pop(session, {})
        self._close(session, calls, "is no longer pending: its turn has ended")
        if calls:
            self._on_first(session, None)

    @property
    def count(self) -> int:
        """Calls that wait for approval now."""
        return sum(map(len, self.sessions.values()))

    def pending(self, session: str) -> list[PendingCall]:
        """The session's calls that wait for approval, oldest first."""
        return list(self.sessions.get(session, {}).values())

    def session_of(self, call_id: str, session: str | None = None) -> str:
        """The session whose call this is. Raises UsageError: decided, over, unknown, or of several sessions."""
        found = [key for key, calls in self.sessions.items() if call_id in calls and session in (None, key)]
        if not found:
            raise UsageError(self._describe_missing(call_id, session), call=call_id, pending=self._first_calls())
        if session is None:  # the caller may mean an earlier call of that id
            had = {*found, *(key for call, key in self._closed if call == call_id)}
            if len(had) > 1:
                raise UsageError(f"{len(had)} sessions have had a call {call_id!r}; give the session too", call=call_id)
        return found[0]

    def snapshot(self) -> list[PendingPermission]:
        """Every call that waits for approval, with its session."""
        return [
            PendingPermission(session=key, call=call) for key, calls in self.sessions.items() for call in calls.values()
        ]

    def _close(self, session: str, calls: Iterable[str], why: str) -> None:
        for call in calls:
            self._closed.pop((call, session), None)
            self._closed[call, session] = why
        while len(self._closed) > _MAX_CLOSED:
            del self._closed[next(iter(self._closed))]

    def _describe_missing(self, call_id: str, session: str | None) -> str:
        """Why nothing can be decided about the call; what can be, where its name may be a mistake."""
        for (call, key), why in reversed(self._closed.items()):
            if call == call_id and session in (None, key):
                return f"the tool call {call_id!r} of session {key} {why}"
        where = "" if session is None else f" in session {session}"
        waiting = self._first_calls()
        if not waiting:
            return f"no tool call {call_id!r} waits for approval{where}; none does at all"
        more = f" and {self.count - len(waiting)} more" if self.count > len(waiting) else ""
        calls = ", ".join(f"{asked['call']} ({asked['tool']}, session {asked['session']})" for asked in waiting)
        return f"no tool call {call_id!r} waits for approval{where}; these do: {calls}{more}"

    def _first_calls(self) -> list[dict[str, str]]:
        first = self.snapshot()[:_MAX_LISTED]
        return [{"session": one.session, "call": one.call.id, "tool": one.call.name} for one in first]


class PendingCallPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of a pending call. ``is_partial``: its agent shows only the beginning of its calls."""

    session: str
    call: PendingCall
    page: CallPage
    is_partial: bool = False


class CallDecision(NamedTuple):
    """What came of a decision: an agent that offers no such answer has denied the call instead."""

    session: str
    decision: Literal["allow", "deny"]


class _Decided(msgspec.Struct):
    decision: Literal["allow", "deny"] | None = None


class ApprovalDecisions:
    """Finds the worker by the call's id; the worker records the decision before it acts on it."""

    def __init__(self, permissions: PendingPermissions, lease_of: Callable[[str], Lease | None]) -> None:
        """``lease_of``: the worker on which a turn of the session runs now."""
        self._pending_permissions = permissions
        self._lease_of = lease_of

    async def decide(
        self,
        call_id: str,
        decision: Literal["allow", "deny"],
        *,
        by: str,
        note: str | None,
        session: str | None,
        seen: str | None = None,
        option_id: str | None = None,
    ) -> CallDecision:
        """Decide, once; what came of it. ``note`` reaches the model, ``by`` names the person.

        ``seen``: from the last page of a call whose question shows only its beginning, and required to allow it.
        ``option_id``: one of the agent's own answers; it stands above ``decision``.

        Raises UsageError where nothing waits under that name, WorkerError where the worker does not take it; then
        nothing was run. ProtocolViolation: its answer makes no sense.
        """
        session, lease = self._locate(call_id, session)
        facts = {"call_id": call_id, "decision": decision, "note": note or None, "by": by, "seen": seen}
        facts["option_id"] = option_id
        answer = await lease.request("decide", {name: fact for name, fact in facts.items() if fact is not None})
        try:
            decided = msgspec.json.decode(answer, type=_Decided)
        except DECODE_ERRORS as exc:
            raise ProtocolViolation(f"the worker's answer about the call {call_id!r} makes no sense: {exc}") from exc
        return CallDecision(session, decided.decision or decision)

    async def show(self, call_id: str, session: str | None, offset: int) -> PendingCallPage:
        """The description of a pending call, from ``offset`` characters on. Raises what ``decide`` raises."""
        session, lease = self._locate(call_id, session)
        call = next(call for call in self._pending_permissions.pending(session) if call.id == call_id)
        try:
            answer = await lease.request("describe_call", {"call_id": call_id, "offset": offset})
            page = msgspec.json.decode(answer, type=CallPage)
        except WorkerRefused as exc:
            if exc.details.get("worker_code") != "unknown_method":
                raise
            return PendingCallPage(session, call, CallPage([CallPart("input", call.input_preview)]), is_partial=True)
        except DECODE_ERRORS as exc:
            raise ProtocolViolation(f"the worker's description of the call {call_id!r} makes no sense: {exc}") from exc
        return PendingCallPage(session, call, bounded_page(page, chars=2 * PAGE_CHARS))

    def _locate(self, call_id: str, session: str | None) -> tuple[str, Lease]:
        session = self._pending_permissions.session_of(call_id, session)
        lease = self._lease_of(session)
        if lease is None:
            # No other worker, and no later turn, may be asked: there the same name would be another call's.
            raise UsageError(f"the tool call {call_id!r} is no longer pending: its turn has ended", call=call_id)
        return session, lease
