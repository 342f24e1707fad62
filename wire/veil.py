"""Hiding known values in texts: what a variable of the environment holds has no place in a log or an error. Pure."""

import json
import re
from collections.abc import Iterable
from typing import Any, overload

__all__ = ["HIDDEN", "Veil"]

HIDDEN = "***"
_SHORTEST = 6
"""Shorter values of an environment are words such as ``1`` and ``true``: hiding those would hide the whole text."""


class Veil:
    """Puts ``***`` in the place of each value, and of each line of one that has several, as a key in PEM has.

    Each is found as it is and as JSON escapes it. Whoever cuts hides first, or asks here where: half a value is not
    known for one.

    Attributes:
        longest: bytes of the longest of them.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part for value in values for part in (value, *value.splitlines()) if len(part) >= _SHORTEST}
        found = {spelling for part in parts for spelling in _spellings(part)}
        longest_first = sorted(found, key=len, reverse=True)
        encoded = [value.encode("utf-8", "surrogateescape") for value in longest_first]
        self.longest = max(map(len, encoded), default=0)
        self._texts = re.compile("|".join(map(re.escape, longest_first))) if found else None
        self._bytes = re.compile(b"|".join(map(re.escape, encoded))) if found else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._texts is None else self._texts.sub(HIDDEN, text)

    def data(self, data: bytes) -> bytes:
        """The same for bytes, which need not be text."""
        return data if self._bytes is None else self._bytes.sub(HIDDEN.encode(), data)

    @overload
    def beginning(self, said: str, limit: int) -> str: ...

    @overload
    def beginning(self, said: bytes, limit: int) -> bytes: ...

    def beginning(self, said: str | bytes, limit: int) -> str | bytes:
        """The first ``limit`` characters or bytes without the values; nothing is left of one that goes on behind."""
        begin = said[: self.cut(said, limit)]
        return (self.text(begin) if isinstance(begin, str) else self.data(begin))[:limit]

    def cut(self, said: str | bytes | bytearray, at: int) -> int:
        """Where to cut so that no value is divided: ``at``, or the end of the value that lies across it."""
        values: re.Pattern[Any] | None = self._texts if isinstance(said, str) else self._bytes
        if values is not None:
            for found in values.finditer(said, 0, at + self.longest):
                if found.end() > at:
                    return found.end() if found.start() < at else at
        return at

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


def _spellings(value: str) -> Iterable[str]:
    """The value, and what stands for it in the text of a JSON document."""
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
