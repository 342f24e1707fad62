"""The tool ``edit``: exact replacements in a text file, all of them or none."""

from typing import Annotated, NamedTuple

import msgspec
import trio

from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from agent.tools.change_preview import describe_edit
from agent.tools.edits import Edit, EditError, TextChange, apply_changes, plan_changes, unified_diff
from agent.tools.file_state import HASHED_BYTES, FileVersion
from agent.tools.files import changed_error, encode_text, read_content, replace_content
from agent.tools.paths import ConfinedPath, resolve_path_in_thread, tool_errors
from wire.call_page import CallPart


class EditInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to replace in which file."""

    path: Annotated[str, msgspec.Meta(description="The file; relative paths start at the working directory")]
    edits: Annotated[
        list[Edit],
        msgspec.Meta(
            min_length=1,
            max_length=100,
            description="Replacements; each is looked for in the file as it is now, and they may not overlap",
        ),
    ]


class EditTool(Tool):
    """Replace exact pieces of a text file."""

    name = "edit"
    description = (
        "Replace exact pieces of a text file: all edits are made, or none. Each old_text must occur exactly once "
        "(or set replace_all). Line ends and the mode of the file are kept."
    )
    effects = "write"
    input_type = EditInput

    async def run(self, arguments: EditInput, context: ToolContext) -> ToolOutput:
        """Edit; refuse a file that someone else has changed since the agent read it."""
        for index, edit in enumerate(arguments.edits):
            encode_text(edit.new_text, f"edits[{index}].new_text")
        place = await resolve_path_in_thread(context, arguments.path, reading=False)
        async with context.files.write_lock(place.path):
            known = context.files.last_seen(place.path)
            edited = await trio.to_thread.run_sync(_edit, place, arguments.edits, known)
            context.files.record(place.path, edited.version)
        return ToolOutput(_summary(edited, place), {"path": place.path, "diff": edited.diff})

    async def describe(self, arguments: EditInput, context: ToolContext) -> list[CallPart]:
        """What the call would change."""
        return await trio.to_thread.run_sync(
            describe_edit, arguments.path, arguments.edits, context, abandon_on_cancel=True
        )


class _FileEdit(NamedTuple):
    version: FileVersion
    lines: list[int]
    """Where the changes begin, in the old text."""
    diff: str


def _edit(place: ConfinedPath, edits: list[Edit], known: FileVersion | None) -> _FileEdit:
    with tool_errors("edit", place):
        content = read_content(place)
        if known is not None and not known.same_content(content.version):
            raise changed_error(place)
        text = content.data.decode(errors="surrogateescape")  # what is no UTF-8 goes back as it came
        changes = _plan_or_fail(text, edits, place)
        stamp = replace_content(place, _encoded(text, changes), expected=content.status).version
    diff = unified_diff(text, changes).encode(errors="surrogateescape").decode(errors="replace")
    return _FileEdit(stamp, _lines(text, changes), diff)


def _plan_or_fail(text: str, edits: list[Edit], place: ConfinedPath) -> list[TextChange]:
    try:
        return plan_changes(text, edits)
    except EditError as exc:
        raise ToolError(
            f"{place.requested}: {exc}; nothing was changed",
            "logical",
            recommendations=["Read the file again and copy old_text from it exactly, white space included."],
        ) from exc


def _encoded(text: str, changes: list[TextChange]) -> bytes:
    size = len(text) + sum(len(change.new) - (change.end - change.start) for change in changes)
    if size > HASHED_BYTES:
        raise ToolError(
            f"the edited file would have {size} characters; at most {HASHED_BYTES} can be edited", "logical"
        )
    return apply_changes(text, changes).encode(errors="surrogateescape")


def _lines(text: str, changes: list[TextChange]) -> list[int]:
    lines: list[int] = []
    line, position = 1, 0
    for change in changes:
        line += text.count("\n", position, change.start)
        position = change.start
        lines.append(line)
    return lines


def _summary(edited: _FileEdit, place: ConfinedPath) -> str:
    lines = edited.lines
    shown = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
    where = f"at line {shown}" if len(lines) == 1 else f"in {len(lines)} places, at lines {shown}"
    return f"edited {place.requested} {where}"
