"""What a follower has been told, over all connections and lives, and waiting for more of it."""

from typing import Any

import trio

from tests.acceptance.line_client import Envelope


class Listener:
    """``hear`` takes in an event; everything else looks at what there is."""

    def __init__(self) -> None:
        self.events: list[Envelope] = []
        self._news = trio.Event()

    @property
    def bookmark(self) -> int:
        """Where to go on."""
        return self.events[-1]["seq"] if self.events else 0

    def hear(self, event: Envelope) -> None:
        """The next event."""
        self.events.append(event)
        self._news.set()
        self._news = trio.Event()

    def find(self, kind: str, **facts: Any) -> list[Envelope]:
        """Events of that type whose data, or envelope, has these facts."""
        return [
            event
            for event in self.events
            if event["type"] == kind and facts.items() <= {**(event.get("data") or {}), **event}.items()
        ]

    async def wait_for(self, kind: str, count: int = 1, **facts: Any) -> Envelope:
        """The ``count``-th of them, once it has been told."""
        while len(found := self.find(kind, **facts)) < count:
            await self._news.wait()
        return found[count - 1]
