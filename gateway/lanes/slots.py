"""Named lanes: how many turns run in each, and the sessions that wait for a slot, best first."""

from collections.abc import Iterator, Mapping

from gateway.lanes.ordered import Ordered
from gateway.lanes.records import Session, Spot

__all__ = ["Lane", "Slots"]


class Lane:
    """One lane in use."""

    __slots__ = ("line", "name", "running")

    def __init__(self, name: str) -> None:
        self.name = name
        self.running = 0
        self.line: Ordered[Session] = Ordered()


class Slots:
    """All lanes in use. A lane exists only while a turn runs in it or a session waits for it."""

    __slots__ = ("_lanes", "limits")

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = limits
        """Turns that may run at once, by lane; a lane without an entry, or with 0, has no limit of its own."""
        self._lanes: dict[str, Lane] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def limit(self, name: str) -> int | None:
        """How many turns may run in the lane at once; None = as many as the pool serves."""
        limit = self.limits.get(name, 0)
        return limit if limit > 0 else None

    def has_room(self, name: str) -> bool:
        """Whether one more turn may run in the lane."""
        limit, lane = self.limit(name), self._lanes.get(name)
        return limit is None or lane is None or lane.running < limit

    def occupy(self, name: str) -> None:
        """A turn begins in the lane."""
        self._lane(name).running += 1

    def vacate(self, name: str) -> None:
        """A turn of the lane has ended."""
        lane = self._lanes[name]
        lane.running -= 1
        self._drop_if_unused(lane)

    def line_up(self, session: Session, name: str, rank: tuple[int, int]) -> None:
        """Have the session wait for a slot of the lane, at the place of its next message."""
        spot = session.spot
        if spot is not None and spot.lane == name and spot.place.rank == rank:
            return
        self.leave(session)
        session.spot = Spot(name, self._lane(name).line.add(rank, session))

    def leave(self, session: Session) -> None:
        """Take the session out of whatever line it stands in."""
        spot = session.spot
        if spot is not None:
            session.spot = None
            lane = self._lanes[spot.lane]
            lane.line.remove(spot.place)
            self._drop_if_unused(lane)

    def next_in(self, name: str) -> Session | None:
        """The session whose turn may begin now; None where nobody waits or the lane is full."""
        lane = self._lanes.get(name)
        return lane.line.first() if lane is not None and self.has_room(name) else None

    def _lane(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        return lane

    def _drop_if_unused(self, lane: Lane) -> None:
        if not lane.running and not lane.line:
            del self._lanes[lane.name]
