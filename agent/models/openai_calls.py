"""Putting tool calls together from the pieces in which a chat-completions server sends them."""

import msgspec

from agent.models.base import CallPiece, ModelError

__all__ = ["CallAssembler", "CallDelta", "FunctionDelta", "parse_arguments"]

MAX_CALLS = 128
_MAX_ID_CHARS = 200
_MAX_NAME_CHARS = 200
"""A name is told with every event of its call; no tool has one as long as this."""


class FunctionDelta(msgspec.Struct, frozen=True):
    """What is new of a call's function; some servers send the arguments as an object at once."""

    name: str | None = None
    arguments: str | dict[str, object] | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """One piece of one call. ``index`` tells calls apart, where the server sends one; the id often comes only once."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class _Call(msgspec.Struct, eq=False):
    id: str = ""
    name: str = ""
    arguments: list[str] = []
    whole: dict[str, object] | None = None


def parse_arguments(text: str) -> object:
    """The input that a call's arguments stand for: no arguments are none, text that is no JSON stays that text."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


class CallAssembler:
    """The calls of one answer, in the order in which they began. Raises ModelError when there are too many."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self.chars = 0

    def take(self, delta: CallDelta) -> None:
        """Add one piece to the call it belongs to."""
        function = delta.function or FunctionDelta()
        call = self._call_of(delta, begins=bool(function.name))
        call.id = call.id or (delta.id or "")[:_MAX_ID_CHARS]
        call.name = call.name or (function.name or "")[:_MAX_NAME_CHARS]
        match function.arguments:
            case str(text):
                call.arguments.append(text)
                self.chars += len(text)
            case dict(whole):
                call.whole = whole
                self.chars += len(msgspec.json.encode(whole))
            case None:
                pass

    def _call_of(self, delta: CallDelta, *, begins: bool) -> _Call:
        known = self._known(delta)
        # Servers that give all calls one index tell them apart by an id of their own, sent together with the name.
        other = known is not None and delta.id and known.id and delta.id != known.id and begins
        if known is not None and not other:
            return known
        if len(self._calls) == MAX_CALLS:
            raise ModelError(f"the model made more than {MAX_CALLS} tool calls at once")
        call = _Call()
        self._calls.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        return call

    def _known(self, delta: CallDelta) -> _Call | None:
        if delta.index is not None:
            return self._by_index.get(delta.index)
        if delta.id:
            return next((call for call in self._calls if call.id == delta.id), None)
        begins_another = delta.function is not None and delta.function.name
        return self._calls[-1] if self._calls and not begins_another else None

    def pieces(self, *, cut: bool) -> list[CallPiece]:
        """All calls, complete.

        ``cut``: the answer ended at its length, so a last call without arguments has lost them: it stays invalid.
        """
        pieces: list[CallPiece] = []
        for call in self._calls:
            text = "".join(call.arguments)
            lost = cut and call is self._calls[-1] and call.whole is None and not text.strip()
            given = text if lost else parse_arguments(text)
            pieces.append(CallPiece(call.name, given if call.whole is None else call.whole))
        return pieces
