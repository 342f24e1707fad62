"""The lanes' books: every run, turn and busy session, and the steps that keep their indexes in agreement."""

import math
from collections.abc import Iterable

from gateway.lanes import wording
from gateway.lanes.actions import Action, RefusalReason, Refuse, StartTurn
from gateway.lanes.entry import Entry
from gateway.lanes.ordered import Ordered
from gateway.lanes.records import Session, Turn
from gateway.lanes.slots import Slots
from gateway.lanes.stimuli import Submit
from gateway.lanes.tables import EntryState, SessionState
from gateway.settings import QueueSettings

__all__ = ["Book"]


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
        text = wording.refusal(reason, session, cap=self.settings.cap, pending=self.settings.pending)
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
                text=wording.compose(texts, lines),
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
