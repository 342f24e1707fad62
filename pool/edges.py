"""Where the pool's block meets its caller's code: what is told, and which errors are the caller's own."""

from collections.abc import Callable
from typing import Any

import trio

__all__ = ["EventSink", "ignore_event", "is_callers_own"]

EventSink = Callable[[str, dict[str, Any]], None]


def ignore_event(event: str, data: dict[str, Any]) -> None:
    """The sink of a pool that nobody listens to."""


def is_callers_own(error: BaseException | None) -> bool:
    """Whether an error comes from inside the pool's block; a cancellation may be our nursery's, which must see it."""
    return isinstance(error, Exception) or not isinstance(error, trio.Cancelled | BaseExceptionGroup | None)
