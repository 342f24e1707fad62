"""Cuts an answer at stop texts, for models that do not do so themselves. Pure."""

from collections.abc import Sequence

__all__ = ["StopCutter", "cut_at"]


def cut_at(stops: Sequence[str], text: str) -> str:
    """The text up to the first stop."""
    cutter = StopCutter(stops)
    return cutter.push(text) + cutter.end()


class StopCutter:
    """The same for a stream: text that may be the beginning of a stop is held back until it is not."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self._has_stopped = False

    def push(self, piece: str) -> str:
        """The part of the text that can be shown now."""
        if not self._stops or self._has_stopped:
            return "" if self._has_stopped else piece
        text = self._held + piece
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._has_stopped, self._held = True, ""
            return text[: min(found)]
        held = max(_beginning_at_the_end(stop, text) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """The rest at the end of the stream: what was held back was no stop."""
        held, self._held = self._held, ""
        return held


def _beginning_at_the_end(stop: str, text: str) -> int:
    """The length of the longest end of ``text`` that is a beginning of ``stop``."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
