"""The native dialect: what the bundled agent speaks, one JSON object a line, in the words of ``wire.messages``."""

from typing import Any

import msgspec

from rpc.dialect import NOTHING, Step
from wire.framing import DECODE_ERRORS, decode_block, decode_each_line
from wire.messages import EMPTY, Background, ExecExit, Message, Ready

__all__ = ["NativeDialect"]

_NOTICED = frozenset({None, "run_start", "done", "ready", "background", "exec_exit"})
_CHECKED: dict[str, msgspec.json.Decoder[Any]] = {
    "ready": msgspec.json.Decoder(Ready),
    "background": msgspec.json.Decoder(Background),
    "exec_exit": msgspec.json.Decoder(ExecExit),
}
"""Events that the client itself relies on: one whose data has another shape is no message."""
_NO_ID = {None}


class NativeDialect:
    """Implements ``rpc.dialect.Dialect``; passes requests, events and answers through and watches the turn."""

    name = "native"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Message)
        self._encode = msgspec.json.Encoder().encode
        self._prompts: set[str] = set()
        self._running = False

    @property
    def is_running(self) -> bool:
        """Between ``run_start`` and ``done`` or the prompt's answer."""
        return self._running

    def open(self, now: float) -> Step:  # noqa: ARG002 - the contract's; this dialect has no clock
        """Nothing to ask: the worker says ``ready`` by itself."""
        return NOTHING

    def request(self, request_id: str, method: str, params: msgspec.Raw, now: float) -> Step:  # noqa: ARG002 - as above
        """One line; methods are the worker's to know, an unknown one is answered with an error."""
        if method == "prompt":
            self._prompts.add(request_id)
        name, identity = self._encode(method), self._encode(request_id)
        line = b"".join((b'{"id":', identity, b',"method":', name, b',"params":', params, b"}\n"))
        return Step([], [line], [])

    def receive(self, block: bytes, now: float) -> Step:  # noqa: ARG002 - as above
        """Events and answers in order; an object that is neither, or an event with an id, is contamination."""
        decoded = decode_block(block, self._decoder)
        messages = decoded.messages
        plain = _NOTICED.isdisjoint({message.event for message in messages})
        if not plain or {message.id for message in messages} != _NO_ID:
            if not all(map(_is_known, messages)):
                decoded = decode_each_line(block, self._decoder, _is_known)
                messages = decoded.messages
            self._watch(messages)
        return Step(
            messages,
            [],
            decoded.contaminated,
            decoded.contaminated_run,
            decoded.clean_start,
            decoded.leading_run,
            decoded.longest_run,
        )

    def forget(self, request_id: str) -> None:
        """A late answer passes through under its own id; the client drops and counts it."""
        self._prompts.discard(request_id)

    def next_deadline(self) -> float | None:
        """Nothing of this dialect waits for a time."""
        return None

    def expire(self, now: float) -> Step:  # noqa: ARG002 - as above
        """Nothing of this dialect waits for a time."""
        return NOTHING

    def _watch(self, messages: list[Message]) -> None:
        for message in messages:
            if message.event is None:
                self._watch_answer(message)
            elif message.event == "run_start":
                self._running = True
            elif message.event == "done":
                self._running = False

    def _watch_answer(self, message: Message) -> None:
        if message.id not in self._prompts:
            return
        self._prompts.discard(str(message.id))
        if message.error is None or message.error.code != "busy":  # refused because another run goes on
            self._running = False


def _is_known(message: Message) -> bool:
    if message.event is None:
        # an absent member is the default object itself, a ``null`` in the text is another
        return message.error is not None or (message.id is not None and message.result is not EMPTY)
    if message.id is not None:
        return False
    decoder = _CHECKED.get(message.event)
    if decoder is None:
        return True
    try:
        decoder.decode(message.data)
    except DECODE_ERRORS:
        return False
    return True
