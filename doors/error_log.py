"""What goes wrong in sessions, for the log: events are for whoever follows, the log for whoever looks later."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from wire.envelope import EventEnvelope

__all__ = ["ErrorLog"]

_MOST_RUNS = 1000


class ErrorLog:
    """Takes every ``error`` event. Of one run the first reaches the log, however many its worker makes."""

    def __init__(self, log: Callable[[str, Mapping[str, Any]], None]) -> None:
        """``log`` takes the event's name and its facts."""
        self._log = log
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Runs of which something was told, the latest last."""

    def take(self, event: EventEnvelope) -> None:
        """An error has happened; what concerns no session has been told already by whom it concerns."""
        if event.session and not self._was_told(event):
            facts = msgspec.json.decode(event.data, type=dict[str, Any])
            self._log("error", {**facts, "session": event.session, "run": event.run_id})

    def _was_told(self, event: EventEnvelope) -> bool:
        """What belongs to no run is the gateway's own word, and is told each time."""
        if event.run_id is None:
            return False
        run = (event.session, event.run_id)
        if run in self._told:
            return True
        self._told[run] = None
        if len(self._told) > _MOST_RUNS:
            self._told.popitem(last=False)
        return False
