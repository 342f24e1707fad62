"""What a tool call would do, told in full to whoever is to allow it: by the tool that would do it."""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from agent.tools.base import Tool, ToolContext
from wire.call_parts import SHOWN_CHARS, SHOWN_LINES, CallPage, CallPart, page_of

__all__ = ["Description", "describe"]

_SEEN_CHARS = 8


@runtime_checkable
class _SelfDescribing(Protocol):
    async def describe(self, arguments: Any, context: ToolContext) -> list[CallPart]: ...


class Description:
    """All of a call. ``seen``: what only its last page tells, where not all of it was shown unasked."""

    def __init__(self, parts: Sequence[CallPart]) -> None:
        self._parts = parts
        self.shown = page_of(parts, chars=SHOWN_CHARS, lines=SHOWN_LINES)
        self.seen: str | None = None
        if self.shown.hidden:
            digest = hashlib.sha256(msgspec.json.encode(parts))
            self.seen = digest.hexdigest()[:_SEEN_CHARS]

    def page(self, offset: int) -> CallPage:
        """The page that begins at ``offset``."""
        page = page_of(self._parts, offset)
        return page if page.hidden else msgspec.structs.replace(page, seen=self.seen)


async def describe(tool: Tool, arguments: Any, context: ToolContext) -> Description:
    """What this call would do, as far as can be said before it does it. Looks at files; changes nothing."""
    if isinstance(tool, _SelfDescribing):
        return Description(await tool.describe(arguments, context))
    given = msgspec.to_builtins(arguments)
    return Description([CallPart(name, _text_of(value)) for name, value in given.items()])


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
