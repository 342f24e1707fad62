"""What a client keeps of a worker's output: readiness, background processes, open questions, invalid lines."""

from collections import deque
from collections.abc import Callable

import msgspec

from errors import ProtocolViolation
from rpc.dialect import Step
from wire.framing import DECODE_ERRORS
from wire.messages import PROTOCOL_VERSION, BackgroundProcesses, ExecExit, Message, Ready, StartFailed
from wire.redaction import SecretMask

USER_INPUT_EVENTS = frozenset({"permission_required", "permission_decided", "ui_request", "ui_resolved", "done"})
_DIALOG_METHODS = frozenset({"select", "confirm", "input", "editor"})
_MAX_OPEN = 256


class _ToolCallRef(msgspec.Struct):
    id: str = ""


class _UserInputRef(msgspec.Struct):
    """The members that name a question, in whichever of the events."""

    id: str = ""
    method: str = ""
    call_id: str = ""
    call: _ToolCallRef = msgspec.field(default_factory=_ToolCallRef)


class PendingUserInput:
    """Learns from ``USER_INPUT_EVENTS``; a question is open until it is decided, answered, or its run is done."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        """The questions that wait for a person, by their ids."""
        self._decoder = msgspec.json.Decoder(_UserInputRef)

    def observe(self, event: Message) -> None:
        """Take one of ``USER_INPUT_EVENTS``; one whose data names no question changes nothing."""
        if event.event == "done":
            self.open.clear()
            return
        question = self._decode(event.data)
        match event.event:
            case "permission_required":
                self._add(question.call.id or question.call_id)
            case "permission_decided":
                self.open.discard(question.call_id or question.call.id)
            case "ui_request" if question.method in _DIALOG_METHODS:
                self._add(question.id)
            case "ui_resolved":
                self.open.discard(question.id)

    def mark_answered(self, params: msgspec.Raw) -> None:
        """We have sent ``ui_respond`` with these parameters."""
        self.open.discard(self._decode(params).id)

    def _add(self, key: str) -> None:
        if key and len(self.open) < _MAX_OPEN:
            self.open.add(key)

    def _decode(self, data: msgspec.Raw) -> _UserInputRef:
        try:
            return self._decoder.decode(data)
        except DECODE_ERRORS:
            return _UserInputRef()


TRACKED_EVENTS = USER_INPUT_EVENTS | {"ready", "start_failed", "background", "exec_exit"}

_MAX_NAMES, _MAX_NAME_CHARS = 64, 256


class WorkerEventTracker:
    """Takes ``TRACKED_EVENTS``.

    Attributes:
        ready: the first ``ready`` of the worker; None before.
        start_failure: why it never will be, in words, where the dialect knows.
        background: which processes the worker runs in the background, as it last said; bounded.
        on_ready: called when it becomes ready, or never will.
        on_background: called with every change of ``background``.
        on_exec_exit: called with every end of a background process that is reported.
    """

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self.ready: Ready | None = None
        self.start_failure: str | None = None
        self.background = BackgroundProcesses()
        self.on_ready = on_ready
        self.on_background: Callable[[BackgroundProcesses], None] | None = None
        self.on_exec_exit: Callable[[ExecExit], None] | None = None
        self.user_input = PendingUserInput()

    def observe(self, event: Message) -> None:
        """Take one event. Raises ProtocolViolation for a ``ready`` of another protocol, MsgspecError for bad data."""
        match event.event:
            case "ready":
                self._set_ready(msgspec.json.decode(event.data, type=Ready))
            case "start_failed":
                self.start_failure = msgspec.json.decode(event.data, type=StartFailed).message
                self.on_ready()
            case "background":
                reported = msgspec.json.decode(event.data, type=BackgroundProcesses)
                names = [name[:_MAX_NAME_CHARS] for name in reported.names[:_MAX_NAMES]]
                self.background = BackgroundProcesses(max(0, reported.running), names)
                if self.on_background is not None:
                    self.on_background(self.background)
            case "exec_exit":
                if self.on_exec_exit is not None:
                    self.on_exec_exit(msgspec.json.decode(event.data, type=ExecExit))
            case _:
                self.user_input.observe(event)

    def _set_ready(self, ready: Ready) -> None:
        if ready.protocol != PROTOCOL_VERSION:
            raise ProtocolViolation(
                f"it speaks protocol {ready.protocol}, this supervisor {PROTOCOL_VERSION}; update the older of the two"
            )
        if self.ready is None:
            self.ready = ready
            self.on_ready()


_MAX_SAMPLES = 8
_SAMPLE_BYTES = 512


class InvalidLines:
    """Adds up what the dialect found in each block. ``limit`` bad lines in a row are borne, one more is not."""

    def __init__(self, limit: int, mask: SecretMask) -> None:
        self._limit = limit
        self._mask = mask
        self.current_run = 0
        """Bad lines in a row at the end of the last block."""
        self._samples: deque[bytes] = deque(maxlen=_MAX_SAMPLES)
        self.count = 0

    @property
    def samples(self) -> list[bytes]:
        """The last few of them, oldest first, each cut to 512 bytes."""
        return list(self._samples)

    def record(self, step: Step) -> None:
        """Take the outcome of one block. Raises ProtocolViolation when too many bad lines stand in a row."""
        if not step.invalid_lines:
            if step.messages:
                self.current_run = 0
            return
        self.count += len(step.invalid_lines)
        self._samples.extend(map(self._sample, step.invalid_lines[-_MAX_SAMPLES:]))
        if step.messages:
            longest = max(self.current_run + step.leading_run, step.longest_run, step.trailing_run)
            self.current_run = step.trailing_run
        else:
            self.current_run += len(step.invalid_lines)
            longest = self.current_run
        if longest > self._limit:
            raise ProtocolViolation(
                f"{longest} lines in a row were no message (limit {self._limit}), "
                f"the last one {self._samples[-1][:80]!r}"
            )

    def record_torn_line(self, line: bytes) -> None:
        """The stream has ended inside a line."""
        if line:
            self.count += 1
            self._samples.append(self._sample(line))

    def _sample(self, line: bytes) -> bytes:
        return self._mask.prefix(line, _SAMPLE_BYTES)
