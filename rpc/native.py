"""The native dialect: what the bundled agent speaks, one JSON object a line, as ``wire.messages`` defines it.

A worker is ready when it says so, or has answered the question for its state that it is asked first.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from errors import UsageError
from rpc.dialect import EMPTY_STEP, Step
from rpc.passthrough import RawLine, RawObject, pair_lines, text_member, with_id, with_original_id
from rpc.settings import RpcSettings
from wire.framing import DECODE_ERRORS, DecodedBlock, decode_block, decode_each_line
from wire.messages import EMPTY, BackgroundProcesses, ExecExit, Message, Ready

_INSPECTED_EVENTS = frozenset({None, "run_start", "done", "ready", "background", "exec_exit"})
_EVENT_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "ready": msgspec.json.Decoder(Ready),
    "background": msgspec.json.Decoder(BackgroundProcesses),
    "exec_exit": msgspec.json.Decoder(ExecExit),
}
"""Events that the client itself relies on: one whose data has another shape is no message."""
_READY_CHECK_ID = "ready?"
"""The id of the first question; the client's own are numbers."""
_READY_CHECK = b'{"id":"%b","method":"get_state","params":{}}\n' % _READY_CHECK_ID.encode()
_NO_OWN_ID = msgspec.Raw(b"null")


class NativeDialect:
    """Implements ``rpc.dialect.Dialect``; passes requests, events and answers through and watches the turn."""

    name = "native"
    retire_reason = None
    has_lost_conversation = False
    conversation_facts = None

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Message)
        self._encode = msgspec.json.Encoder().encode
        self._prompts: set[str] = set()
        self._running = False
        self._raw_listening = False
        self._is_ready = False
        self._forwarded: dict[str | int | None, msgspec.Raw | None] = {}
        """The ids that front ends gave to what was forwarded and is not answered yet."""

    @property
    def is_running(self) -> bool:
        """Between ``run_start`` and ``done`` or the prompt's answer."""
        return self._running

    @property
    def is_streaming(self) -> bool:
        """From a prompt to its answer: another one is refused, or joins the run."""
        return self._running or bool(self._prompts)

    def listen_raw(self, *, on: bool) -> None:
        """Return the worker's own lines in ``Step.raw`` from now on, or no longer."""
        self._raw_listening = on

    def forward(self, request_id: str, command: RawObject, now: float) -> Step:  # noqa: ARG002 - as above
        """A front end's request under another id; the worker judges its method."""
        method = text_member(command, "method")
        if method is None:
            raise UsageError("the request names no method")
        if method == "prompt":
            self._prompts.add(request_id)
        self._forwarded[request_id] = command.get("id")
        return Step([], [with_id(command, request_id)], [])

    def open(self, now: float) -> Step:  # noqa: ARG002 - the contract's; this dialect has no clock
        """Ask for the state: the answer stands for the ``ready`` of a worker that does not say it."""
        return Step([], [_READY_CHECK], [])

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
        inspected = [each for each in decoded.messages if each.event in _INSPECTED_EVENTS or each.id is not None]
        if not all(map(_is_valid, inspected)):
            decoded = decode_each_line(block, self._decoder, _is_valid)
            inspected = decoded.messages
        raw = tuple(self._raw_lines(block, decoded)) if self._raw_listening or self._forwarded else ()
        messages = decoded.messages
        for message in inspected:
            if message.event is not None:
                self._track_event(message.event)
            elif message.id in self._prompts:
                self._track_answer(message)
            elif message.id == _READY_CHECK_ID:
                messages = self._hide_check(messages, message)
        return Step(messages, [], *decoded[1:], raw)

    def forget(self, request_id: str) -> None:
        """A late answer passes through under its own id; the client drops and counts it."""
        self._prompts.discard(request_id)
        self._forwarded.pop(request_id, None)

    def next_deadline(self) -> float | None:
        """None: this dialect has no deadlines."""
        return None

    def expire(self, now: float) -> Step:  # noqa: ARG002 - as above
        """Nothing: this dialect has no deadlines."""
        return EMPTY_STEP

    def _raw_lines(self, block: bytes, decoded: DecodedBlock[Message]) -> Iterator[RawLine]:
        for line, message in pair_lines(block, decoded, self._decoder):
            if message.event is not None:
                if self._raw_listening and _is_valid(message):
                    yield RawLine(line, None)
            elif message.id in self._forwarded:
                own = self._forwarded.pop(message.id)
                if own is not None or message.error is not None:  # the agent answers without an id only to refuse
                    yield RawLine(with_original_id(line, _NO_OWN_ID if own is None else own), str(message.id))

    def _track_event(self, event: str) -> None:
        if event == "run_start":
            self._running = True
        elif event == "done":
            self._running = False
        elif event == "ready":
            self._is_ready = True

    def _track_answer(self, prompt: Message) -> None:
        self._prompts.discard(str(prompt.id))
        if prompt.error is None or prompt.error.code != "busy":  # refused because another run goes on
            self._running = False

    def _hide_check(self, messages: list[Message], answer: Message) -> list[Message]:
        """The same without the answer to the first question, which stands for a ``ready`` that was not said."""
        at = messages.index(answer)
        shown: list[Message] = []
        if answer.error is None and not self._is_ready:
            shown.append(Message(event="ready", data=msgspec.Raw(self._encode(Ready()))))
            self._is_ready = True
        return [*messages[:at], *shown, *messages[at + 1 :]]


def make(_settings: RpcSettings, **_of_others: object) -> NativeDialect:
    """The dialect of one worker; see ``rpc.dialect.make_dialect``."""
    return NativeDialect()


def _is_valid(message: Message) -> bool:
    if message.event is None:
        # an absent member is the default object itself, a ``null`` in the text is another
        return message.error is not None or (message.id is not None and message.result is not EMPTY)
    if message.id is not None:
        return False
    decoder = _EVENT_DECODERS.get(message.event)
    if decoder is None:
        return True
    try:
        decoder.decode(message.data)
    except DECODE_ERRORS:
        return False
    return True
