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
        begun = len(text) - max(_beginning_at_the_end(stop, text) for stop in self._stops)
        first = self._first(text)
        if first is not None and first <= begun:  # else a stop that has begun before this one may still become whole
            self._has_stopped, self._held = True, ""
            return text[:first]
        self._held = text[begun:]
        return text[:begun]

    def end(self) -> str:
        """The rest at the end of the stream, up to the first stop: what has only begun is none."""
        held, self._held = self._held, ""
        return held[: self._first(held)]

    def _first(self, text: str) -> int | None:
        """Where the first whole stop begins."""
        return min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=None)


def _beginning_at_the_end(stop: str, text: str) -> int:
    """The length of the longest end of ``text`` that is a beginning of ``stop``."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
