"""A word for each request that nothing else can have said: how words are found again that strayed. Pure."""

import hashlib
import re
from typing import NamedTuple

__all__ = ["Found", "Nonces"]

_NONCE = re.compile(r"\bn(\d{7,10})x([0-9a-f]{8})\b")


class Found(NamedTuple):
    """``numbers`` of requests in the order in which their words stand there; ``strange``: words that none was given."""

    numbers: tuple[int, ...]
    strange: tuple[str, ...]


class Nonces:
    """The words of one run. They follow from its seed, so that none has to be remembered."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def word(self, number: int) -> str:
        """The word of a request."""
        return f"n{number:07}x{self._digest(number)}"

    def find(self, text: str) -> Found:
        """Every such word in a text."""
        found = [(int(match[1]), match[0]) for match in _NONCE.finditer(text)]
        numbers = tuple(number for number, word in found if word == self.word(number))
        return Found(numbers, tuple(word for number, word in found if word != self.word(number)))

    def _digest(self, number: int) -> str:
        return hashlib.blake2b(f"{self._seed}:{number}".encode(), digest_size=4).hexdigest()
