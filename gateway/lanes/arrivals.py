"""What becomes of a message that arrives: it begins a turn, joins the running one, waits, interrupts, or is refused."""

from gateway.lanes import wording
from gateway.lanes.actions import AbortTurn, RefusalReason, Steer
from gateway.lanes.book import Book
from gateway.lanes.records import Session, Turn
from gateway.lanes.stimuli import Submit
from gateway.lanes.tables import EntryState, SessionState
from gateway.settings import Overflow, QueueMode

__all__ = ["Arrivals"]

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
        queue.summarize(oldest, wording.summary_line(oldest.text))
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
