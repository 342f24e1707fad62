"""Long pasted texts: the input shows a word for each, the message has the text. Pure."""

import re

MAX_SHOWN_CHARS = 2_000
MAX_SHOWN_LINES = 12
MAX_KEPT_CHARS = 16 * 1024 * 1024
"""Of all texts together; one that is longer is kept until the next comes."""
_WORD = re.compile(r"\[paste \d+: [\d,]+ lines, [\d,]+ characters\]")


class Pastes:
    """The latest long pastes, by the words that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = self._chars = 0

    def shorten(self, text: str) -> str:
        """What to put into the input for a pasted text: itself, or a word for one that is long."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= MAX_SHOWN_CHARS and lines <= MAX_SHOWN_LINES:
            return text
        self._count += 1
        word = f"[paste {self._count}: {lines:,} lines, {len(text):,} characters]"
        self._texts[word] = text
        self._chars += len(text)
        while self._chars > MAX_KEPT_CHARS and len(self._texts) > 1:
            self._chars -= len(self._texts.pop(next(iter(self._texts))))
        return word

    def words(self, text: str) -> list[str]:
        """The words for pastes that stand in an input."""
        return _WORD.findall(text)

    def missing(self, text: str) -> str | None:
        """A word in it whose text is not kept: of an earlier chat, or too many pastes ago."""
        return next((word for word in self.words(text) if word not in self._texts), None)

    def expand(self, text: str) -> str:
        """The message: each word replaced by its text, in which no word is looked for."""
        return _WORD.sub(lambda found: self._texts.get(found[0], found[0]), text)
