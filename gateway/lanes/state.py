"""The state of the lanes: every run, turn, busy session and slot, with indexes that agree. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.lanes import messages
from gateway.lanes.lane_entries import (
    LANE_SESSION_TRANSITIONS,
    EntryState,
    HeapEntry,
    IndexedHeap,
    LaneEntry,
    LaneSessionState,
)
from gateway.lanes.messages import LaneAction, RejectionReason, RejectRun, StartTurn, Submit
from gateway.lanes.queue import SessionQueue
from gateway.settings import QueueSettings
from wire.states import transition
from wire.timers import Timer


class LaneTurn:
    """One prompt to a worker and the runs it answers for."""

    __slots__ = ("entries", "is_exclusive", "lane", "name", "session", "steers")

    def __init__(self, name: str, session: "LaneSession", lane: str, entries: Sequence[LaneEntry]) -> None:
        self.name = name
        self.session = session
        self.lane = lane
        self.entries = entries
        self.is_exclusive = entries[0].exclusive
        self.steers: dict[str, LaneEntry] = {}


class QueuePosition:
    """Where a session stands in line for a slot."""

    __slots__ = ("entry", "lane")

    def __init__(self, lane: str, place: "HeapEntry[LaneSession]") -> None:
        self.lane = lane
        self.entry = place


class LaneSession:
    """A session that has a turn or messages; free ones are not kept."""

    __slots__ = ("key", "position", "queue", "state", "timer", "turn")

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = LaneSessionState.FREE
        self.turn: LaneTurn | None = None
        self.queue = SessionQueue()
        self.position: QueuePosition | None = None
        self.timer: Timer | None = None

    def transition_to(self, state: LaneSessionState) -> None:
        """Take the session to ``state``, where it may be; raises IllegalTransition where the table has no such step."""
        if state is not self.state:
            self.state = transition(LANE_SESSION_TRANSITIONS, self.state, state)


class Lane:
    """One lane in use."""

    __slots__ = ("name", "queue", "running")

    def __init__(self, name: str) -> None:
        self.name = name
        self.running = 0
        self.queue: IndexedHeap[LaneSession] = IndexedHeap()


class LaneSlots:
    """All lanes in use. A lane exists only while a turn runs in it or a session waits for it."""

    __slots__ = ("lanes", "limits")

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits: dict[str, int] = {}
        """Turns that may run at once, by lane; a lane without an entry has no limit of its own."""
        self.lanes: dict[str, Lane] = {}
        self.set_limits(limits)

    def __iter__(self) -> Iterator[Lane]:
        return iter(self.lanes.values())

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Take the limits of the settings, where 0 means no limit."""
        self.limits = {name: limit for name, limit in limits.items() if limit > 0}

    def has_room(self, name: str) -> bool:
        """Whether one more turn may run in the lane."""
        limit, lane = self.limits.get(name), self.lanes.get(name)
        return limit is None or lane is None or lane.running < limit

    def begin(self, name: str) -> None:
        """A turn of the lane begins."""
        self._lane(name).running += 1

    def release(self, name: str) -> None:
        """A turn of the lane has ended."""
        lane = self.lanes[name]
        lane.running -= 1
        if not lane.running and not lane.queue.size:
            del self.lanes[name]

    def enqueue(self, session: LaneSession, name: str, rank: tuple[int, int]) -> None:
        """Let the session wait for a slot of the lane, by the rank of its next message."""
        spot = session.position
        if spot is not None and spot.lane == name and spot.entry.rank == rank:
            return
        self.remove(session)
        lane = self._lane(name)
        session.position = QueuePosition(name, lane.queue.add(rank, session))

    def remove(self, session: LaneSession) -> None:
        """Take the session out of the line that it stands in."""
        spot = session.position
        if spot is not None:
            session.position = None
            lane = self.lanes[spot.lane]
            lane.queue.remove(spot.entry)
            if not lane.running and not lane.queue.size:
                del self.lanes[spot.lane]

    def _lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(name)
        return lane

    def peek(self, name: str) -> LaneSession | None:
        """The session whose turn may begin now; None where none waits or the lane is full."""
        lane = self.lanes.get(name)
        return lane.queue.first() if lane is not None and self.has_room(name) else None


class LaneState:
    """What the parts of the machine share. ``touched_*``: what the dispatcher has to look at again."""

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
        self.runs: dict[str, LaneEntry] = {}
        self.turns: dict[str, LaneTurn] = {}
        self.sessions: dict[str, LaneSession] = {}
        """Those that are not free."""
        self.pending: IndexedHeap[LaneEntry] = IndexedHeap()
        """All that waits anywhere, summarized or whole: the lowest priority first, then the latest."""
        self.slots = LaneSlots(settings.lanes)
        self.actions: list[LaneAction] = []
        self.touched_sessions: dict[str, LaneSession] = {}
        self.touched_lanes: dict[str, None] = {}
        self._arrivals = 0
        self._turns_begun = 0

    def touch(self, session: LaneSession) -> None:
        """Let the dispatcher look at the session again."""
        self.touched_sessions[session.key] = session

    # --- runs -------------------------------------------------------------------------------------------------------

    def new_entry(self, submit: Submit) -> LaneEntry:
        """Register a run."""
        self._arrivals += 1
        entry = self.runs[submit.run] = LaneEntry(submit, self._arrivals, self.now)
        return entry

    def enqueue(self, session: LaneSession, entry: LaneEntry) -> None:
        """Let a run wait in its session's queue."""
        entry.transition_to(EntryState.WAITING)
        session.queue.add(entry)
        entry.pending_entry = self.pending.add((entry.priority, -entry.sequence), entry)
        self.touch(session)

    def remove(self, entry: LaneEntry) -> None:
        """Remove a run that waits, whole or summarized; it ends here."""
        session = self.sessions[entry.session]
        session.queue.remove(entry)
        self.unindex(entry)
        self.touch(session)
        self.end(entry)

    def unindex(self, entry: LaneEntry) -> None:
        """The run has left its session's queue."""
        if entry.pending_entry is not None:
            self.pending.remove(entry.pending_entry)
            entry.pending_entry = None

    def end(self, entry: LaneEntry) -> None:
        """Forget a run."""
        entry.transition_to(EntryState.ENDED)
        del self.runs[entry.run]

    def reject(self, entry: LaneEntry, reason: RejectionReason) -> None:
        """End a run that waits, with the reason for its caller."""
        self.remove(entry)
        self.emit_rejection(entry.run, entry.session, reason)

    def reject_all(self, entries: Iterable[LaneEntry], reason: RejectionReason) -> None:
        """The same for several."""
        for entry in entries:
            self.reject(entry, reason)

    def emit_rejection(self, run: str, session: str, reason: RejectionReason) -> None:
        """Reject a run that is not, or no longer, registered."""
        text = messages.rejection_text(reason, session, cap=self.settings.cap, pending=self.settings.pending)
        self.actions.append(RejectRun(run, reason, text))

    # --- turns ------------------------------------------------------------------------------------------------------

    def begin(self, session: LaneSession, lane: str, entries: list[LaneEntry]) -> None:
        """Begin a turn that answers for ``entries``, oldest first, which wait no more. The lane has room."""
        text = _prompt_of(entries)
        for entry in entries:
            entry.transition_to(EntryState.RUNNING)
        self._turns_begun += 1
        turn = LaneTurn(f"t{self._turns_begun}", session, lane, entries)
        session.transition_to(LaneSessionState.RUNNING)
        session.turn = self.turns[turn.name] = turn
        self.slots.begin(lane)
        self.actions.append(
            StartTurn(
                turn=turn.name,
                session=session.key,
                lane=lane,
                priority=max(entry.priority for entry in entries),
                runs=tuple(entry.run for entry in entries),
                text=text,
            )
        )

    def finish(self, turn: LaneTurn) -> None:
        """Close a turn; its runs have been ended, or wait again."""
        session = turn.session
        del self.turns[turn.name]
        session.turn = None
        self.slots.release(turn.lane)
        self.touched_lanes[turn.lane] = None
        self.touched_sessions[session.key] = session


def _prompt_of(entries: Sequence[LaneEntry]) -> str:
    """The text of the one message that waited whole, or all of them as one."""
    if len(entries) == 1 and entries[0].state is not EntryState.SUMMARIZED:
        return entries[0].text
    texts = [entry.text for entry in entries if entry.state is not EntryState.SUMMARIZED]
    lines = [entry.text for entry in entries if entry.state is EntryState.SUMMARIZED]
    return messages.merge_messages(texts, lines)
