"""What the bus needs of a store; ``store.Store`` has it."""

from collections.abc import Iterable
from typing import Protocol

from store.records import EventRow

__all__ = ["EventStore"]


class EventStore(Protocol):
    """Rows are put at once and become durable in batches."""

    @property
    def is_degraded(self) -> bool:
        """Whether the disk refuses: nothing becomes durable, everything is held in memory."""
        ...

    def put_events(self, rows: Iterable[EventRow]) -> None:
        """Write these, some time soon."""
        ...

    def note_seq(self, seq: int) -> None:
        """This is the highest seq that was given out."""
        ...

    async def flush(self) -> bool:
        """Wait until everything put before is durable; False = it is held in memory."""
        ...

    async def read_events(self, after: int, before: int, *, session: str | None, limit: int) -> list[EventRow]:
        """Rows with ``after < seq < before``, ascending, with everything that was put before the call."""
        ...

    async def oldest_seq(self) -> int:
        """Events with a seq below this one have been dropped by retention."""
        ...
