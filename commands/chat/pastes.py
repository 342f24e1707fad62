"""Long pasted texts: the input shows a word for each, the message has the text. Pure."""

import re

MAX_SHOWN_CHARS = 2_000
MAX_SHOWN_LINES = 12
MAX_KEPT = 20


class Pastes:
    """The latest long pastes, by the words that stand for them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def shorten(self, text: str) -> str:
        """What to put into the input for a pasted text: itself, or a word for one that is long."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if len(text) <= MAX_SHOWN_CHARS and lines <= MAX_SHOWN_LINES:
            return text
        self._count += 1
        word = f"[paste {self._count}: {lines:,} lines, {len(text):,} characters]"
        self._texts[word] = text
        while len(self._texts) > MAX_KEPT:
            del self._texts[next(iter(self._texts))]
        return word

    def expand(self, text: str) -> str:
        """The message: each word replaced by its text, in which no word is looked for."""
        if not self._texts:
            return text
        words = re.compile("|".join(map(re.escape, self._texts)))
        return words.sub(lambda found: self._texts[found[0]], text)
