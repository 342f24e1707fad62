"""From what a worker says in one turn to what is published of it: runs of text pieces, and single events. Pure."""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec

from gateway.events import worker_events as words
from gateway.events.snapshots import read_pieces
from gateway.events.worker_events import Malformed, Single
from wire.framing import DECODE_ERRORS
from wire.messages import Message


class TextPieces(msgspec.Struct, frozen=True):
    """Text, piece by piece as the worker said it: valid JSON strings for ``EventBus.publish_text``."""

    type: Literal["text_chunk", "think_chunk"]
    pieces: list[msgspec.Raw]


Step: TypeAlias = TextPieces | Single

_TEXTS: dict[str, Literal["text_chunk", "think_chunk"]] = {
    "assistant_message": "text_chunk",
    "thinking": "think_chunk",
}
_OURS = frozenset({"run_start", "done", "state_changed", "ready", "start_failed", "exec_exit"})
"""What the gateway says in its own words, which are about runs and sessions, also between two turns."""
_MAX_NAME = 64
_name_of = attrgetter("event")


class Translator:
    """One for each turn. What the worker got wrong becomes a warning, once for each kind of event.

    Attributes:
        steers_left: steers that the worker has taken, and the model not yet, as it told last.
        steers_seen: those that went from the worker's queue, to the model or (at an abort) nowhere.
        is_compacting: whether a compaction is under way.
        compaction_changed: whether that has changed in the latest batch.
    """

    def __init__(self) -> None:
        self.steers_left = 0
        self.steers_seen = 0
        self.is_compacting = False
        self.compaction_changed = False
        self._is_done = False
        self._warned: set[str] = set()
        self._facts: dict[str, Callable[[msgspec.Raw], None]] = {
            "queue_update": self._queue,
            "compaction": self._compaction,
            "done": self._done,
        }

    def take(self, messages: list[Message]) -> list[Step]:
        """What to publish of a batch, in order."""
        was_compacting = self.is_compacting
        steps: list[Step] = []
        for name, group in groupby(messages, _name_of):
            if name in _TEXTS:
                steps += self._text(name, [message.data for message in group])
            elif name is not None:
                for message in group:
                    steps += self._single(name, message.data)
        self.compaction_changed = self.is_compacting != was_compacting
        return steps

    def _text(self, name: str, raws: list[msgspec.Raw]) -> list[Step]:
        pieces, odd = read_pieces(raws)
        warnings = self._warn(name, odd) if odd else []
        return [*([TextPieces(_TEXTS[name], pieces)] if pieces else []), *warnings]

    def _single(self, name: str, data: msgspec.Raw) -> Iterable[Step]:
        try:
            if name in self._facts:
                self._facts[name](data)
            reader = words.READERS.get(name)
            if reader is not None:
                return [reader(data)]
        except (*DECODE_ERRORS, Malformed) as exc:
            return self._warn(name, str(exc))
        if name in _OURS or name in self._facts:
            return []
        return [words.unknown(name[:_MAX_NAME], data)]

    def _warn(self, name: str, why: str) -> list[Step]:
        if name in self._warned:
            return []
        self._warned.add(name)
        return [words.warning(f"the worker's event {name} was not understood: {why}")]

    # --- what the gateway itself wants to know ------------------------------------------------------------------------

    def _queue(self, data: msgspec.Raw) -> None:
        """What a worker throws away at the end of a run was not taken by the model."""
        if self._is_done:
            return
        before, self.steers_left = self.steers_left, words.steers_of(data)
        self.steers_seen += max(0, before - self.steers_left)

    def _done(self, _data: msgspec.Raw) -> None:
        self._is_done = True

    def _compaction(self, data: msgspec.Raw) -> None:
        self.is_compacting = words.phase_of_compaction(data) == "start"
