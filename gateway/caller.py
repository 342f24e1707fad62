"""Who makes a request, as the methods see it: a name, a way to push events, a life to depend on."""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Any, Protocol

import msgspec


class NoResponse(Enum):
    """What a method returns where its caller wants to hear only of errors."""

    QUIET = auto()


NO_RESPONSE = NoResponse.QUIET


class Caller(Protocol):
    """One request's side of the door. Doors implement it, once per request."""

    @property
    def principal(self) -> str:
        """Who asks: ``uid:1000``, later a token's name. Idempotency keys are scoped by it."""
        ...

    @property
    def name(self) -> str:
        """What people call whoever asks: an account's name, later a token's. For what is shown to a person."""
        ...

    @property
    def request_id(self) -> str | int:
        """The id of the request that is being served."""
        ...

    async def push(self, event: str, data: Any) -> None:
        """Push ``{"event", "data"}``, in order; ``data`` encodes to a JSON object. Waits while the peer is behind.

        In a cancelled task it does not wait: last words need no shield.
        """
        ...

    async def push_encoded(self, event: str, data: bytes) -> None:
        """The same with ``data`` as JSON text already."""
        ...

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends, or the peer has left: then it is cancelled. It must not raise."""
        ...


class MethodDispatcher(Protocol):
    """What serves the methods of every door; ``gateway.methods.table.MethodTable`` implements it."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method with undecoded parameters; the result can be held by JSON. Raises PoolError for the caller."""
        ...
