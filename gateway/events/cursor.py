"""A reader's place in the stream: replays from the store, goes on from the ring, then waits for news."""

from collections import deque
from typing import Protocol

import trio

from errors import SubscriberBehind
from gateway.events.encode import Batch, EncodedEvents
from gateway.events.filters import EventFilter
from gateway.events.news import News
from gateway.events.ports import EventStore
from gateway.events.replay import read_page
from gateway.events.ring import Ring, TextBlock
from wire.envelope import EventEnvelope

__all__ = ["EventCursor", "Stream"]


class Stream(Protocol):
    """What a cursor reads."""

    @property
    def ring(self) -> Ring:
        """The recent part."""
        ...

    @property
    def store(self) -> EventStore:
        """The rest."""
        ...

    @property
    def news(self) -> News:
        """What to wait for."""
        ...

    @property
    def head(self) -> int:
        """The last seq that readers may see."""
        ...

    def discarded_below(self, seq: int) -> None:
        """Tell that retention has dropped what lies below ``seq``."""
        ...


class EventCursor:
    """A position, for one task at a time. It holds nothing of the stream but the rest of a page it replays.

    Attributes:
        wanted: what it lets through.
        position: the bookmark: everything up to it that the filter lets through has been taken.
        complete: False once events behind the position it began at turn out to have been discarded by retention.
    """

    def __init__(self, stream: Stream, wanted: EventFilter, position: int, *, complete: bool) -> None:
        self.position = position
        self.complete = complete
        self._stream = stream
        self.wanted = wanted
        self._replayed: deque[EventEnvelope] = deque()
        self._replay_reaches = position
        self._had_caught_up = False

    async def take(self, max_bytes: int = 128 * 1024) -> EncodedEvents:
        """The next events, at least one; waits for them. More than ``max_bytes`` only where a single one is longer.

        Cancelled, it has taken nothing. Raises SubscriberBehind once this reader had seen everything there was, and
        then came so late that the ring has given up events it had not taken: resume with a new cursor at its
        ``bookmark``.
        """
        await trio.lowlevel.checkpoint()
        while True:
            if self._replayed:
                return self._take_replayed(max_bytes)
            if self.position < self._stream.ring.floor and self.position < self._stream.head:
                await self._replay()
            elif self.position < self._stream.head:
                taken = self._take_live(max_bytes)
                if taken.count:
                    return taken
            else:
                await self._sleep()

    async def _sleep(self) -> None:
        """Until something happens here; meanwhile the ring may have moved far, which is not this reader's delay."""
        self._had_caught_up = True
        news = await self._stream.news.wait(self.wanted.session)
        self.position = max(self.position, news - 1)

    # --- live ---------------------------------------------------------------------------------------------------------

    def _take_live(self, max_bytes: int) -> EncodedEvents:
        batch, upto = Batch(max_bytes), self._stream.head
        for item in self._stream.ring.read(self.wanted.session, self.position, upto):
            if not self.wanted.admits(item):
                continue
            fits = batch.add_text(item, self.position) if isinstance(item, TextBlock) else batch.add(item)
            if not fits:
                self.position = batch.last_seq
                return batch.finish()
        self.position = upto
        self._had_caught_up = True
        return batch.finish()

    # --- replay -------------------------------------------------------------------------------------------------------

    async def _replay(self) -> None:
        upto = min(self._stream.ring.floor, self._stream.head)
        page = await read_page(self._stream.store, self.wanted, self.position, upto)
        await self._check_retention()
        if page.events and self._had_caught_up:
            raise SubscriberBehind(
                f"the subscriber was too slow: events after {self.position} are no longer in memory; "
                "subscribe again with since = bookmark",
                bookmark=self.position,
            )
        self._replayed.extend(page.events)
        self._replay_reaches = page.reaches
        if not page.events:
            self.position = page.reaches

    async def _check_retention(self) -> None:
        oldest = await self._stream.store.oldest_seq()
        self._stream.discarded_below(oldest)
        if self.position + 1 < oldest:
            self.complete = False

    def _take_replayed(self, max_bytes: int) -> EncodedEvents:
        batch = Batch(max_bytes)
        while self._replayed and batch.add(self._replayed[0]):
            self._replayed.popleft()
        self.position = batch.last_seq if self._replayed else self._replay_reaches
        return batch.finish()
