"""What a front end's requests mean in each dialect, and the lines that the gateway answers with itself. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import msgspec

from errors import PoolError, UsageError
from rpc.passthrough import RawObject, read_object, text_member
from wire.framing import DECODE_ERRORS
from wire.messages import ErrorBody, Ready

_encode = msgspec.json.Encoder().encode


class RequestKind(Enum):
    """What a request means for the session."""

    PROMPT = auto()
    ABORT = auto()
    PLAIN = auto()
    """It changes nothing outside its answer."""
    SETTER = auto()
    """It changes how the worker works from now on."""
    MOVING = auto()
    """It may put another conversation in the place of this one."""
    RESUMING = auto()
    """So does this, and that one lies in a file it names."""
    LEAVING = auto()
    """The program is to end: the attachment does."""
    UNKNOWN = auto()


class ObservedRun(NamedTuple):
    """The state of the program's runs, as read from its lines.

    ``settles``: the program says when it will not go on by itself, which is later than the end of a run.
    """

    is_open: bool = False
    settles: bool = False


class FrontEndProtocol(ABC):
    """One dialect's. ``name`` is what the dialect calls a request."""

    @abstractmethod
    def name_of(self, command: RawObject) -> str | None:
        """What is asked for."""

    @abstractmethod
    def kind_of(self, command: RawObject) -> RequestKind:
        """What that means."""

    @abstractmethod
    def file_of(self, command: RawObject) -> str | None:
        """The transcript that a request of kind RESUMING names."""

    @abstractmethod
    def text_of(self, command: RawObject) -> str:
        """What a prompt says."""

    @abstractmethod
    def parse_error(self, text: str) -> bytes | None:
        """The answer to a line that is no JSON object; None where the program says nothing."""

    @abstractmethod
    def error_reply(self, command: RawObject, error: PoolError) -> bytes:
        """The answer to a request that failed."""

    def shutdown_reply(self, command: RawObject) -> bytes | None:  # noqa: ARG002 - it has no such request
        """The answer to a request of kind LEAVING."""
        return None

    def startup_lines(self, ready: Ready | None) -> Sequence[bytes]:  # noqa: ARG002 - it says nothing
        """What the program says first."""
        return ()

    @abstractmethod
    def worker_lost(self, error: PoolError) -> Sequence[bytes]:
        """What ends a run whose worker is gone, for those who watched it begin."""

    @abstractmethod
    def next_run_state(self, seen: ObservedRun, line: bytes) -> ObservedRun:
        """Whether a run is on after this line of the program."""

    @abstractmethod
    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:
        """The requests that bring another worker to where a setter has brought this one, each under its topic."""


def describe_parse_error(text: str) -> str:
    """What is wrong with a line that is no request."""
    try:
        read_object(text.encode())
    except UsageError as exc:
        return exc.message
    return "the line holds characters that are no text"


def without_id(command: RawObject) -> RawObject:
    """The request without what its answer was to be known by."""
    return {name: value for name, value in command.items() if name != "id"}


def raw_object(**members: Any) -> RawObject:
    """A request of our own making."""
    return {name: msgspec.Raw(_encode(value)) for name, value in members.items()}


T = TypeVar("T")

_NATIVE_KINDS = {
    "prompt": RequestKind.PROMPT,
    "abort": RequestKind.ABORT,
    "new_session": RequestKind.MOVING,
    "switch_session": RequestKind.RESUMING,
    "set_model": RequestKind.SETTER,
    "set_thinking": RequestKind.SETTER,
    "shutdown": RequestKind.LEAVING,
}
_NO_ID = msgspec.Raw(b"null")


class _NativeErrorReply(msgspec.Struct):
    id: msgspec.Raw
    error: ErrorBody


class _SessionFileParam(msgspec.Struct):
    session_file: str = ""


class _TextParam(msgspec.Struct):
    text: str = ""


class _NativeFrontEnd(FrontEndProtocol):
    """Methods that are not listed here are the worker's to know."""

    def name_of(self, command: RawObject) -> str | None:
        return text_member(command, "method")

    def kind_of(self, command: RawObject) -> RequestKind:
        """UNKNOWN without a method or with an invalid id; methods that are not listed are PLAIN."""
        method = self.name_of(command)
        if method is None or not _is_id(command.get("id")):
            return RequestKind.UNKNOWN
        return _NATIVE_KINDS.get(method, RequestKind.PLAIN)

    def file_of(self, command: RawObject) -> str | None:
        return _decode_params(command, _SessionFileParam()).session_file or None

    def text_of(self, command: RawObject) -> str:
        return _decode_params(command, _TextParam()).text

    def parse_error(self, text: str) -> bytes | None:
        """An error with id null; a blank line is passed over."""
        return _native_error(_NO_ID, "parse_error", describe_parse_error(text)) if text.strip() else None

    def error_reply(self, command: RawObject, error: PoolError) -> bytes:
        identity = command.get("id", _NO_ID)
        if not _is_id(identity):
            return _native_error(_NO_ID, "parse_error", "the id is neither a string nor an integer")
        if self.name_of(command) is None:
            return _native_error(identity, "unknown_method", "the request names no method")
        return _native_error(identity, error.code, error.message)

    def shutdown_reply(self, command: RawObject) -> bytes | None:
        return _encode({"id": command["id"], "result": {}}) if "id" in command else None

    def startup_lines(self, ready: Ready | None) -> Sequence[bytes]:
        return () if ready is None else (_encode({"event": "ready", "data": ready}),)

    def worker_lost(self, error: PoolError) -> Sequence[bytes]:
        """An ``error`` event for observers, and ``done``."""
        facts = {"severity": "error", "phase": "lifecycle", "message": error.message}
        return (
            _encode({"event": "error", "data": facts}),
            _encode({"event": "done", "data": {"stop_reason": "error"}}),
        )

    def next_run_state(self, seen: ObservedRun, line: bytes) -> ObservedRun:
        """A run is open from ``run_start`` to ``done``."""
        if line.startswith(b'{"event":"run_start"'):
            return ObservedRun(is_open=True)
        return ObservedRun() if line.startswith(b'{"event":"done"') else seen

    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:  # noqa: ARG002 - the request says it all
        return {str(self.name_of(command)): without_id(command)}


def _native_error(identity: msgspec.Raw, code: str, message: str) -> bytes:
    return _encode(_NativeErrorReply(identity, ErrorBody(code, message)))


def _is_id(identity: msgspec.Raw | None) -> bool:
    if identity is None:
        return True
    try:
        known = msgspec.json.decode(identity)
    except DECODE_ERRORS:
        return False
    return known is None or (isinstance(known, str | int) and not isinstance(known, bool))


def _decode_params(command: RawObject, empty: T) -> T:
    try:
        return msgspec.json.decode(command["params"], type=type(empty))
    except (KeyError, *DECODE_ERRORS):
        return empty


_PI_KINDS = {
    "prompt": RequestKind.PROMPT,
    "abort": RequestKind.ABORT,
    "new_session": RequestKind.MOVING,
    "fork": RequestKind.MOVING,
    "clone": RequestKind.MOVING,
    "switch_session": RequestKind.RESUMING,
    **dict.fromkeys(("set_model", "cycle_model", "set_thinking_level", "cycle_thinking_level"), RequestKind.SETTER),
    **dict.fromkeys(
        ("set_steering_mode", "set_follow_up_mode", "set_auto_compaction", "set_auto_retry"), RequestKind.SETTER
    ),
}
_PARSE = msgspec.Raw(b'"parse"')


class _Model(msgspec.Struct):
    id: str
    provider: str


class _CycleResult(msgspec.Struct, rename="camel"):
    """What ``cycle_model`` and ``cycle_thinking_level`` answer; null where there is nothing to choose from."""

    model: _Model | None = None
    thinking_level: str | None = None
    level: str | None = None


class _PiFrontEnd(FrontEndProtocol):
    """As pi 0.73 and 0.87 behave."""

    def name_of(self, command: RawObject) -> str | None:
        return text_member(command, "type")

    def kind_of(self, command: RawObject) -> RequestKind:
        """Commands that are not listed are PLAIN: pi answers them."""
        name = self.name_of(command)
        return RequestKind.UNKNOWN if name is None else _PI_KINDS.get(name, RequestKind.PLAIN)

    def file_of(self, command: RawObject) -> str | None:
        return text_member(command, "sessionPath")

    def text_of(self, command: RawObject) -> str:
        return text_member(command, "message") or ""

    def parse_error(self, text: str) -> bytes | None:
        """As pi answers: any JSON value but ``null``, on which pi exits, is an unknown command."""
        try:
            is_value = msgspec.json.decode(text) is not None
        except DECODE_ERRORS:
            is_value = False
        if is_value:
            return _pi_error(None, None, "Unknown command: undefined")
        why = describe_parse_error(text) if text.strip() else "Unexpected end of JSON input"
        return _pi_error(None, _PARSE, f"Failed to parse command: {why}")

    def error_reply(self, command: RawObject, error: PoolError) -> bytes:
        kind = command.get("type")
        if self.kind_of(command) is RequestKind.UNKNOWN:
            shown = "undefined" if kind is None else self.name_of(command) or bytes(kind).decode(errors="replace")
            return _pi_error(command.get("id"), kind, f"Unknown command: {shown}")
        return _pi_error(command.get("id"), kind, error.message)

    def worker_lost(self, error: PoolError) -> Sequence[bytes]:
        """Clients of old releases wait for the end of the run, those of newer ones for it to settle."""
        message = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": error.message}
        return (
            _encode({"type": "message_end", "message": message}),
            _encode({"type": "agent_end", "messages": [message], "willRetry": False}),
            _encode({"type": "agent_settled"}),
        )

    def next_run_state(self, seen: ObservedRun, line: bytes) -> ObservedRun:
        """Releases that settle may go on after the end of a run, with a retry or queued texts."""
        if line.startswith(b'{"type":"agent_start"'):
            return seen._replace(is_open=True)
        if line.startswith(b'{"type":"agent_settled"'):
            return ObservedRun(is_open=False, settles=True)
        if line.startswith(b'{"type":"agent_end"'):
            return seen._replace(is_open=seen.is_open and _continues(seen, line))
        return seen

    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:
        """The request itself; for a ``cycle_`` command, the request that sets its result by name."""
        name = str(self.name_of(command))
        if not name.startswith("cycle_"):
            return {name: without_id(command)}
        try:
            cycled = msgspec.json.decode(result, type=_CycleResult | None) or _CycleResult()
        except DECODE_ERRORS:
            return {}
        found: dict[str, RawObject] = {}
        if cycled.model is not None:
            found["set_model"] = raw_object(type="set_model", provider=cycled.model.provider, modelId=cycled.model.id)
        if (level := cycled.thinking_level or cycled.level) is not None:
            found["set_thinking_level"] = raw_object(type="set_thinking_level", level=level)
        return found


def _continues(seen: ObservedRun, end: bytes) -> bool:
    return seen.settles or end.rstrip().endswith(b'"willRetry":true}')


def _pi_error(identity: msgspec.Raw | None, command: msgspec.Raw | None, error: str) -> bytes:
    members: dict[str, Any] = {} if identity is None else {"id": identity}
    members["type"] = "response"
    if command is not None:
        members["command"] = command
    return _encode({**members, "success": False, "error": error})


FRONT_ENDS: dict[str, FrontEndProtocol] = {"native": _NativeFrontEnd(), "pi": _PiFrontEnd()}
"""By the names of ``profiles.dialects``."""
