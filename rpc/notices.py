"""What the client itself learns from a worker's events: ready, processes in the background, questions to a person."""

from collections.abc import Callable

import msgspec

from errors import ProtocolViolation
from rpc.questions import QUESTION_EVENTS, OpenQuestions
from wire.messages import PROTOCOL_VERSION, Background, ExecExit, Message, Ready, StartFailed

__all__ = ["NOTICED_EVENTS", "Notices"]

NOTICED_EVENTS = QUESTION_EVENTS | {"ready", "start_failed", "background", "exec_exit"}

_MAX_NAMES, _MAX_NAME_CHARS = 64, 256


class Notices:
    """Takes ``NOTICED_EVENTS``.

    Attributes:
        ready: the first ``ready`` of the worker; None before.
        start_failure: why it never will be, in words, where the dialect can tell.
        background: which processes the worker runs in the background, as it last said; bounded.
        on_ready: called when it becomes ready, or never will.
        on_background: called with every change of ``background``.
        on_exec_exit: called with every end of a background process that is told.
    """

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self.ready: Ready | None = None
        self.start_failure: str | None = None
        self.background = Background()
        self.on_ready = on_ready
        self.on_background: Callable[[Background], None] | None = None
        self.on_exec_exit: Callable[[ExecExit], None] | None = None
        self.questions = OpenQuestions()

    def note(self, event: Message) -> None:
        """Take one event. Raises ProtocolViolation for a ``ready`` of another protocol, MsgspecError for bad data."""
        match event.event:
            case "ready":
                self._become_ready(msgspec.json.decode(event.data, type=Ready))
            case "start_failed":
                self.start_failure = msgspec.json.decode(event.data, type=StartFailed).message
                self.on_ready()
            case "background":
                told = msgspec.json.decode(event.data, type=Background)
                names = [name[:_MAX_NAME_CHARS] for name in told.names[:_MAX_NAMES]]
                self.background = Background(max(0, told.running), names)
                if self.on_background is not None:
                    self.on_background(self.background)
            case "exec_exit":
                if self.on_exec_exit is not None:
                    self.on_exec_exit(msgspec.json.decode(event.data, type=ExecExit))
            case _:
                self.questions.note(event)

    def _become_ready(self, ready: Ready) -> None:
        if ready.protocol != PROTOCOL_VERSION:
            raise ProtocolViolation(
                f"it speaks protocol {ready.protocol}, this supervisor {PROTOCOL_VERSION}; update the older of the two"
            )
        if self.ready is None:
            self.ready = ready
            self.on_ready()
