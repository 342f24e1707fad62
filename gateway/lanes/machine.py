"""When a session's next turn begins, and what becomes of messages meanwhile: ``handle(stimulus, now) -> actions``.

It never awaits, reads no clock and knows no worker; the gateway tells it what happened and carries out what it says.
This file is the front: it takes each stimulus to the part that knows it, and lets the pump run after every one.
"""

from collections.abc import Callable
from typing import Any

from errors import UsageError
from gateway.lanes import stimuli
from gateway.lanes.actions import Action, RefusalReason
from gateway.lanes.arrivals import Arrivals
from gateway.lanes.book import Book
from gateway.lanes.entry import Entry
from gateway.lanes.figures import LaneFigures, LanesSnapshot, SessionLaneFigures
from gateway.lanes.pump import Pump
from gateway.lanes.records import Session, Turn
from gateway.lanes.stimuli import Stimulus, Submit
from gateway.lanes.tables import SessionState
from gateway.settings import QueueSettings

__all__ = ["LaneMachine"]


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
            stimuli.Submit: self._submit,
            stimuli.TurnSteerable: self._turn_steerable,
            stimuli.SteerRefused: self._steer_refused,
            stimuli.TurnEnded: self._turn_ended,
            stimuli.Withdraw: self._withdraw,
            stimuli.Clear: self._clear,
            stimuli.Tick: self._tick,
            stimuli.Reconfigure: self._reconfigure,
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

    def _turn_steerable(self, news: stimuli.TurnSteerable) -> None:
        self._turn(news.turn).is_steerable = news.steerable

    def _steer_refused(self, refused: stimuli.SteerRefused) -> None:
        turn = self._turn(refused.turn)
        self._take_back(turn, _steer_of(turn, refused.run))

    def _turn_ended(self, ended: stimuli.TurnEnded) -> None:
        turn = self._turn(ended.turn)
        unconsumed = [_steer_of(turn, run) for run in ended.unconsumed]
        if len(set(unconsumed)) < len(unconsumed):
            raise UsageError(f"turn {turn.name!r} gives the same run back twice", turn=turn.name)
        for entry in unconsumed:
            self._take_back(turn, entry)
        for entry in (*turn.entries, *turn.steers.values()):
            self._book.end(entry)
        self._book.finish(turn)

    def _withdraw(self, withdraw: stimuli.Withdraw) -> None:
        entry = self._book.runs.get(withdraw.run)
        if entry is not None and entry.is_waiting:
            self._book.leave(entry)

    def _clear(self, clear: stimuli.Clear) -> None:
        session = self._book.sessions.get(clear.session)
        if session is not None:
            self._book.refuse_all(list(session.queue), RefusalReason.CLEARED)

    def _tick(self, _: stimuli.Tick) -> None:
        """What was due has happened before."""

    def _reconfigure(self, reconfigure: stimuli.Reconfigure) -> None:
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
