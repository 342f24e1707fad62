"""Methods about runs and their events: accept, follow, steer, abort, decide, delegate; ``subscribe``."""

import uuid
from typing import Any

import trio

from errors import Conflict, SubscriberBehind, UsageError
from gateway.caller import Caller
from gateway.events import EventBus, EventCursor
from gateway.gateway import Gateway
from gateway.requests import (
    AbortRequest,
    AgentRequest,
    ApprovalRequest,
    DecideRequest,
    DelegateRequest,
    ProcessRequest,
    ProcessWriteRequest,
    PromptRequest,
    ReleaseRequest,
    RouteRequest,
    SteerRequest,
    SubscribeRequest,
    UiRespondRequest,
    UnsubscribeRequest,
    WaitRequest,
)
from gateway.runs.run import Run, RunOutcome
from gateway.sessions.commands import parse_command
from gateway.turns.approvals import PendingCallPage
from router.keys import normalize_session_key
from router.route import RouteDecision
from store.records import StoreUnusable
from wire.events import EventChannel, EventType
from wire.messages import QueueMode


class RunMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def agent(self, params: AgentRequest, caller: Caller) -> Any:
        """Accept a run and answer at once."""
        return _accepted(await self._gateway.intake.accept(params, caller.principal))

    async def wait(self, params: WaitRequest, caller: Caller) -> Any:
        """The outcome of a run; ``status: timeout`` when it has none within the time."""
        run = self._find_run(params, caller.principal)
        with trio.move_on_after(params.timeout_ms / 1000):
            return await run.wait()
        if run.outcome is not None:
            return run.outcome
        return {
            "run_id": run.request.run_id,
            "session": run.request.session,
            "status": "timeout",
            "accepted_at": run.record.accepted_at,
            "started_at": run.record.started_at,
        }

    def _find_run(self, params: WaitRequest, principal: str) -> Run:
        """The caller's own, or the latest one of the session that is named, which another principal may have begun.

        How that ended is in the events of the session, which every caller of this method may read.
        """
        registry = self._gateway.run_registry
        if params.session is None:
            return registry.find(principal, params.run_id)
        session = normalize_session_key(params.session)
        entry = self._gateway.sessions.get(session)
        if entry is not None and entry.last_run == params.run_id and entry.last_principal is not None:
            own = registry.get(principal, params.run_id, session)
            return own or registry.find(entry.last_principal, params.run_id, session)
        return registry.find(principal, params.run_id, session)

    async def prompt(self, params: PromptRequest, caller: Caller) -> RunOutcome:
        """Accept a run and follow it: its events are pushed, its outcome is the answer, its error the request's."""
        if params.hold is None:
            run = await self._gateway.intake.take(params, caller.principal)
        else:
            hold = self._gateway.holds.find(params.hold, caller.principal)
            if params.session is not None and normalize_session_key(params.session) != hold.session:
                message = f"this hold is on session {hold.session}, not on {params.session}"
                raise UsageError(message, session=hold.session)
            run = await self._gateway.intake.accept_with_hold(hold, params, caller.principal)
        if run.accepted_seq:  # an ended one that the same key stands for has only its outcome left
            await self._follow(run, caller)  # from when its acceptance is durable
        return await run.wait()

    async def steer(self, params: SteerRequest, caller: Caller) -> Any:
        """Put a text into the running turn now."""
        session = normalize_session_key(params.session)
        if not self._gateway.scheduler.is_steerable(session):
            raise Conflict(f"no turn of session {session} takes messages now; send it as a run", session=session)
        if parse_command(params.text) is not None:
            raise UsageError("a slash command is no message for a turn; send it as a run", session=session)
        message = AgentRequest(text=params.text, session=session, run=params.run, queue=QueueMode.STEER)
        return _accepted(await self._gateway.intake.accept(message, caller.principal))

    async def abort(self, params: AbortRequest, caller: Caller) -> Any:
        """End a run, or a session's running turn; ``clear`` refuses what waits there too."""
        session = normalize_session_key(params.session)
        scheduler = self._gateway.scheduler
        if params.clear:
            scheduler.clear(session)
        if params.run is None:
            aborted = scheduler.abort_session(session)
        else:
            run = self._gateway.run_registry.get(caller.principal, params.run, session)
            aborted = run is not None and scheduler.abort(run)
        return {"session": session, "aborted": aborted}

    async def release(self, params: ReleaseRequest, caller: Caller) -> Any:
        """Give a hold back."""
        hold = self._gateway.holds.release(params.hold, caller.principal)
        return {"hold": hold.id, "session": hold.session}

    async def decide(self, params: DecideRequest, caller: Caller) -> Any:
        """Decide about a tool call that waits for approval."""
        session = None if params.session is None else normalize_session_key(params.session)
        decided = await self._gateway.decisions.decide(
            params.call_id,
            params.decision,
            by=caller.name,
            note=params.note,
            session=session,
            seen=params.seen,
            option_id=params.option_id,
        )
        return {**decided._asdict(), "call_id": params.call_id, "by": caller.name}

    async def show_approval(self, params: ApprovalRequest, _caller: Caller) -> PendingCallPage:
        """A page of what one of these calls would do."""
        session = None if params.session is None else normalize_session_key(params.session)
        return await self._gateway.decisions.show(params.call_id, session, params.offset)

    async def ui_respond(self, params: UiRespondRequest, _caller: Caller) -> Any:
        """Answer an extension's dialog."""
        answers = {"value": params.value, "confirmed": params.confirmed, "cancelled": params.cancelled}
        given = {name: value for name, value in answers.items() if value is not None}
        if len(given) != 1:
            raise UsageError("a dialog is answered with exactly one of value, confirmed and cancelled")
        session = normalize_session_key(params.session)
        return await self._gateway.ask_worker(session, "ui_respond", {"id": params.id, **given})

    async def process(self, params: ProcessRequest, _caller: Caller) -> Any:
        """Look at, or end, a session's background processes."""
        session = normalize_session_key(params.session)
        return await self._gateway.ask_worker(session, "process", {**params.params, "action": params.action})

    async def write_process(self, params: ProcessWriteRequest, _caller: Caller) -> Any:
        """Give a background process input."""
        if params.keys and (params.data or params.enter):
            raise UsageError("input is either data or keys")
        action = "send_keys" if params.keys else "submit" if params.enter else "write"
        given = {"data": params.data, "keys": params.keys, "eof": params.eof}
        wanted = {name: value for name, value in given.items() if value}
        session = normalize_session_key(params.session)
        return await self._gateway.ask_worker(session, "process", {"action": action, "session_id": params.id, **wanted})

    async def delegate(self, params: DelegateRequest, caller: Caller) -> Any:
        """Have another agent do a task."""
        run = await self._gateway.delegation.delegate(params, caller.principal)
        return await run.wait() if params.mode == "sync" else _accepted(run)

    async def route(self, params: RouteRequest, _caller: Caller) -> RouteDecision:
        """Whose a message would be."""
        return self._gateway.intake.route(params.source, params.text)

    # --- following a run ----------------------------------------------------------------------------------------------

    async def _follow(self, run: Run, caller: Caller) -> None:
        """Push the run's events up to its ``done``; a reader that is too slow goes on from the store."""
        bus, session, run_id = self._gateway.bus, run.request.session, run.request.run_id
        cursor = bus.open_cursor(session=session, run_id=run_id, since=run.accepted_seq - 1)
        while True:
            try:
                events = await cursor.read()
            except SubscriberBehind:
                cursor = bus.open_cursor(session=session, run_id=run_id, since=cursor.position)
                continue
            is_over = EventType.DONE in events.types
            frame = events.frame("request", caller.request_id)
            await caller.push_encoded("events", frame, result_follows=is_over)
            if is_over:
                return


def _accepted(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.request.run_id,
        "session": run.request.session,
        "status": "accepted",
        "accepted_at": run.record.accepted_at,
    }


_FRAME_BYTES = 256 * 1024


class _Subscription:
    """One subscription and the scope of the task that serves it."""

    def __init__(self, caller: Caller, cursor: EventCursor) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.principal = caller.principal
        self.cursor = cursor
        self.bookmark = cursor.position
        """Everything up to it has been pushed."""
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class SubscriptionMethods:
    """The subscriptions of all connections; each ends with its connection."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._open: dict[str, _Subscription] = {}

    def attended(self, session: str) -> bool:
        """Whether a subscriber receives the questions of extensions in the session."""
        return any(
            each.cursor.event_filter.admits_type(session, EventChannel.CONTROL, EventType.UI_REQUEST)
            for each in self._open.values()
        )

    async def subscribe(self, params: SubscribeRequest, caller: Caller) -> Any:
        """Answer with the subscription; its events follow, each exactly once and in order."""
        cursor = self._bus.open_cursor(
            session=None if params.session == "*" else normalize_session_key(params.session),
            channels=frozenset(params.channels) if params.channels else None,
            kinds=frozenset(params.kinds) if params.kinds else None,
            since=params.since,
        )
        subscription = _Subscription(caller, cursor)
        self._open[subscription.id] = subscription
        caller.start(lambda: self._serve(subscription, caller))
        return {"subscription": subscription.id, "head": self._bus.head, "complete": cursor.complete}

    async def unsubscribe(self, params: UnsubscribeRequest, caller: Caller) -> Any:
        """End a subscription; answers with the bookmark to resume at."""
        subscription = self._open.get(params.subscription)
        if subscription is None or subscription.principal != caller.principal:
            raise UsageError(f"there is no subscription {params.subscription!r}")
        subscription.scope.cancel()
        await subscription.ended.wait()
        return {"subscription": subscription.id, "bookmark": subscription.bookmark}

    async def _serve(self, subscription: _Subscription, caller: Caller) -> None:
        reason = "closing"
        try:
            with subscription.scope:
                reason = await self._push_all(subscription, caller)
            if subscription.scope.cancelled_caught:
                reason = "unsubscribed"
            await _push_end(subscription, caller, reason)
        except trio.Cancelled:
            await _push_end(subscription, caller, reason)  # a push in a cancelled scope waits for nothing
            raise
        finally:
            del self._open[subscription.id]
            subscription.ended.set()

    async def _push_all(self, subscription: _Subscription, caller: Caller) -> str:
        """Until it is cancelled; otherwise returns why it cannot go on."""
        while True:
            try:
                events = await subscription.cursor.read(_FRAME_BYTES)
            except SubscriberBehind:
                return "behind"
            except StoreUnusable:
                return "unreadable"
            await caller.push_encoded("events", events.frame("subscription", subscription.id))
            subscription.bookmark = subscription.cursor.position


async def _push_end(subscription: _Subscription, caller: Caller, reason: str) -> None:
    await caller.push(
        "subscription_ended",
        {"subscription": subscription.id, "bookmark": subscription.bookmark, "reason": reason},
    )
