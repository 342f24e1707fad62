"""Retries of a model call after a transient error: when, how often, and only before any output was shown."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import trio

from agent.models.base import Model, ModelError, ModelRequest, Piece, UsagePiece


class RetryPolicy(msgspec.Struct, frozen=True):
    """Seconds to wait before each retry, and the longest wait that a server may ask for."""

    delays: tuple[float, ...] = (2.0, 4.0, 8.0)
    longest: float = 60.0


def next_delay(policy: RetryPolicy, failures: int, error: ModelError, *, shown: bool) -> float | None:
    """Seconds until the next attempt after ``failures`` failed ones, or None: the error is final.

    A server's ``retry_after`` is never undercut; one longer than ``policy.longest`` ends the attempts. Output that was
    shown cannot be taken back, so an attempt that showed some is final.
    """
    if shown or not error.transient or failures > len(policy.delays):
        return None
    delay = max(policy.delays[failures - 1], error.retry_after or 0.0)
    return delay if delay <= policy.longest else None


async def ask_with_retries(
    model: Model,
    request: ModelRequest,
    take: Callable[[Piece], Awaitable[object]],
    emit: Callable[[str, dict[str, Any]], Any],
    policy: RetryPolicy | None = None,
) -> None:
    """Have ``take`` called with each piece of the answer, one at a time; raises the last attempt's ModelError.

    Each retry is an event ``error{severity: "warn", phase: "model", message, attempt, delay}``, in seconds.
    """
    policy = policy or RetryPolicy()
    shown = False
    for failures in range(1, len(policy.delays) + 2):
        try:
            async with aclosing(model.stream(request)) as pieces:
                async for piece in pieces:
                    shown = shown or not isinstance(piece, UsagePiece)
                    await take(piece)
        except ModelError as exc:
            delay = next_delay(policy, failures, exc, shown=shown)
            if delay is None:
                raise
            message = f"{exc}; trying again in {delay:g} s ({failures} of {len(policy.delays)})"
            facts = {"message": message, "attempt": failures, "delay": delay}
            emit("error", {"severity": "warn", "phase": "model", **facts})
        else:
            return
        await trio.sleep(delay)
