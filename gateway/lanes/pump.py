"""Who goes next: what a session without a turn waits for, and which of those in line gets a free slot."""

from gateway.lanes.book import Book
from gateway.lanes.records import Session
from gateway.lanes.tables import SessionState
from pool.timers import Timers

__all__ = ["Pump"]


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
