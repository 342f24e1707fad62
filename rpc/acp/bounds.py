"""What one agent can have the supervisor keep: ids, words, inputs and the text of a turn are cut, with a mark. Pure."""

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from rpc.acp.messages import text_of
from wire.run_text import excerpt

MAX_ID = 256
_ID_BEGINNING = 64
MAX_WORD = 256
"""Characters of a name, a kind, an option's value."""
MAX_SENTENCE = 4_096
"""Characters of a title, a path, one line of a plan."""
MAX_INPUT = 1_000_000
"""Characters of JSON that a call's input is kept and shown with."""
MAX_OUTPUT = 64 * 1024
"""Characters of a call's output so far."""
MAX_TURN_TEXT = 1024 * 1024
"""Characters of a message of a turn, and of all that were said before it in this turn.

However they are escaped, both fit into what is read from the end of a transcript (``gateway.sessions.history``).
"""
_MAX_PIECES = 1_024
"""Pieces that are kept by themselves: a string of one character takes up to 80 bytes."""
_MESSAGE_COST = 64
"""Bytes that a message takes beside its characters."""


def bounded_id(identity: str) -> str:
    """The id, or of a very long one its beginning and its SHA-256: two ids stay two."""
    if len(identity) <= MAX_ID:
        return identity
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{identity[:_ID_BEGINNING]}...{digest}"


def word_of(value: object) -> str | None:
    """The value if it is a text, cut to a word's length."""
    text = text_of(value)
    return None if text is None else text[:MAX_WORD]


def value_of(value: object) -> str | None:
    """The value if it is a text that can be given back to the agent: a long one is none."""
    text = text_of(value)
    return text if text is not None and len(text) <= MAX_WORD else None


def sentence_of(value: object) -> str | None:
    """The value if it is a text, of a long one its beginning and its end."""
    text = text_of(value)
    return None if text is None else excerpt(text, MAX_SENTENCE)


def bounded_json(value: Any) -> str:
    """A value as JSON, of more than ``MAX_INPUT`` characters the beginning and the end. Raises RecursionError."""
    return excerpt(msgspec.json.encode(value).decode(), MAX_INPUT)


def first_within(entries: Iterable[Any], most: int) -> list[Any]:
    """The first of these values, as many as are no more than ``most`` bytes of JSON together."""
    found = []
    for entry in entries:
        most -= len(msgspec.json.encode(entry))
        if most < 0:
            break
        found.append(entry)
    return found


class BoundedText:
    """A text that comes in pieces, of which ``most`` characters are kept: the first three quarters, and the end."""

    def __init__(self, most: int = MAX_TURN_TEXT) -> None:
        self._room = most * 3 // 4
        self._most_at_end = most - self._room
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self._left_out = 0
        self._pieces: list[str] = []
        self._pieces_length = 0

    def add(self, piece: str) -> None:
        """The next piece."""
        self._pieces.append(piece)
        self._pieces_length += len(piece)
        if len(self._pieces) >= _MAX_PIECES or self._pieces_length > self._most_at_end:
            self._join()

    def _join(self) -> None:
        piece, self._pieces, self._pieces_length = "".join(self._pieces), [], 0
        if self._room:
            head, piece = piece[: self._room], piece[self._room :]
            self._room -= len(head)
            self._head.append(head)
        if not piece:
            return
        self._tail.append(piece)
        self._tail_length += len(piece)
        while self._tail_length - len(self._tail[0]) >= self._most_at_end:
            self._drop(len(self._tail.popleft()))
        if self._tail_length > 2 * self._most_at_end:  # one giant piece
            self._tail[0] = self._tail[0][self._tail_length - self._most_at_end :]
            self._drop(self._tail_length - self._most_at_end)

    def _drop(self, characters: int) -> None:
        self._tail_length -= characters
        self._left_out += characters

    def __bool__(self) -> bool:
        """Whether there is any text."""
        return bool(self._head or self._pieces_length)

    def __str__(self) -> str:
        """What is kept; a line in brackets stands where some was left out."""
        self._join()
        head, tail = "".join(self._head), "".join(self._tail)
        surplus = max(0, self._tail_length - self._most_at_end)
        left_out = self._left_out + surplus
        return f"{head}\n[... {left_out} characters left out ...]\n{tail[surplus:]}" if left_out else head + tail


class TurnText:
    """The messages of a turn. The first of them are left out where all together are too long."""

    def __init__(self, most: int = MAX_TURN_TEXT) -> None:
        self._most = most
        self._earlier: deque[str] = deque()
        self._earlier_cost = 0
        self._left_out = 0
        self._last = BoundedText(most)

    def add(self, piece: str) -> None:
        """A piece of the present message."""
        self._last.add(piece)

    def begin_message(self) -> None:
        """What comes next is another message."""
        if not self._last:
            return
        self._earlier.append(str(self._last))
        self._earlier_cost += len(self._earlier[-1]) + _MESSAGE_COST
        self._last = BoundedText(self._most)
        while self._earlier_cost > self._most:
            self._earlier_cost -= len(self._earlier.popleft()) + _MESSAGE_COST
            self._left_out += 1

    @property
    def messages(self) -> list[str]:
        """All that are kept, in order; a line in brackets stands for those that are not."""
        mark = [f"[... {self._left_out} messages left out ...]"] if self._left_out else []
        return [*mark, *self._earlier, *([str(self._last)] if self._last else [])]
