"""The text of one run as it is told while it comes into being: pieces joined, repeated as a whole, and not too often.

Both kinds of events repeat all that was said so far, which a reader that lost one needs. So that an answer of n
characters costs no n * n, an event that repeats n characters is followed by the next one n microseconds later at the
earliest, and a text above ``MOST_TEXT`` is not repeated any more: then only what is new is told. Pure.
"""

import math

__all__ = ["CHAT_SECONDS", "MOST_TEXT", "RunText", "Stretch"]

MOST_TEXT = 256 * 1024
"""Characters; a run's ``done`` holds as many."""
CHAT_SECONDS = 0.15
_CHARS_PER_SECOND = 1_000_000
_GAP = "\n\n"


class Stretch:
    """What one kind of events has not told yet, and when it may."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._parts: list[str] = []
        self._next_at = -math.inf
        self.seq = 0
        """The last event of the gateway that what waits comes from."""
        self.ts = 0.0

    @property
    def due_at(self) -> float:
        """When what waits may be told; never where nothing does."""
        return self._next_at if self._parts else math.inf

    def add(self, piece: str, seq: int, ts: float) -> None:
        """More has been said."""
        self._parts.append(piece)
        self.seq, self.ts = seq, ts

    def take(self, now: float, repeated: int) -> str:
        """What waits is told now, with ``repeated`` characters beside it."""
        delta = "".join(self._parts)
        self._parts.clear()
        self._next_at = now + max(self._pause, (repeated + len(delta)) / _CHARS_PER_SECOND)
        return delta


class RunText:
    """One run's. ``is_whole``: it was heard from its begin, so that all of it is known."""

    def __init__(self, *, is_whole: bool) -> None:
        self.agent = Stretch(0.0)
        self.chat = Stretch(CHAT_SECONDS)
        self._is_whole = is_whole
        self._said = ""
        self._parts: list[str] = []
        self._length = 0
        self._has_gap = False

    @property
    def whole(self) -> str | None:
        """All that was said; None where that is not known, or too much."""
        if not self._is_whole or self._length > MOST_TEXT:
            return None
        if self._parts:
            self._said += "".join(self._parts)
            self._parts.clear()
        return self._said

    def gap(self) -> None:
        """The agent does something else: what it says next is a paragraph of its own."""
        self._has_gap = self._length > 0

    def add(self, said: str, seq: int, ts: float) -> None:
        """More has been said, and is to be told."""
        piece = self.recall(said)
        self.agent.add(piece, seq, ts)
        self.chat.add(piece, seq, ts)

    def recall(self, said: str) -> str:
        """More has been said, of which nobody is told; returns it with the gap before it."""
        if not said:
            return ""
        piece = f"{_GAP}{said}" if self._has_gap else said
        self._has_gap = False
        self._length += len(piece)
        if self._is_whole and self._length <= MOST_TEXT:
            self._parts.append(piece)
        else:
            self._said = ""
            self._parts.clear()
        return piece
