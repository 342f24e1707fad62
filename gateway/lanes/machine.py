"""Lane machine, queue modes, dispatcher.

What becomes of a message that arrives: it begins a turn, joins the running one, waits, interrupts, or is refused.

Who goes next: what a session without a turn waits for, and which of those in line gets a free slot.

When a session's next turn begins, and what becomes of messages meanwhile: ``handle(stimulus, now) -> actions``.

It never awaits, reads no clock and knows no worker; the gateway tells it what happened and carries out what it says.
This file is the front: it takes each stimulus to the part that knows it, and lets the pump run after every one.
"""

from collections.abc import Callable
from typing import Any

from errors import UsageError
from gateway.lanes import messages
from gateway.lanes.entries import Entry, EntryState, SessionState
from gateway.lanes.messages import (
    AbortTurn,
    Action,
    LaneFigures,
    LanesSnapshot,
    RefusalReason,
    SessionLaneFigures,
    Steer,
    Stimulus,
    Submit,
)
from gateway.lanes.state import Book, Session, Turn
from gateway.settings import Overflow, QueueMode, QueueSettings
from wire.timers import Timers

_MOST_STEERED = 1000
"""Messages that one turn may be given while it runs; more become follow-ups, which the queue's cap bounds."""
_MOST_SUMMARIZED = 1000
"""Runs of one session of which only a line is left; of more, the one that gave way first is refused after all."""


class Arrivals:
    """The queue modes and the limits. Limits are for newcomers: nobody who waits gives way unless one comes in."""

    __slots__ = ("_book",)

    def __init__(self, book: Book) -> None:
        self._book = book

    def admit(self, submit: Submit) -> None:
        """Take a run in, or refuse it. It must not be known."""
        session = self._book.sessions.get(submit.session)
        if session is None:
            self._begin_or_wait(submit)
        elif (turn := _turn_to_steer(session, submit)) is not None:
            self._steer(turn, submit)
        elif submit.mode is QueueMode.INTERRUPT and not (session.turn and session.turn.is_exclusive):
            self._interrupt(session, submit)
        else:
            self._queue(session, submit)

    def _begin_or_wait(self, submit: Submit) -> None:
        """The session is free: the message begins a turn, or waits for a slot of its lane and for nothing else."""
        book = self._book
        has_slot = book.slots.has_room(submit.lane)
        if not has_slot and not self._has_room(submit):
            return
        session = book.sessions[submit.session] = Session(submit.session)
        entry = book.new_entry(submit)
        if has_slot:
            book.begin(session, submit.lane, [entry])
        else:
            book.wait(session, entry)
            session.queue.ripen()

    def _steer(self, turn: Turn, submit: Submit) -> None:
        entry = self._book.new_entry(submit)
        entry.move(EntryState.STEERED)
        turn.steers[entry.run] = entry
        self._book.actions.append(Steer(turn.name, entry.run))

    def _interrupt(self, session: Session, submit: Submit) -> None:
        """The newest message takes the place of the turn and of all that waits, unless it may not even wait."""
        book = self._book
        if not session.queue and not self._has_room(submit):
            return
        if session.turn is not None and session.state is SessionState.RUNNING:
            session.move(SessionState.ABORTING)
            book.actions.append(AbortTurn(session.turn.name))
        book.refuse_all(list(session.queue), RefusalReason.INTERRUPTED)
        book.wait(session, book.new_entry(submit))

    def _queue(self, session: Session, submit: Submit) -> None:
        """Let the message wait; where the session's queue is full somebody gives way, perhaps the message itself."""
        book, cap, overflow = self._book, self._book.settings.cap, self._book.settings.overflow
        is_full = session.queue.size >= cap
        if is_full and overflow is Overflow.NEW:
            book.turn_away(submit.run, submit.session, RefusalReason.FULL)
            return
        replaces = is_full and overflow is Overflow.OLD
        if not replaces and not self._has_room(submit):
            return
        book.wait(session, book.new_entry(submit))
        # Only one goes, however many are too many; and only after the newcomer has joined, so that a group that
        # gathers is never empty in between and goes on counting how long it has waited.
        if session.queue.size > cap:
            self._give_way(session)

    def _give_way(self, session: Session) -> None:
        book, queue = self._book, session.queue
        oldest = queue.gives_way()
        if oldest.exclusive or book.settings.overflow is not Overflow.SUMMARIZE:
            book.refuse(oldest, RefusalReason.DROPPED)
            return
        queue.summarize(oldest, messages.summary_line(oldest.text))
        surplus = queue.summaries.first
        if surplus is not None and len(queue.summaries) > _MOST_SUMMARIZED:
            book.refuse(surplus, RefusalReason.DROPPED)

    def _has_room(self, submit: Submit) -> bool:
        """Whether the message may wait. Where too many do, the lowest priority gives way, the latest among equals."""
        book = self._book
        if len(book.pending) < book.settings.pending:
            return True
        lowest = book.pending.first()
        if lowest is None or lowest.priority >= submit.priority:
            book.turn_away(submit.run, submit.session, RefusalReason.EVICTED)
            return False
        book.refuse(lowest, RefusalReason.EVICTED)
        return True


def _turn_to_steer(session: Session, submit: Submit) -> Turn | None:
    """The turn that takes the message; None where there is none, or where it would overtake another message."""
    turn = session.turn
    if turn is None or session.state is not SessionState.RUNNING or not turn.is_steerable or turn.is_exclusive:
        return None
    if submit.mode is not QueueMode.STEER or submit.exclusive or len(turn.steers) >= _MOST_STEERED:
        return None
    return None if session.queue.has_ahead(submit.priority) else turn


class Pump:
    """Runs after every step, over what the step has touched.

    First every touched session takes its place (free, gathering, or in line), then the lanes give their slots: so a
    slot goes to the best of all who are due, in whatever order they became so.
    """

    __slots__ = ("_book", "timers")

    def __init__(self, book: Book) -> None:
        self._book = book
        self.timers = Timers()
        """The ends of debounces."""

    def run(self) -> None:
        """Settle everything that was touched."""
        sessions, lanes, slots = self._book.touched_sessions, self._book.touched_lanes, self._book.slots
        while sessions:
            _, session = sessions.popitem()
            if session.turn is None:
                self._place(session)
        while lanes:
            lane, _ = lanes.popitem()
            while (best := slots.next_in(lane)) is not None:
                self._begin_next(best, lane)

    def _place(self, session: Session) -> None:
        book = self._book
        self.timers.cancel(session.timer)
        leader = session.queue.leader()
        if leader is None:
            book.slots.leave(session)
            session.move(SessionState.FREE)
            del book.sessions[session.key]
        elif (due := session.queue.due(book.settings.debounce)) > book.now:
            book.slots.leave(session)
            session.move(SessionState.GATHERING)
            session.timer = self.timers.at(due, book.touch, session)
        else:
            session.queue.ripen()
            session.move(SessionState.QUEUED)
            book.slots.line_up(session, leader.lane, leader.rank)
            book.touched_lanes[leader.lane] = None

    def _begin_next(self, session: Session, lane: str) -> None:
        book = self._book
        book.slots.leave(session)
        entries = session.queue.take()
        for entry in entries:
            book.no_longer_pending(entry)
        book.begin(session, lane, entries)


_WAITS = {
    SessionState.GATHERING: "more messages may follow, to be answered together",
    SessionState.QUEUED: "its lane has as many turns as it may",
}


class LaneMachine:
    """One turn per session at a time, and the rules by which everybody else waits.

    A run is known from its Submit until it is refused or withdrawn, or the turn that answers for it has ended.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self._book = Book(settings)
        self._arrivals = Arrivals(self._book)
        self._pump = Pump(self._book)
        self._handlers: dict[type, Callable[[Any], None]] = {
            messages.Submit: self._submit,
            messages.TurnSteerable: self._turn_steerable,
            messages.SteerRefused: self._steer_refused,
            messages.TurnEnded: self._turn_ended,
            messages.Withdraw: self._withdraw,
            messages.Clear: self._clear,
            messages.Tick: self._tick,
            messages.Reconfigure: self._reconfigure,
        }

    def handle(self, stimulus: Stimulus, now: float) -> list[Action]:
        """Take in one fact and say what is to be done, in order. ``now``: seconds on a clock that never goes back.

        Everything that was due by ``now`` happens first. Raises UsageError where the stimulus makes no sense; it then
        changes nothing, and what was due is returned by the next call (``next_wakeup`` says at once).
        """
        book = self._book
        book.now = max(book.now, now)
        if self._pump.timers.fire(book.now):
            self._pump.run()
        self._handlers[type(stimulus)](stimulus)
        self._pump.run()
        actions, book.actions = book.actions, []
        return actions

    def next_wakeup(self) -> float | None:
        """When the next Tick is needed, on the clock of ``now``; None = nothing is due."""
        return self._book.now if self._book.actions else self._pump.timers.next_at()

    # --- questions --------------------------------------------------------------------------------------------------

    def depth(self, session: str) -> int:
        """How many runs of the session wait for a turn, those of which only a line is left among them."""
        known = self._book.sessions.get(session)
        return len(known.queue) if known else 0

    def why_waiting(self, session: str) -> str | None:
        """What the session waits for before its next turn begins, in words; None where it does not wait."""
        known = self._book.sessions.get(session)
        return _WAITS.get(known.state) if known else None

    def waiting(self, session: str) -> tuple[str, ...]:
        """Those runs: first the summarized ones, which go with whatever is next, then as they will be served."""
        known = self._book.sessions.get(session)
        return tuple(entry.run for entry in known.queue) if known else ()

    def running_turn(self, session: str) -> str | None:
        """The session's turn; None while it has none."""
        known = self._book.sessions.get(session)
        return known.turn.name if known and known.turn else None

    def snapshot(self) -> LanesSnapshot:
        """A frozen picture, consistent with itself."""
        book = self._book
        return LanesSnapshot(
            running=len(book.turns),
            waiting=len(book.pending),
            lanes=tuple(
                LaneFigures(
                    name=lane.name, limit=book.slots.limit(lane.name), running=lane.running, waiting=len(lane.line)
                )
                for lane in sorted(book.slots, key=lambda lane: lane.name)
            ),
            sessions=tuple(_figures(session) for session in book.sessions.values()),
        )

    # --- stimuli ----------------------------------------------------------------------------------------------------

    def _submit(self, submit: Submit) -> None:
        if submit.run in self._book.runs:
            raise UsageError(f"run {submit.run!r} is in the lanes already", run=submit.run)
        self._arrivals.admit(submit)

    def _turn_steerable(self, news: messages.TurnSteerable) -> None:
        self._turn(news.turn).is_steerable = news.steerable

    def _steer_refused(self, refused: messages.SteerRefused) -> None:
        turn = self._turn(refused.turn)
        self._take_back(turn, _steer_of(turn, refused.run))

    def _turn_ended(self, ended: messages.TurnEnded) -> None:
        turn = self._turn(ended.turn)
        unconsumed = [_steer_of(turn, run) for run in ended.unconsumed]
        if len(set(unconsumed)) < len(unconsumed):
            raise UsageError(f"turn {turn.name!r} gives the same run back twice", turn=turn.name)
        for entry in unconsumed:
            self._take_back(turn, entry)
        for entry in (*turn.entries, *turn.steers.values()):
            self._book.end(entry)
        self._book.finish(turn)

    def _withdraw(self, withdraw: messages.Withdraw) -> None:
        entry = self._book.runs.get(withdraw.run)
        if entry is not None and entry.is_waiting:
            self._book.leave(entry)

    def _clear(self, clear: messages.Clear) -> None:
        session = self._book.sessions.get(clear.session)
        if session is not None:
            self._book.refuse_all(list(session.queue), RefusalReason.CLEARED)

    def _tick(self, _: messages.Tick) -> None:
        """What was due has happened before."""

    def _reconfigure(self, reconfigure: messages.Reconfigure) -> None:
        book = self._book
        book.settings = reconfigure.settings
        book.slots.limits = reconfigure.settings.lanes
        book.touched_sessions.update(book.sessions)  # debounces may be shorter, lanes wider

    # --- turns ------------------------------------------------------------------------------------------------------

    def _turn(self, name: str) -> Turn:
        turn = self._book.turns.get(name)
        if turn is None:
            raise UsageError(f"no turn {name!r} is running", turn=name)
        return turn

    def _take_back(self, turn: Turn, entry: Entry) -> None:
        """A steer that was not consumed waits at the place of its arrival; what interrupts the turn has replaced it."""
        del turn.steers[entry.run]
        self._book.wait(turn.session, entry)
        if turn.session.state is SessionState.ABORTING:
            self._book.refuse(entry, RefusalReason.INTERRUPTED)


def _steer_of(turn: Turn, run: str) -> Entry:
    entry = turn.steers.get(run)
    if entry is None:
        raise UsageError(f"run {run!r} was not steered into turn {turn.name!r}", run=run, turn=turn.name)
    return entry


def _figures(session: Session) -> SessionLaneFigures:
    turn = session.turn
    return SessionLaneFigures(
        session=session.key,
        state=session.state.value,
        turn=turn.name if turn else None,
        runs=tuple(entry.run for entry in turn.entries) if turn else (),
        steered=len(turn.steers) if turn else 0,
        waiting=session.queue.size,
        summarized=len(session.queue.summaries),
    )
