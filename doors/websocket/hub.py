"""Follows the gateway's events once for all WebSockets, and tells each of them; it waits for no peer.

It follows while there is somebody to tell, and a minute longer. When it begins it looks back, so that the text of runs
that are in their turn already is known as a whole.
"""

import logging
import math
import platform
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import msgspec
import trio

from doors.http.access import Identity
from doors.http.errors import told
from doors.http.services import HttpCaller, Services
from doors.http.tokens import Scope
from doors.websocket.events import Told
from doors.websocket.frames import SocketLimits
from doors.websocket.peer import entries
from doors.websocket.run_text import KINDS, Story

_VERSION = version("agent-pool")
_LINGER_SECONDS = 60.0
_LOOK_BACK = 20_000
"""Seqs; some 50 ms of reading."""
_RETRY_SECONDS = 1.0
_HEARD_AT_ONCE = 1000
"""Events times listeners; some 5 ms."""
_OURSELVES = Identity("websocket", Scope.READ, approvals=True)
_logger = logging.getLogger("pool.http")


class Listener(Protocol):
    """A receiver of events. ``presence``: its entry in ``system-presence``."""

    presence: dict[str, Any]

    def hear(self, event: Told) -> None:
        """An event; must not wait."""
        ...

    async def keep_up(self) -> None:
        """Wait for what the server itself has still to do for it, never for its peer."""
        ...

    def miss(self) -> None:
        """Events were lost that everybody should have heard."""
        ...


class _Ended(msgspec.Struct):
    bookmark: int
    reason: str


class _Follower(HttpCaller):
    """Keeps the subscription's task."""

    task: Callable[[], Awaitable[None]] | None = None

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        self.task = task


class Hub:
    """One for the server's life; ``run`` is a chore of it."""

    def __init__(self, services: Services, limits: SocketLimits) -> None:
        self._services = services
        self._limits = limits
        self._listeners: dict[Listener, None] = {}
        self._wanted = trio.Event()
        self._following = trio.CancelScope()
        self._flushing = trio.CancelScope()
        self._story = Story(0)
        self._telling = trio.Lock()
        """Events are told in their order."""
        self._ended: _Ended | None = None

    def join(self, listener: Listener) -> None:
        """Tell it from now on."""
        self._listeners[listener] = None
        self._following.deadline = math.inf
        self._wanted.set()

    def presence(self) -> list[dict[str, Any]]:
        """The entries of ``system-presence``."""
        connected = (listener.presence for listener in self._listeners)
        return entries(platform.node(), _VERSION, self._services.started_at, connected)

    def leave(self, listener: Listener) -> None:
        """Tell it no more."""
        del self._listeners[listener]
        if not self._listeners:
            self._linger()

    def _linger(self) -> None:
        self._following.deadline = trio.current_time() + _LINGER_SECONDS

    # --- following ----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Follow while somebody listens, until cancelled."""
        task_status.started()
        while True:
            await self._wanted.wait()
            with trio.CancelScope() as self._following:
                if not self._listeners:  # who woke it has left again
                    self._linger()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tick)
                    nursery.start_soon(self._flush_in_time)
                    await self._follow()
            self._wanted = trio.Event()
            if self._listeners:  # somebody came in the moment it gave up
                self._wanted.set()

    async def _follow(self) -> None:
        """Subscribe, and again where it was cut off; after trouble with what is to happen from then on."""
        since = await self._try(lambda: self._look_back(_LOOK_BACK))
        while True:
            if since is None:
                await trio.sleep(_RETRY_SECONDS)
                since = await self._try(lambda: self._look_back(0))
                for listener in list(self._listeners):
                    listener.miss()
            else:
                since = await self._try(partial(self._subscribe, since))

    async def _try(self, step: Callable[[], Awaitable[int | None]]) -> int | None:
        """Where to read on from; None: something went wrong, which must not end the server."""
        try:
            return await step()
        except Exception as exc:  # noqa: BLE001  # told() tells of a defect
            trouble = told(exc, "the events for WebSockets")
            _logger.warning("events cannot be told to WebSockets at the moment: %s", trouble)
            return None

    async def _look_back(self, seqs: int) -> int:
        """Begin a new story; where to read on from."""
        status = await self._services.call("status", {}, HttpCaller(_OURSELVES, "websocket"))
        head = int(status.gateway.events.head)
        self._story = Story(head)
        return max(0, head - seqs)

    async def _subscribe(self, since: int) -> int | None:
        """Follow up to the end of one subscription; the bookmark where another may go on from it."""
        caller = _Follower(_OURSELVES, "websocket", take=self._take)
        self._ended = None
        await self._services.call("subscribe", {"since": since, "kinds": KINDS}, caller)
        assert caller.task is not None  # noqa: S101  # subscribe has started it, or raised
        await caller.task()
        ended: _Ended | None = self._ended
        return ended.bookmark if ended is not None and ended.reason == "behind" else None

    async def _take(self, event: str, data: bytes) -> None:
        if event == "subscription_ended":
            self._ended = msgspec.json.decode(data, type=_Ended)
            return
        await self._tell(lambda: self._story.take(data, trio.current_time()))

    async def _flush_in_time(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._story.next_due) as self._flushing:
                await trio.sleep_forever()
            await self._tell(lambda: self._story.flush(trio.current_time()))

    async def _tick(self) -> None:
        while True:
            await trio.sleep(self._limits.tick)
            await self._tell(_tick_now)

    async def _tell(self, news: Callable[[], list[Told]]) -> None:
        """Tell everybody, some events at a time, each time for as long as it takes to send them."""
        async with self._telling:
            events = news()
            self._flushing.deadline = self._story.next_due
            at_once = _HEARD_AT_ONCE // max(1, len(self._listeners)) + 1
            for begin in range(0, len(events), at_once):
                await self._tell_some(events[begin : begin + at_once])

    async def _tell_some(self, events: list[Told]) -> None:
        listeners = list(self._listeners)
        for event in events:
            for listener in listeners:
                listener.hear(event)
        await trio.lowlevel.checkpoint()
        for listener in listeners:
            await listener.keep_up()


def _tick_now() -> list[Told]:
    payload = msgspec.json.encode({"ts": int(time.time() * 1000)})
    return [Told("tick", payload, is_droppable=True)]
