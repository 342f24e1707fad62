"""Sessions that are busy, and the turns they have."""

from collections.abc import Sequence

from gateway.lanes.entry import Entry
from gateway.lanes.ordered import Place
from gateway.lanes.tables import SESSION_MOVES, SessionState
from gateway.lanes.waiting import SessionQueue
from pool.tables import checked
from pool.timers import Timer

__all__ = ["Session", "Spot", "Turn"]


class Turn:
    """One prompt to a worker and the runs it answers for."""

    __slots__ = ("entries", "is_exclusive", "is_steerable", "lane", "name", "session", "steers")

    def __init__(self, name: str, session: "Session", lane: str, entries: Sequence[Entry]) -> None:
        self.name = name
        self.session = session
        self.lane = lane
        self.entries = entries
        self.is_exclusive = entries[0].exclusive
        self.is_steerable = False
        self.steers: dict[str, Entry] = {}


class Spot:
    """Where a session stands in line for a slot."""

    __slots__ = ("lane", "place")

    def __init__(self, lane: str, place: "Place[Session]") -> None:
        self.lane = lane
        self.place = place


class Session:
    """A session that has a turn or messages; free ones are not kept."""

    __slots__ = ("key", "queue", "spot", "state", "timer", "turn")

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = SessionState.FREE
        self.turn: Turn | None = None
        self.queue = SessionQueue()
        self.spot: Spot | None = None
        self.timer: Timer | None = None

    def move(self, state: SessionState) -> None:
        """Take the session to ``state``, where it may be; raises IllegalMoveError where the table has no such step."""
        if state is not self.state:
            self.state = checked(SESSION_MOVES, self.state, state)
