"""The full description of a tool call for the person who decides about it, made by the tool itself."""

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
    """A call as parts. ``seen``: a token on its last page only; None where ``shown`` is the whole call."""

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
    """Describe what a call would do, before it runs. Reads files; changes nothing."""
    if isinstance(tool, _SelfDescribing):
        return Description(await tool.describe(arguments, context))
    given = msgspec.to_builtins(arguments)
    return Description([CallPart(name, _text_of(value)) for name, value in given.items()])


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
