"""A caller for tests of handlers without a door: keeps what it is pushed, runs what it is told to start."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio


class RecordingCaller:
    """``pushed`` has every push as ``(event, data)``, decoded. Tasks run in ``nursery``; without one none may start."""

    def __init__(
        self, nursery: trio.Nursery | None = None, *, principal: str = "uid:1000", request_id: str | int = "q"
    ) -> None:
        self.principal = principal
        self.name = {"uid:1000": "carol"}.get(principal, principal)
        self.request_id = request_id
        self.pushed: list[tuple[str, Any]] = []
        self._nursery = nursery

    async def push(self, event: str, data: Any) -> None:
        await self.push_encoded(event, msgspec.json.encode(data))

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:  # noqa: ARG002  # as callers are asked
        await trio.lowlevel.checkpoint()
        self.pushed.append((event, msgspec.json.decode(data)))

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None, "this caller was given no nursery for tasks"
        self._nursery.start_soon(task)
