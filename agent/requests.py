"""Decodes requests and checks their parameters; a bad one is refused with a code."""

from typing import Annotated, Any, Literal

import msgspec

from agent.options import Thinking
from agent.processes.exec_session import ProcessInput
from wire.messages import EMPTY, AbortParams, CompactParams, PromptParams, TextParams


class RequestRejected(Exception):
    """The request is answered with an error: a stable code, a sentence, further facts."""

    def __init__(self, code: str, message: str, request_id: str | int | None = None, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.request_id = request_id
        self.details = details


class WorkerRequestLine(msgspec.Struct, frozen=True):
    """One request; without an id it is answered only if it is refused."""

    method: str
    id: str | int | None = None
    params: msgspec.Raw = EMPTY


class _UncheckedRequest(msgspec.Struct, frozen=True):
    id: Any = None
    method: Any = None


class _EmptyParams(msgspec.Struct, frozen=True):
    """No parameters; unknown ones are passed over."""


class NewSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``new_session``: the id of the conversation it comes from, for the record."""

    parent_session: str | None = None


class SwitchSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``switch_session``: the path of a transcript."""

    session_file: str


class SetModelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_model``: for the next model call on."""

    model: str
    provider: str | None = None


class SetThinkingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_thinking``: for the next model call on."""

    level: Thinking


class DecideParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``decide``: about a tool call that waits for a person; ``by`` names who decides.

    ``seen``: see ``CallPage``. ``option_id``: one of the ``options`` of the question.
    """

    call_id: str
    decision: Literal["allow", "deny"]
    note: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    by: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
    seen: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    option_id: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class DescribeCallParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``describe_call``: what a call that waits for a person would do, from ``offset`` characters on."""

    call_id: str
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


METHODS: dict[str, type[msgspec.Struct]] = {
    "prompt": PromptParams,
    "steer": TextParams,
    "follow_up": TextParams,
    "abort": AbortParams,
    "new_session": NewSessionParams,
    "switch_session": SwitchSessionParams,
    "get_state": _EmptyParams,
    "get_messages": _EmptyParams,
    "get_commands": _EmptyParams,
    "set_model": SetModelParams,
    "set_thinking": SetThinkingParams,
    "compact": CompactParams,
    "decide": DecideParams,
    "describe_call": DescribeCallParams,
    "process": ProcessInput,
    "ping": _EmptyParams,
    "shutdown": _EmptyParams,
}
"""Every method and the shape of its parameters."""

_decoder = msgspec.json.Decoder(WorkerRequestLine)
_unchecked_decoder = msgspec.json.Decoder(_UncheckedRequest)
_params_decoders = {name: msgspec.json.Decoder(shape) for name, shape in METHODS.items()}


def decode_request(line: bytes) -> WorkerRequestLine:
    """Read one line. Raises RequestRejected: ``parse_error``, or ``unknown_method`` for an object without one."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _rejection_of(line) from None


def _rejection_of(line: bytes) -> RequestRejected:
    try:
        loose = _unchecked_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        return RequestRejected("parse_error", f"the line is no JSON object: {exc}")
    if loose.id is not None and (isinstance(loose.id, bool) or not isinstance(loose.id, str | int)):
        return RequestRejected("parse_error", "the id is neither a string nor an integer")
    if not isinstance(loose.method, str):
        return RequestRejected("unknown_method", "the request names no method", loose.id)
    return RequestRejected("parse_error", "the request cannot be read", loose.id)


def decode_params(request: WorkerRequestLine) -> Any:
    """The parameters in their shape. Raises RequestRejected: ``unknown_method`` or ``invalid_params``."""
    decoder = _params_decoders.get(request.method)
    if decoder is None:
        raise RequestRejected("unknown_method", f"there is no method {request.method[:100]!r}", methods=list(METHODS))
    params = b"{}" if bytes(request.params) == b"null" else request.params
    try:
        return decoder.decode(params)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise RequestRejected("invalid_params", f"{request.method}: {exc}") from exc
