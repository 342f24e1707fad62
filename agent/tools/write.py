"""The tool ``write``: a text file, whole or not at all."""

from typing import Annotated, ClassVar

import msgspec
import trio

from agent.tools.base import Effects, ToolContext, ToolOutput
from agent.tools.change_preview import parts_of_write
from agent.tools.file_state import Stamp
from agent.tools.files import Written, changed_meanwhile, encoded, replace_content, stamp_now
from agent.tools.paths import Place, failures_of, located
from wire.call_parts import CallPart


class WriteInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``content`` replaces the whole file."""

    path: Annotated[str, msgspec.Meta(description="The file; relative paths start at the working directory")]
    content: Annotated[str, msgspec.Meta(description="All of what the file shall hold")]


class WriteTool:
    """Write a text file; directories are made."""

    name = "write"
    description = "Write a text file, replacing all it held. Missing directories are made. For a small change use edit."
    effects: ClassVar[Effects] = "write"
    timeout: ClassVar[float | None] = 60.0
    input_type = WriteInput

    async def run(self, arguments: WriteInput, context: ToolContext) -> ToolOutput:
        """See the interface. A file that the agent has read, and someone else has changed since, is not overwritten."""
        data = encoded(arguments.content, "content")
        place = await located(context, arguments.path, reading=False)
        async with context.files.writing(place.path):
            written = await trio.to_thread.run_sync(_write, place, data, context.files.known(place.path))
            context.files.note(place.path, written.stamp)
        verb = "created" if written.is_new else "replaced"
        return ToolOutput(
            f"wrote {len(data)} bytes to {place.asked} ({verb})", {"path": place.path, "bytes": len(data)}
        )

    async def describe(self, arguments: WriteInput, context: ToolContext) -> list[CallPart]:
        """What the call would change."""
        return await trio.to_thread.run_sync(
            parts_of_write, arguments.path, arguments.content, context, abandon_on_cancel=True
        )


def _write(place: Place, data: bytes, known: Stamp | None) -> Written:
    with failures_of("write", place):
        now = None if known is None else stamp_now(place)
        if known is not None and now is not None and not known.same_content(now):
            raise changed_meanwhile(place)
        return replace_content(place, data)
