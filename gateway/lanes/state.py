"""Lane state, sessions, slots.

Sessions that are busy, and the turns they have.

Named lanes: how many turns run in each, and the sessions that wait for a slot, best first.

The lanes' books: every run, turn and busy session, and the steps that keep their indexes in agreement.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.lanes import messages
from gateway.lanes.entries import SESSION_MOVES, Entry, EntryState, Ordered, Place, SessionState
from gateway.lanes.messages import Action, RefusalReason, Refuse, StartTurn, Submit
from gateway.lanes.queue import SessionQueue
from gateway.settings import QueueSettings
from pool.states import checked
from wire.timers import Timer


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


class Book:
    """What the parts of the machine share. ``touched_*``: what has to be looked at again before the step ends."""

    __slots__ = (
        "_arrivals",
        "_turns_begun",
        "actions",
        "now",
        "pending",
        "runs",
        "sessions",
        "settings",
        "slots",
        "touched_lanes",
        "touched_sessions",
        "turns",
    )

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.now = -math.inf
        self.runs: dict[str, Entry] = {}
        self.turns: dict[str, Turn] = {}
        self.sessions: dict[str, Session] = {}
        """Those that are not free."""
        self.pending: Ordered[Entry] = Ordered()
        """All that waits anywhere, summarized or whole: the lowest priority first, then the latest."""
        self.slots = Slots(settings.lanes)
        self.actions: list[Action] = []
        self.touched_sessions: dict[str, Session] = {}
        self.touched_lanes: dict[str, None] = {}
        self._arrivals = 0
        self._turns_begun = 0

    def touch(self, session: Session) -> None:
        """Have the session looked at again."""
        self.touched_sessions[session.key] = session

    # --- runs -------------------------------------------------------------------------------------------------------

    def new_entry(self, submit: Submit) -> Entry:
        """Take a run in."""
        self._arrivals += 1
        entry = self.runs[submit.run] = Entry(submit, self._arrivals, self.now)
        return entry

    def wait(self, session: Session, entry: Entry) -> None:
        """Let a run wait in its session's queue."""
        entry.move(EntryState.WAITING)
        session.queue.add(entry)
        entry.pending = self.pending.add((entry.priority, -entry.sequence), entry)
        self.touch(session)

    def leave(self, entry: Entry) -> None:
        """Take a run, whole or summarized, out of everything that keeps those who wait. It ends here."""
        session = self.sessions[entry.session]
        session.queue.remove(entry)
        self.no_longer_pending(entry)
        self.touch(session)
        self.end(entry)

    def no_longer_pending(self, entry: Entry) -> None:
        """The run has left its session's queue."""
        if entry.pending is not None:
            self.pending.remove(entry.pending)
            entry.pending = None

    def end(self, entry: Entry) -> None:
        """Forget a run."""
        entry.move(EntryState.ENDED)
        del self.runs[entry.run]

    def refuse(self, entry: Entry, reason: RefusalReason) -> None:
        """End a run that waits, and tell its caller why."""
        self.leave(entry)
        self.turn_away(entry.run, entry.session, reason)

    def refuse_all(self, entries: Iterable[Entry], reason: RefusalReason) -> None:
        """The same for several."""
        for entry in entries:
            self.refuse(entry, reason)

    def turn_away(self, run: str, session: str, reason: RefusalReason) -> None:
        """Say no to the caller of a run that is not, or no longer, in the books."""
        text = messages.refusal(reason, session, cap=self.settings.cap, pending=self.settings.pending)
        self.actions.append(Refuse(run, reason, text))

    # --- turns ------------------------------------------------------------------------------------------------------

    def begin(self, session: Session, lane: str, entries: list[Entry]) -> None:
        """Begin a turn that answers for ``entries``, oldest first, which wait no more. The lane has room."""
        texts = [entry.text for entry in entries if entry.state is not EntryState.SUMMARIZED]
        lines = [entry.text for entry in entries if entry.state is EntryState.SUMMARIZED]
        for entry in entries:
            entry.move(EntryState.RUNNING)
        self._turns_begun += 1
        turn = Turn(f"t{self._turns_begun}", session, lane, entries)
        session.move(SessionState.RUNNING)
        session.turn = self.turns[turn.name] = turn
        self.slots.occupy(lane)
        self.actions.append(
            StartTurn(
                turn=turn.name,
                session=session.key,
                lane=lane,
                priority=max(entry.priority for entry in entries),
                runs=tuple(entry.run for entry in entries),
                text=messages.compose(texts, lines),
            )
        )

    def finish(self, turn: Turn) -> None:
        """Close a turn; whoever it answered for has been ended, whoever it did not waits again."""
        session = turn.session
        del self.turns[turn.name]
        session.turn = None
        self.slots.vacate(turn.lane)
        self.touched_lanes[turn.lane] = None
        self.touch(session)
