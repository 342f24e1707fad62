"""Refusals in the log: the first of its kind at once, then one line for all that came within some seconds."""

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["Complaints"]

_PAUSE_SECONDS = 10.0


class Complaints:
    """Whoever hammers at the door must not fill the log. Kinds are ours, and few."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def tell(self, kind: str, **facts: Any) -> None:
        """Warn of a refusal, with what is known of this one, and of how many like it were not told of."""
        now = self._clock()
        if now - self._told_at.get(kind, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        self._told_at[kind] = now
        more = self._untold.pop(kind, 0)
        shown = "".join(f", {name} {value}" for name, value in facts.items() if value is not None)
        self._logger.warning("refused: %s%s%s", kind.lower(), shown, f" (and {more} more before)" if more else "")
