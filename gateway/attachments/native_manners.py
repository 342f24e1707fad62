"""The native dialect towards a front end; see ``gateway.attachments.manners``. Pure."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from errors import PoolError
from gateway.attachments.manners import Kind, RunSeen, why_garbage, without_id
from rpc.raw import RawObject, text_of
from wire.framing import DECODE_ERRORS
from wire.messages import ErrorBody, Ready

__all__ = ["NativeManners"]

T = TypeVar("T")

_NATIVE_KINDS = {
    "prompt": Kind.PROMPT,
    "abort": Kind.ABORT,
    "new_session": Kind.MOVING,
    "switch_session": Kind.RESUMING,
    "set_model": Kind.SETTER,
    "set_thinking": Kind.SETTER,
    "shutdown": Kind.LEAVING,
}
_NO_ID = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode


class _Refused(msgspec.Struct):
    id: msgspec.Raw
    error: ErrorBody


class _File(msgspec.Struct):
    session_file: str = ""


class _Text(msgspec.Struct):
    text: str = ""


class NativeManners:
    """Implements ``Manners``. Methods that are not listed here are the worker's to know."""

    def name_of(self, command: RawObject) -> str | None:
        """See ``Manners``."""
        return text_of(command, "method")

    def kind_of(self, command: RawObject) -> Kind:
        """See ``Manners``."""
        method = self.name_of(command)
        if method is None or not _is_id(command.get("id")):
            return Kind.UNKNOWN
        return _NATIVE_KINDS.get(method, Kind.PLAIN)

    def file_of(self, command: RawObject) -> str | None:
        """See ``Manners``."""
        return _read(command, _File()).session_file or None

    def text_of(self, command: RawObject) -> str:
        """See ``Manners``."""
        return _read(command, _Text()).text

    def garbage(self, text: str) -> bytes | None:
        """See ``Manners``; a blank line is passed over."""
        return _refusal(_NO_ID, "parse_error", why_garbage(text)) if text.strip() else None

    def refusal(self, command: RawObject, error: PoolError) -> bytes:
        """See ``Manners``."""
        identity = command.get("id", _NO_ID)
        if not _is_id(identity):
            return _refusal(_NO_ID, "parse_error", "the id is neither a string nor an integer")
        if self.name_of(command) is None:
            return _refusal(identity, "unknown_method", "the request names no method")
        return _refusal(identity, error.code, error.message)

    def farewell(self, command: RawObject) -> bytes | None:
        """See ``Manners``."""
        return _encode({"id": command["id"], "result": {}}) if "id" in command else None

    def greeting(self, ready: Ready | None) -> Sequence[bytes]:
        """See ``Manners``."""
        return () if ready is None else (_encode({"event": "ready", "data": ready}),)

    def lost(self, error: PoolError) -> Sequence[bytes]:
        """See ``Manners``: who asked is answered with an error, who watched is told."""
        facts = {"severity": "error", "phase": "lifecycle", "message": error.message}
        return (
            _encode({"event": "error", "data": facts}),
            _encode({"event": "done", "data": {"stop_reason": "error"}}),
        )

    def run_after(self, seen: RunSeen, line: bytes) -> RunSeen:
        """See ``Manners``."""
        if line.startswith(b'{"event":"run_start"'):
            return RunSeen(is_open=True)
        return RunSeen() if line.startswith(b'{"event":"done"') else seen

    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:  # noqa: ARG002 - the request says it all
        """See ``Manners``."""
        return {str(self.name_of(command)): without_id(command)}


def _refusal(identity: msgspec.Raw, code: str, message: str) -> bytes:
    return _encode(_Refused(identity, ErrorBody(code, message)))


def _is_id(identity: msgspec.Raw | None) -> bool:
    if identity is None:
        return True
    try:
        known = msgspec.json.decode(identity)
    except DECODE_ERRORS:
        return False
    return known is None or (isinstance(known, str | int) and not isinstance(known, bool))


def _read(command: RawObject, empty: T) -> T:
    try:
        return msgspec.json.decode(command["params"], type=type(empty))
    except (KeyError, *DECODE_ERRORS):
        return empty
