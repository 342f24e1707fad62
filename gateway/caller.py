"""The interface between a method and its caller: a principal, a way to push events, tasks that end with the peer."""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Protocol

import msgspec


class NoResponse(Enum):
    """Returned by a method whose caller gets a response only for errors."""

    QUIET = auto()


NO_RESPONSE = NoResponse.QUIET


class Caller(Protocol):
    """The caller of one request. Each door implements it."""

    @property
    def principal(self) -> str:
        """The identity: ``uid:1000``, or a token's name. Idempotency keys are scoped by it."""
        ...

    @property
    def name(self) -> str:
        """The name that is shown to people: an account's, or a token's."""
        ...

    @property
    def request_id(self) -> str | int:
        """The id of the request that is being served."""
        ...

    async def push(self, event: str, data: Any) -> None:
        """Push ``{"event", "data"}``, in order; ``data`` encodes to a JSON object. Waits while the peer is behind.

        In a cancelled task it does not wait, so that a last push needs no shield.
        """
        ...

    async def push_encoded(self, event: str, data: bytes, *, result_follows: bool = False) -> None:
        """The same with ``data`` as JSON text already. ``result_follows``: at once, so that both may leave together."""
        ...

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or the peer disconnects, which cancels it. It must not raise."""
        ...


class MethodDispatcher(Protocol):
    """What serves the methods of every door; ``gateway.methods.table.MethodTable`` implements it."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method with undecoded parameters; the result can be held by JSON. Raises PoolError for the caller."""
        ...
