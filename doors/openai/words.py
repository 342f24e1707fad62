"""What an agent says in its turn, read from pushed events: its text, with a gap where it did something. Pure."""

import msgspec

__all__ = ["Words"]

_TEXTS = frozenset({"text_chunk", "text_snapshot"})
_GAPS = frozenset({"tool:start", "compaction:end"})
"""What was said before it is a paragraph of its own."""
_GAP = "\n\n"


class _Text(msgspec.Struct):
    delta: str = ""
    text: str = ""


class _Event(msgspec.Struct):
    type: str
    data: msgspec.Raw


class _Push(msgspec.Struct):
    events: list[_Event]


_read_push = msgspec.json.Decoder(_Push)
_read_text = msgspec.json.Decoder(_Text)


class Words:
    """One for each run."""

    def __init__(self) -> None:
        self.has_spoken = False
        self._gap = ""

    def take(self, data: bytes) -> str:
        """What is said in the events of a push; mostly nothing, or a lot at once."""
        said: list[str] = []
        for event in _read_push.decode(data).events:
            if event.type in _TEXTS:
                said += self._say(_read_text.decode(event.data))
            elif event.type in _GAPS and self.has_spoken:
                self._gap = _GAP
        return "".join(said)

    def _say(self, piece: _Text) -> tuple[str, ...]:
        text = piece.delta or piece.text
        if not text:
            return ()
        gap, self._gap, self.has_spoken = self._gap, "", True
        return gap, text
