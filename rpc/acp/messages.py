"""Lines of the Agent Client Protocol: a permissive envelope, the strict form of text pieces, and lenient readers.

A member of a wrong type counts as absent: optional members are decoded as whatever they are, and narrowed here.
"""

from typing import Any, Literal

import msgspec

from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY
from wire.run_text import excerpt

PROTOCOL_VERSION = 1

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
AUTH_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002

_MAX_REQUEST_ID = 1_024
UNUSABLE_ID = f"id: expected a whole number or a text of at most {_MAX_REQUEST_ID:,} characters"
_MAX_REASON = 8_000
"""Characters of an error's message, and of its details."""


class AcpLine(msgspec.Struct, frozen=True, gc=False):
    """Any line of an agent: a request or notification (``method`` set), or an answer.

    ``gc=False`` is safe: nothing that JSON decodes to can point back to its line.
    """

    id: Any = msgspec.UNSET
    method: Any = None
    params: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    error: msgspec.Raw = EMPTY

    @property
    def is_request(self) -> bool:
        """Whether it wants an answer."""
        return isinstance(self.method, str) and is_usable_id(self.id)

    @property
    def has_unusable_id(self) -> bool:
        """Whether it wants an answer that cannot repeat its id."""
        return isinstance(self.method, str) and self.id is not msgspec.UNSET and not is_usable_id(self.id)

    @property
    def is_answer(self) -> bool:
        """Whether it answers something, be it without an id or, as JavaScript writes nothing at all, a result."""
        if isinstance(self.method, str):
            return False
        known = self.id is not msgspec.UNSET and self.id is not None and is_usable_id(self.id)
        return known or self.result is not EMPTY or self.error is not EMPTY


def is_usable_id(identity: object) -> bool:
    """Whether an id is one: a number, a text of no more than 1,024 characters, or null."""
    if isinstance(identity, str):
        return len(identity) <= _MAX_REQUEST_ID
    return identity is None or (isinstance(identity, int) and not isinstance(identity, bool))


class _ChunkText(msgspec.Struct, frozen=True, gc=False):
    type: Literal["text"]
    text: str


class _MessageChunk(msgspec.Struct, frozen=True, gc=False):
    sessionUpdate: Literal["agent_message_chunk"]  # noqa: N815 - the protocol's spelling
    content: _ChunkText


class _ThoughtChunk(msgspec.Struct, frozen=True, gc=False):
    sessionUpdate: Literal["agent_thought_chunk"]  # noqa: N815 - the same
    content: _ChunkText


class _MessageChunkParams(msgspec.Struct, frozen=True, gc=False):
    sessionId: str  # noqa: N815 - the same
    update: _MessageChunk


class _ThoughtChunkParams(msgspec.Struct, frozen=True, gc=False):
    sessionId: str  # noqa: N815 - the same
    update: _ThoughtChunk


class MessageChunkLine(msgspec.Struct, frozen=True, gc=False):
    """A notification with a piece of the answer's text; everything else is refused. ``gc=False``: only texts."""

    method: Literal["session/update"]
    params: _MessageChunkParams
    id: msgspec.UnsetType = msgspec.UNSET


class ThoughtChunkLine(msgspec.Struct, frozen=True, gc=False):
    """The same for a piece of the reasoning."""

    method: Literal["session/update"]
    params: _ThoughtChunkParams
    id: msgspec.UnsetType = msgspec.UNSET


class AcpError(msgspec.Struct, frozen=True):
    """Why the agent refused: its code, its words, and ``data.details`` or what else ``data`` says in text."""

    code: int | None = None
    message: str = ""
    details: str = ""

    @property
    def text(self) -> str:
        """All of it in one line."""
        words = self.message or "the agent gave no reason"
        known = "" if self.code is None else f" ({self.code})"
        return f"{words}{known}" + (f": {self.details}" if self.details and self.details != words else "")


class AcpAnswer(msgspec.Struct, frozen=True):
    """An answer of the agent: ``result`` is an object, empty where the agent gave none; or an error."""

    result: dict[str, Any]
    error: AcpError | None = None


# --- narrowing --------------------------------------------------------------------------------------------------------


def decode_any(raw: msgspec.Raw) -> Any:
    """The value of undecoded JSON; None where it cannot be decoded."""
    try:
        return msgspec.json.decode(raw)
    except DECODE_ERRORS:
        return None


def text_of(value: object) -> str | None:
    """The value if it is a text."""
    return value if isinstance(value, str) else None


def number_of(value: object) -> int | None:
    """The value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def object_of(value: object) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[dict[str, Any]]:
    """The objects in the value, if it is a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def read_answer(line: AcpLine) -> AcpAnswer:
    """What an answer says; a member of a wrong type counts as absent."""
    if line.error is not EMPTY and (error := decode_any(line.error)) is not None:
        return AcpAnswer({}, _read_error(object_of(error)))
    return AcpAnswer(object_of(decode_any(line.result)))


def _read_error(error: dict[str, Any]) -> AcpError:
    data = error.get("data")
    details = text_of(data) or text_of(object_of(data).get("details")) or text_of(object_of(data).get("message")) or ""
    message = text_of(error.get("message")) or ""
    return AcpError(number_of(error.get("code")), excerpt(message, _MAX_REASON), excerpt(details, _MAX_REASON))
