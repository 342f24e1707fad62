"""From what a worker says in one turn to what is published of it: runs of text pieces, and single events. Pure."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal, TypeAlias

import msgspec

from gateway.events import worker_events as words
from gateway.events.worker_events import MalformedEvent, PublishedEvent
from wire.framing import DECODE_ERRORS
from wire.messages import Message


class TextPieces(msgspec.Struct, frozen=True):
    """Pieces of text as the worker sent them: valid JSON strings for ``EventBus.publish_text``."""

    type: Literal["text_chunk", "think_chunk"]
    pieces: list[msgspec.Raw]


TurnOutput: TypeAlias = TextPieces | PublishedEvent

_TEXTS: dict[str, Literal["text_chunk", "think_chunk"]] = {
    "assistant_message": "text_chunk",
    "thinking": "think_chunk",
}
_GATEWAY_EVENTS = frozenset({"run_start", "done", "state_changed", "ready", "start_failed", "exec_exit"})
"""What the gateway says in its own words, which are about runs and sessions, also between two turns."""
_OBSERVED = frozenset({"queue_update", "compaction", "done"})
"""What the gateway itself wants to know of."""
_MAX_NAME = 64
_name_of = attrgetter("event")


class Translator:
    """One for each turn. What the worker got wrong becomes a warning, once for each kind of event.

    Attributes:
        queued_steers: steers in the worker's queue, as last reported.
        consumed_steers: steers that left the queue, to the model or (at an abort) nowhere.
        is_compacting: whether a compaction is under way.
    """

    def __init__(self) -> None:
        self.queued_steers = 0
        self.consumed_steers = 0
        self.is_compacting = False
        self._is_done = False
        self._warned: set[str] = set()

    def translate(self, messages: list[Message]) -> list[TurnOutput]:
        """What to publish of a batch, in order."""
        steps: list[TurnOutput] = []
        for name, group in groupby(messages, _name_of):
            if name in _TEXTS:
                steps += self._text(name, [message.data for message in group])
            elif name is not None:
                for message in group:
                    steps += self._translate_event(name, message.data)
        return steps

    def _text(self, name: str, raws: list[msgspec.Raw]) -> list[TurnOutput]:
        pieces, odd = read_pieces(raws)
        warnings = self._warn(name, odd) if odd else []
        return [*([TextPieces(_TEXTS[name], pieces)] if pieces else []), *warnings]

    def _translate_event(self, name: str, data: msgspec.Raw) -> Iterable[TurnOutput]:
        try:
            if name in _OBSERVED:
                self._observe(name, data)
            reader = words.READERS.get(name)
            if reader is not None:
                return [reader(data)]
        except (*DECODE_ERRORS, MalformedEvent) as exc:
            return self._warn(name, str(exc))
        if name in _GATEWAY_EVENTS or name in _OBSERVED:
            return []
        return [words.unknown_event(name[:_MAX_NAME], data)]

    def _warn(self, name: str, why: str) -> list[TurnOutput]:
        if name in self._warned:
            return []
        self._warned.add(name)
        return [words.warning_event(f"the worker's event {name} was not understood: {why}")]

    # --- what the gateway itself wants to know ------------------------------------------------------------------------

    def _observe(self, name: str, data: msgspec.Raw) -> None:
        match name:
            case "queue_update":
                self._observe_queue(data)
            case "compaction":
                self.is_compacting = words.phase_of_compaction(data) == "start"
            case _:
                self._is_done = True

    def _observe_queue(self, data: msgspec.Raw) -> None:
        """What a worker throws away at the end of a run was not taken by the model."""
        if self._is_done:
            return
        before, self.queued_steers = self.queued_steers, words.steers_of(data)
        self.consumed_steers += max(0, before - self.queued_steers)


class _PartialText(msgspec.Struct, frozen=True, gc=False):
    """What of ``assistant_message`` and ``thinking`` is published."""

    partial: msgspec.Raw = msgspec.Raw(b'""')


_pieces = msgspec.json.Decoder(list[_PartialText])
_strings = msgspec.json.Decoder(list[str])


def read_pieces(raws: Sequence[msgspec.Raw]) -> tuple[list[msgspec.Raw], str]:
    """The pieces in order, each a valid JSON string; and why one was left out, "" when none was."""
    try:
        return _read(raws), ""
    except DECODE_ERRORS:  # one of them is odd, and only that one is left out
        return _read_each(raws)


def _read(raws: Sequence[msgspec.Raw]) -> list[msgspec.Raw]:
    pieces = [piece.partial for piece in _pieces.decode(b"[%b]" % b",".join(raws))]
    _strings.decode(b"[%b]" % b",".join(pieces))
    return pieces


def _read_each(raws: Sequence[msgspec.Raw]) -> tuple[list[msgspec.Raw], str]:
    pieces: list[msgspec.Raw] = []
    odd = ""
    for raw in raws:
        try:
            pieces += _read([raw])
        except DECODE_ERRORS as exc:
            odd = odd or str(exc)
    return pieces, odd
