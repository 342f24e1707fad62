"""Following events over any number of connections: from a bookmark, with a growing pause before each new one."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import msgspec

from errors import NoSupervisor, PoolClosed, PoolError, PoolSaturated
from wire.messages import omit_none

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_RECONNECT_ERRORS = (NoSupervisor, PoolClosed, PoolSaturated)
"""What ends a subscription that may begin again."""


class EventFeed(Protocol):
    """A subscription: iterate over the envelopes of each push, undecoded, until the supervisor ends it.

    ``head``: the last seq there was at its beginning. ``complete``: False when events after the bookmark are gone.
    """

    head: int
    complete: bool

    def __iter__(self) -> Iterator[msgspec.Raw]:
        """Raises NoSupervisor when the connection is lost."""
        ...

    def end(self) -> None:
        """Tell the supervisor to end it."""
        ...


class EventSource(Protocol):
    """One connection to a supervisor."""

    def subscribe(self, wish: dict[str, Any]) -> EventFeed:
        """Begin with these parameters of ``subscribe``. Raises PoolError."""
        ...


class EventsView(Protocol):
    """Where events are shown."""

    def show(self, events: msgspec.Raw) -> int:
        """Show the envelopes of one push, and flush; the seq of the last one."""
        ...

    def show_notice(self, text: str) -> None:
        """Say something about the following itself."""
        ...

    def close(self) -> None:
        """Show what was kept back."""
        ...


class EventFollower:
    """Follows events for as long as it is let. ``bookmark``: the seq behind the last one that was shown."""

    def __init__(
        self,
        wish: dict[str, Any],
        view: EventsView,
        *,
        since: int | None,
        was_there: bool = False,
        on_connection: Callable[[bool], None] = lambda _is_there: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``wish``: the filters of ``subscribe``. ``since``: a bookmark to go on from; None = only what comes now.

        ``was_there``: the supervisor has just answered, so that it may be waited for if it is gone now.
        ``on_connection``: called when events are followed from then on, and when the supervisor went away.
        """
        self.bookmark = since
        self._filters = wish
        self._view = view
        self._on_connection = on_connection
        self._sleep = pause
        self._backoff = backoff()
        self._has_begun = was_there
        self._is_disconnected = False

    def follow(self, source: EventSource) -> None:
        """Show what this connection brings until it is lost; who was cut off as too slow goes on from the bookmark.

        Ends by raising PoolError, always.
        """
        while True:
            for events in self._subscribe(source):
                self.bookmark = self._view.show(events)

    def follow_with_reconnect(
        self, source: EventSource, reconnect: Callable[[], AbstractContextManager[EventSource]]
    ) -> None:
        """The same over any number of connections. Raises PoolError only for what no new connection would mend."""
        self._follow_once(lambda: nullcontext(source))
        while True:
            self._sleep(next(self._backoff))
            self._follow_once(reconnect)

    def _follow_once(self, connect: Callable[[], AbstractContextManager[EventSource]]) -> None:
        try:
            with connect() as source:
                self.follow(source)
        except _RECONNECT_ERRORS as exc:
            self._on_disconnect(exc)

    def _subscribe(self, source: EventSource) -> EventFeed:
        feed = source.subscribe(omit_none(**self._filters, since=self.bookmark))
        if self._is_disconnected:
            self._view.show_notice("the supervisor is back")
        self._has_begun, self._is_disconnected, self._backoff = True, False, backoff()
        self._on_connection(True)  # noqa: FBT003 - a callback
        if self.bookmark is None:
            self.bookmark = feed.head
        elif feed.head < self.bookmark:
            self._view.show_notice("event history was reset; starting from the first available event")
            self.bookmark = 0
            feed.end()
            return self._subscribe(source)
        elif not feed.complete:
            self._view.show_notice(f"events after {self.bookmark} are missing: they were older than what is kept")
        return feed

    def _on_disconnect(self, error: PoolError) -> None:
        if not self._has_begun:
            raise error
        if not self._is_disconnected:
            self._on_connection(False)  # noqa: FBT003 - a callback
            self._view.show_notice("the supervisor went away; waiting for it to come back (Ctrl-C ends)")
        self._is_disconnected = True


def backoff() -> Iterator[float]:
    """Seconds to wait before each attempt: growing, bounded, without end."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)
