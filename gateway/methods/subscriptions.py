"""``subscribe`` and ``unsubscribe``: a stream of events for one connection, from a bookmark on."""

import uuid
from typing import Any

import trio

from errors import SubscriberBehind, UsageError
from gateway.caller import Caller
from gateway.events import EventBus, EventCursor
from gateway.requests import SubscribeRequest, UnsubscribeRequest
from router.keys import normalize_session_key
from store.records import StoreUnusable
from wire.events import EventChannel, EventType

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
