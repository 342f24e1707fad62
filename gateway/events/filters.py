"""What a reader wants to see of the stream."""

import msgspec

from gateway.events.ring import Item, TextBlock
from gateway.events.snapshots import CHUNK_OF, SNAPSHOT_OF
from store.records import EventRow
from wire.envelope import Channel

__all__ = ["EventFilter"]


_OF_NO_RUN = frozenset({"agent_resumed", "exec_exit", "alert"})
"""What happens in a session between its runs, or beside them: the followers of each run see it too."""


class EventFilter(msgspec.Struct, frozen=True):
    """Each part None = all. ``session`` is looked up in an index, the rest is looked at event by event.

    With ``run_id`` what belongs to another run is left out, and what belongs to none but ``agent_resumed``,
    ``exec_exit`` and ``alert``.
    """

    session: str | None = None
    run_id: str | None = None
    channels: frozenset[Channel] | None = None
    kinds: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        session: str | None,
        run_id: str | None,
        channels: frozenset[Channel] | None,
        kinds: frozenset[str] | None,
    ) -> "EventFilter":
        """A filter in which text and the snapshots of it are one kind: a reader cannot know which it will meet."""
        if kinds is not None:
            kinds |= {SNAPSHOT_OF[kind] for kind in kinds & SNAPSHOT_OF.keys()}
            kinds |= {CHUNK_OF[kind] for kind in kinds & CHUNK_OF.keys()}
        return cls(session, run_id, channels, kinds)

    def admits(self, item: Item | EventRow) -> bool:
        """Whether an event of the right session is wanted."""
        return (
            (self.kinds is None or item.type in self.kinds)
            and (self.run_id is None or item.run_id == self.run_id or (not item.run_id and item.type in _OF_NO_RUN))
            and (self.channels is None or _channel_of(item) in self.channels)
        )

    def hears(self, session: str, channel: Channel, kind: str) -> bool:
        """Whether an event of that kind would be wanted, whatever its run."""
        return (
            self.session in (None, session)
            and (self.channels is None or channel in self.channels)
            and (self.kinds is None or kind in self.kinds)
        )


def _channel_of(item: Item | EventRow) -> str:
    return Channel.PROGRESS if isinstance(item, TextBlock) else item.channel
