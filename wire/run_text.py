"""The text of a run, assembled from its events: a blank line before what follows a tool call or a compaction. Pure."""

from collections.abc import Iterable

import msgspec

PARAGRAPH_EVENTS = frozenset({"tool:start", "compaction:end"})
"""Text after one of these begins a new paragraph."""
_PARAGRAPH_BREAK = "\n\n"


class _TextData(msgspec.Struct, gc=False):
    """The data of a text event: a chunk has ``delta``; a snapshot, which stands for many chunks, ``text``."""

    delta: str = ""
    text: str = ""


_read_texts = msgspec.json.Decoder(list[_TextData])


def joined_text(data: Iterable[msgspec.Raw]) -> str:
    """The text of the data of some text events. Raises DECODE_ERRORS for data of another shape."""
    pieces = _read_texts.decode(b"[%b]" % b",".join(data))
    return "".join([piece.delta or piece.text for piece in pieces])


class TextAssembler:
    """One for each run: counts its text, and breaks it into paragraphs."""

    def __init__(self) -> None:
        self.length = 0
        """Characters so far."""
        self._has_gap = False

    def break_paragraph(self) -> None:
        """The next text begins a new paragraph, unless it is the first."""
        self._has_gap = self.length > 0

    def add(self, text: str) -> str:
        """The text with the break before it."""
        if not text:
            return ""
        piece = f"{_PARAGRAPH_BREAK}{text}" if self._has_gap else text
        self._has_gap = False
        self.length += len(piece)
        return piece
