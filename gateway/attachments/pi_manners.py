"""The pi dialect towards a front end; see ``gateway.attachments.manners``. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec

from errors import PoolError
from gateway.attachments.manners import Kind, RunSeen, raw_object, why_garbage, without_id
from rpc.raw import RawObject, text_of
from wire.framing import DECODE_ERRORS
from wire.messages import Ready

__all__ = ["PiManners"]

_PI_KINDS = {
    "prompt": Kind.PROMPT,
    "abort": Kind.ABORT,
    "new_session": Kind.MOVING,
    "fork": Kind.MOVING,
    "clone": Kind.MOVING,
    "switch_session": Kind.RESUMING,
    **dict.fromkeys(("set_model", "cycle_model", "set_thinking_level", "cycle_thinking_level"), Kind.SETTER),
    **dict.fromkeys(("set_steering_mode", "set_follow_up_mode", "set_auto_compaction", "set_auto_retry"), Kind.SETTER),
}
_PARSE = msgspec.Raw(b'"parse"')
_encode = msgspec.json.Encoder().encode


class _Model(msgspec.Struct):
    id: str
    provider: str


class _Cycled(msgspec.Struct, rename="camel"):
    """What ``cycle_model`` and ``cycle_thinking_level`` answer; null where there is nothing to choose from."""

    model: _Model | None = None
    thinking_level: str | None = None
    level: str | None = None


class PiManners:
    """Implements ``Manners``, as pi 0.73 and 0.87 behave."""

    def name_of(self, command: RawObject) -> str | None:
        """See ``Manners``."""
        return text_of(command, "type")

    def kind_of(self, command: RawObject) -> Kind:
        """See ``Manners``; commands with other names are passed on to pi."""
        name = self.name_of(command)
        return Kind.UNKNOWN if name is None else _PI_KINDS.get(name, Kind.PLAIN)

    def file_of(self, command: RawObject) -> str | None:
        """See ``Manners``."""
        return text_of(command, "sessionPath")

    def text_of(self, command: RawObject) -> str:
        """See ``Manners``."""
        return text_of(command, "message") or ""

    def garbage(self, text: str) -> bytes | None:
        """See ``Manners``; pi takes anything that JavaScript can read for a command, and dies of ``null``."""
        try:
            is_value = msgspec.json.decode(text) is not None
        except DECODE_ERRORS:
            is_value = False
        if is_value:
            return _answer(None, None, "Unknown command: undefined")
        why = why_garbage(text) if text.strip() else "Unexpected end of JSON input"
        return _answer(None, _PARSE, f"Failed to parse command: {why}")

    def refusal(self, command: RawObject, error: PoolError) -> bytes:
        """See ``Manners``."""
        told = command.get("type")
        if self.kind_of(command) is Kind.UNKNOWN:
            shown = "undefined" if told is None else self.name_of(command) or bytes(told).decode(errors="replace")
            return _answer(command.get("id"), told, f"Unknown command: {shown}")
        return _answer(command.get("id"), told, error.message)

    def farewell(self, command: RawObject) -> bytes | None:  # noqa: ARG002 - there is no such command
        """See ``Manners``."""
        return None

    def greeting(self, ready: Ready | None) -> Sequence[bytes]:  # noqa: ARG002 - pi says nothing
        """See ``Manners``."""
        return ()

    def lost(self, error: PoolError) -> Sequence[bytes]:
        """See ``Manners``; clients of old releases wait for the run's end, those of newer ones for it to settle."""
        message = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": error.message}
        return (
            _encode({"type": "message_end", "message": message}),
            _encode({"type": "agent_end", "messages": [message], "willRetry": False}),
            _encode({"type": "agent_settled"}),
        )

    def run_after(self, seen: RunSeen, line: bytes) -> RunSeen:
        """See ``Manners``; releases that settle may go on after the end of a run, with a retry or queued texts."""
        if line.startswith(b'{"type":"agent_start"'):
            return seen._replace(is_open=True)
        if line.startswith(b'{"type":"agent_settled"'):
            return RunSeen(is_open=False, settles=True)
        if line.startswith(b'{"type":"agent_end"'):
            return seen._replace(is_open=seen.is_open and _goes_on(seen, line))
        return seen

    def settings_of(self, command: RawObject, result: msgspec.Raw) -> dict[str, RawObject]:
        """See ``Manners``; what a cycle has come to is set by name."""
        name = str(self.name_of(command))
        if not name.startswith("cycle_"):
            return {name: without_id(command)}
        try:
            cycled = msgspec.json.decode(result, type=_Cycled | None) or _Cycled()
        except DECODE_ERRORS:
            return {}
        found: dict[str, RawObject] = {}
        if cycled.model is not None:
            found["set_model"] = raw_object(type="set_model", provider=cycled.model.provider, modelId=cycled.model.id)
        if (level := cycled.thinking_level or cycled.level) is not None:
            found["set_thinking_level"] = raw_object(type="set_thinking_level", level=level)
        return found


def _goes_on(seen: RunSeen, end: bytes) -> bool:
    return seen.settles or end.rstrip().endswith(b'"willRetry":true}')


def _answer(identity: msgspec.Raw | None, command: msgspec.Raw | None, error: str) -> bytes:
    members: dict[str, Any] = {} if identity is None else {"id": identity}
    members["type"] = "response"
    if command is not None:
        members["command"] = command
    return _encode({**members, "success": False, "error": error})
