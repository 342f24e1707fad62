"""What this room asks of the house, as protocols: the rooms below implement them, the application joins them."""

from collections.abc import Awaitable
from typing import Protocol

__all__ = ["Documents"]


class Documents(Protocol):
    """Small records that survive the supervisor: one body of bytes (JSON) for each key of a kind.

    Kinds are names that this room chooses (``cron_job``, ``beat``); keys are unique within their kind.
    """

    async def load(self, kind: str) -> dict[str, bytes]:
        """Every document of the kind by its key, in the order of their first keeping. For the start."""
        ...

    def put(self, kind: str, key: str, body: bytes | None) -> Awaitable[None]:
        """Keep a body in place of the one before, or remove it (``None``).

        It counts from the call on, whether or not the result is awaited: later calls on the same key win, and a later
        ``load`` sees it. Awaiting the result waits until it is on the disk; while the disk refuses, it is kept in
        memory and the result does not wait.
        """
        ...
