"""Hiding known values in texts: what a variable of the environment holds has no place in a log or an error. Pure."""

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["HIDDEN", "Veil"]

HIDDEN = "***"
_SHORTEST = 6
"""Shorter values of an environment are words such as ``1`` and ``true``: hiding those would hide the whole text."""


class Veil:
    """Puts ``***`` in the place of each value, and of each line of one that has several, as a key in PEM has."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {part for value in values for part in (value, *value.splitlines()) if len(part) >= _SHORTEST}
        longest_first = sorted(found, key=len, reverse=True)
        encoded = [value.encode("utf-8", "surrogateescape") for value in longest_first]
        self._texts = re.compile("|".join(map(re.escape, longest_first))) if found else None
        self._bytes = re.compile(b"|".join(map(re.escape, encoded))) if found else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._texts is None else self._texts.sub(HIDDEN, text)

    def data(self, data: bytes) -> bytes:
        """The same for bytes, which need not be text."""
        return data if self._bytes is None else self._bytes.sub(HIDDEN.encode(), data)

    def document(self, value: Any) -> Any:
        """The same for decoded JSON, all its names and texts."""
        if self._texts is None:
            return value
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.document(item) for item in value]
            case dict():
                return {self.document(name): self.document(item) for name, item in value.items()}
            case _:
                return value
