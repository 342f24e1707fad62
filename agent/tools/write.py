"""The tool ``write``: a text file, whole or not at all."""

from typing import Annotated

import msgspec
import trio

from agent.tools.base import Tool, ToolContext, ToolOutput
from agent.tools.change_preview import describe_write
from agent.tools.file_state import FileVersion
from agent.tools.files import WriteResult, changed_error, current_version, encode_text, replace_content
from agent.tools.paths import ConfinedPath, resolve_path_in_thread, tool_errors
from wire.call_page import CallPart


class WriteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``content`` replaces the whole file."""

    path: Annotated[str, msgspec.Meta(description="The file; relative paths start at the working directory")]
    content: Annotated[str, msgspec.Meta(description="All of what the file shall hold")]


class WriteTool(Tool):
    """Write a text file; directories are made."""

    name = "write"
    description = "Write a text file, replacing all it held. Missing directories are made. For a small change use edit."
    effects = "write"
    input_type = WriteInput

    async def run(self, arguments: WriteInput, context: ToolContext) -> ToolOutput:
        """Write; refuse a file that someone else has changed since the agent read it."""
        data = encode_text(arguments.content, "content")
        place = await resolve_path_in_thread(context, arguments.path, reading=False)
        async with context.files.write_lock(place.path):
            written = await trio.to_thread.run_sync(_write, place, data, context.files.last_seen(place.path))
            context.files.record(place.path, written.version)
        verb = "created" if written.is_new else "replaced"
        return ToolOutput(
            f"wrote {len(data)} bytes to {place.requested} ({verb})", {"path": place.path, "bytes": len(data)}
        )

    async def describe(self, arguments: WriteInput, context: ToolContext) -> list[CallPart]:
        """What the call would change."""
        return await trio.to_thread.run_sync(
            describe_write, arguments.path, arguments.content, context, abandon_on_cancel=True
        )


def _write(place: ConfinedPath, data: bytes, known: FileVersion | None) -> WriteResult:
    with tool_errors("write", place):
        if known is not None and (now := current_version(place)) is not None and not known.same_content(now):
            raise changed_error(place)
        return replace_content(place, data)
