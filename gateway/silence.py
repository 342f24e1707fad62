"""``NO_REPLY``: how an agent says that it has nothing to say, and how a stream is kept from showing it."""

__all__ = ["NO_REPLY", "HeldBack", "is_silent"]

NO_REPLY = "NO_REPLY"
_MOST_SPACE = 256


def is_silent(text: str) -> bool:
    """Whether the text is the token and nothing else but white space."""
    return text.strip() == NO_REPLY


class HeldBack:
    """The beginning of a streamed text, for as long as the text may still turn out to be ``NO_REPLY``.

    What it holds is bounded: of white space that could be part of a silent answer, 256 characters a side are kept.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_open = False

    def push(self, piece: str) -> str:
        """Take the next piece; returns what may be shown now, perhaps nothing."""
        if self._is_open:
            return piece
        text = self._held + piece
        if _may_be_silent(text):
            self._held = _bounded(text)
            return ""
        self._held, self._is_open = "", True
        return text

    def end(self) -> str:
        """The text has ended: what was held back and is no token after all. The next piece begins a new text."""
        text, self._held, self._is_open = self._held, "", False
        return "" if is_silent(text) or not text.strip() else text


def _may_be_silent(text: str) -> bool:
    begun = text.lstrip()
    return NO_REPLY.startswith(begun) or begun.rstrip() == NO_REPLY


def _bounded(text: str) -> str:
    token = text.strip()
    start = text.find(token) if token else len(text)
    return text[:start][-_MOST_SPACE:] + token + text[start + len(token) :][:_MOST_SPACE]
