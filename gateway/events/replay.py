"""One page of the past, read from the store, in an order that a reader may leave and resume at any of its events."""

import msgspec

from gateway.events.filters import EventFilter
from gateway.events.ports import EventStore
from gateway.events.snapshots import unfold, window_of
from store.records import EventRow
from wire.envelope import EventEnvelope

__all__ = ["Page", "read_page"]

_ROWS = 128


class Page(msgspec.Struct, frozen=True):
    """``events`` are all that the filter admits above the seq asked for, up to ``reaches``."""

    events: list[EventEnvelope]
    reaches: int


async def read_page(store: EventStore, wanted: EventFilter, after: int, upto: int) -> Page:
    """Read on behind ``after``, not beyond ``upto``: a seq that no snapshot crosses."""
    rows = await store.read_events(after, upto + 1, session=wanted.session, limit=_ROWS)
    reaches = upto
    if len(rows) == _ROWS:
        rows, reaches = await _whole_windows(store, wanted, rows, upto)
    return Page(list(unfold(filter(wanted.admits, rows), after)), reaches)


async def _whole_windows(
    store: EventStore, wanted: EventFilter, rows: list[EventRow], upto: int
) -> tuple[list[EventRow], int]:
    """A snapshot's pieces lie before its seq: end the page where no later row can hold any that belong before it.

    Within one session no other event lies between a snapshot's pieces, so that any row is such an end.
    """
    last = rows[-1].seq
    if wanted.session is not None:
        return rows, last
    window = window_of(last)
    whole = [row for row in rows if row.seq < window.start]
    if whole:
        return whole, window.start - 1
    end = min(upto, window.stop - 1)
    return rows + await store.read_events(last, end + 1, session=None, limit=len(window)), end
