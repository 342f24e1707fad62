"""The first pieces of a turn's text, held back while they may still turn out to say that there is nothing to say."""

import msgspec

from gateway.silence import HeldBack

__all__ = ["LeadingText"]

_decode = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class LeadingText:
    """Once a piece has shown that the text is an answer, everything passes untouched."""

    def __init__(self) -> None:
        self._held = HeldBack()
        self._is_open = False

    def take(self, pieces: list[msgspec.Raw]) -> list[msgspec.Raw]:
        """The pieces that may be shown now; each is a JSON string."""
        if self._is_open:
            return pieces
        for index, piece in enumerate(pieces):
            shown = self._held.push(_decode(piece))
            if shown:
                self._is_open = True
                return [msgspec.Raw(_encode(shown)), *pieces[index + 1 :]]
        return []

    def end(self) -> list[msgspec.Raw]:
        """The text has ended, at a tool call or with the turn: what was held back and is an answer after all."""
        self._is_open = False
        shown = self._held.end()
        return [msgspec.Raw(_encode(shown))] if shown else []
