"""The caller of a method that was reached over HTTP: pushes go where the door says."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from doors.http.access import Identity
from errors import UsageError

__all__ = ["HttpCaller"]

Take = Callable[[str, bytes], Awaitable[None]]


class HttpCaller:
    """Implements ``gateway.caller.Caller`` for one request.

    ``take`` gets every push, name and data as JSON text, and waits while the peer is behind; None: nobody looks.
    ``nursery`` runs what outlives the method's answer, a subscription say; None: such methods are refused.
    """

    def __init__(
        self,
        identity: Identity,
        request_id: str,
        *,
        take: Take | None = None,
        nursery: trio.Nursery | None = None,
    ) -> None:
        self.request_id = request_id
        self.principal = identity.principal
        self.name = identity.name
        self._take = take
        self._nursery = nursery

    async def push(self, event: str, data: Any) -> None:
        """See ``Caller.push``."""
        await self.push_encoded(event, msgspec.json.encode(data))

    async def push_encoded(self, event: str, data: bytes) -> None:
        """See ``Caller.push_encoded``."""
        if self._take is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._take(event, data)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """See ``Caller.start``."""
        if self._nursery is None:
            raise UsageError("this method needs a connection that stays; over HTTP follow GET /events instead")
        self._nursery.start_soon(task)
