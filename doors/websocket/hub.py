"""One subscription to the gateway's events for all WebSockets; it waits for no peer.

It lasts while a WebSocket is connected, and a minute longer. It begins in the past, so that the text of runs in
progress is known as a whole.
"""

import logging
import math
import platform
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec
import trio

from doors.http.access import TokenIdentity
from doors.http.errors import as_pool_error
from doors.http.services import HttpCaller, HttpServices, SubscriptionCaller
from doors.http.tokens import Scope
from doors.websocket.events import OutboundEvent
from doors.websocket.frames import SocketLimits
from doors.websocket.peer import presence_entries
from doors.websocket.translator import GATEWAY_EVENT_TYPES, EventTranslator
from wire.version import VERSION

_LINGER_SECONDS = 60.0
_LOOKBACK_SEQS = 20_000
"""Seqs; some 50 ms of reading."""
_RETRY_SECONDS = 1.0
_DELIVERIES_PER_STEP = 1000
"""Events times listeners; some 5 ms."""
_INTERNAL_IDENTITY = TokenIdentity("websocket", Scope.READ, approvals=True)
_logger = logging.getLogger("pool.http")


class HubListener(Protocol):
    """A receiver of events. ``presence``: its entry in ``system-presence``."""

    presence: dict[str, Any]

    def on_event(self, event: OutboundEvent) -> None:
        """An event; must not wait."""
        ...

    async def wait_drained(self) -> None:
        """Wait for what the server itself has still to do for it, never for its peer."""
        ...

    def on_gap(self) -> None:
        """Events were lost."""
        ...


class EventHub:
    """One for the server's life; ``run`` is a background task of the server."""

    def __init__(self, services: HttpServices, limits: SocketLimits) -> None:
        self._services = services
        self._limits = limits
        self._listeners: dict[HubListener, None] = {}
        self._has_listeners = trio.Event()
        self._following = trio.CancelScope()
        self._flushing = trio.CancelScope()
        self._translator = EventTranslator(0)
        self._broadcast_lock = trio.Lock()
        """Keeps events in order."""

    def add_listener(self, listener: HubListener) -> None:
        """Send it events from now on."""
        self._listeners[listener] = None
        self._following.deadline = math.inf
        self._has_listeners.set()

    def presence(self) -> list[dict[str, Any]]:
        """The entries of ``system-presence``."""
        connected = (listener.presence for listener in self._listeners)
        return presence_entries(platform.node(), VERSION, self._services.started_at, connected)

    def remove_listener(self, listener: HubListener) -> None:
        """Send it no more events."""
        del self._listeners[listener]
        if not self._listeners:
            self._linger()

    def _linger(self) -> None:
        self._following.deadline = trio.current_time() + _LINGER_SECONDS

    # --- following ----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Follow while there are listeners, until cancelled."""
        task_status.started()
        while True:
            await self._has_listeners.wait()
            with trio.CancelScope() as self._following:
                if not self._listeners:  # the one that woke it has left again
                    self._linger()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tick)
                    nursery.start_soon(self._flush_when_due)
                    await self._follow()
            self._has_listeners = trio.Event()
            if self._listeners:  # one came in the moment it gave up
                self._has_listeners.set()

    async def _follow(self) -> None:
        """Subscribe, and again from the bookmark after a cut-off; after an error, from the present."""
        since = await self._try(lambda: self._restart(_LOOKBACK_SEQS))
        while True:
            if since is None:
                await trio.sleep(_RETRY_SECONDS)
                since = await self._try(lambda: self._restart(0))
                for listener in list(self._listeners):
                    listener.on_gap()
            else:
                since = await self._try(partial(self._subscribe, since))

    async def _try(self, step: Callable[[], Awaitable[int | None]]) -> int | None:
        """Where to read on from; None: an error, which must not end the server."""
        try:
            return await step()
        except Exception as exc:  # noqa: BLE001  # as_pool_error() logs a defect
            trouble = as_pool_error(exc, "the events for WebSockets")
            _logger.warning("WebSocket event feed failed, retrying: %s", trouble)
            return None

    async def _restart(self, seqs: int) -> int:
        """Begin with a new translator; where to read on from."""
        status = await self._services.call("status", {}, HttpCaller(_INTERNAL_IDENTITY, "websocket"))
        head = int(status.gateway.events.head)
        self._translator = EventTranslator(head)
        return max(0, head - seqs)

    async def _subscribe(self, since: int) -> int | None:
        """Follow up to the end of one subscription; the bookmark where another may go on from it."""
        caller = SubscriptionCaller(_INTERNAL_IDENTITY, "websocket", take=self._on_push)
        await self._services.call("subscribe", {"since": since, "kinds": GATEWAY_EVENT_TYPES}, caller)
        await caller.follow()
        return caller.ended.bookmark if caller.ended is not None and caller.ended.reason == "behind" else None

    async def _on_push(self, _event: str, data: bytes) -> None:
        await self._broadcast(lambda: self._translator.translate(data, trio.current_time()))

    async def _flush_when_due(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._translator.next_due) as self._flushing:
                await trio.sleep_forever()
            await self._broadcast(lambda: self._translator.flush(trio.current_time()))

    async def _tick(self) -> None:
        while True:
            await trio.sleep(self._limits.tick)
            await self._broadcast(_tick_events)

    async def _broadcast(self, news: Callable[[], list[OutboundEvent]]) -> None:
        """Send to all listeners, some events at a time, waiting until the server has sent them."""
        async with self._broadcast_lock:
            events = news()
            self._flushing.deadline = self._translator.next_due
            at_once = _DELIVERIES_PER_STEP // max(1, len(self._listeners)) + 1
            for begin in range(0, len(events), at_once):
                await self._broadcast_batch(events[begin : begin + at_once])

    async def _broadcast_batch(self, events: list[OutboundEvent]) -> None:
        listeners = list(self._listeners)
        for event in events:
            for listener in listeners:
                listener.on_event(event)
        await trio.lowlevel.checkpoint()
        for listener in listeners:
            await listener.wait_drained()


def _tick_events() -> list[OutboundEvent]:
    payload = msgspec.json.encode({"ts": int(time.time() * 1000)})
    return [OutboundEvent("tick", payload, is_droppable=True)]
