"""One run as the lanes see it, from its acceptance to its end."""

from gateway.lanes.ordered import Place, Rank
from gateway.lanes.stimuli import Submit
from gateway.lanes.tables import ENTRY_MOVES, EntryState
from gateway.settings import QueueMode
from pool.tables import checked

__all__ = ["Entry"]


class Entry:
    """A run, where it stands, and what is left of its text."""

    __slots__ = (
        "arrived",
        "exclusive",
        "lane",
        "mergeable",
        "pending",
        "place",
        "priority",
        "rank",
        "run",
        "sequence",
        "session",
        "state",
        "text",
    )

    def __init__(self, submit: Submit, sequence: int, now: float) -> None:
        self.run = submit.run
        self.session = submit.session
        self.lane = submit.lane
        self.priority = submit.priority
        self.exclusive = submit.exclusive
        self.mergeable = submit.mode is QueueMode.COLLECT and not submit.exclusive
        self.text = submit.text
        """The whole message; once it is summarized, the line of it that is kept."""
        self.sequence = sequence
        """The order of arrival: smaller came earlier, also after it was steered and came back."""
        self.rank: Rank = (-submit.priority, sequence)
        """Smaller is served first."""
        self.arrived = now
        self.state = EntryState.NEW
        self.place: Place[Entry] | None = None
        """In its tier, behind the group that goes next."""
        self.pending: Place[Entry] | None = None
        """Among all that wait anywhere."""

    def move(self, state: EntryState) -> None:
        """Take the run to ``state``; raises IllegalMoveError where the table has no such step."""
        self.state = checked(ENTRY_MOVES, self.state, state)

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither begun nor ended: it can still be taken back or refused."""
        return self.state is EntryState.WAITING or self.state is EntryState.SUMMARIZED
