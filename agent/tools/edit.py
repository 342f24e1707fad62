"""The tool ``edit``: exact replacements in a text file, all of them or none."""

from typing import Annotated, ClassVar, NamedTuple

import msgspec
import trio

from agent.tools.base import Effects, ToolContext, ToolError, ToolOutput
from agent.tools.change_preview import parts_of_edit
from agent.tools.edits import Change, Edit, EditProblem, apply_changes, plan_changes, unified_diff
from agent.tools.file_state import HASHED_BYTES, Stamp
from agent.tools.files import changed_meanwhile, encoded, read_content, replace_content
from agent.tools.paths import Place, failures_of, located
from wire.call_parts import CallPart

_MAX_EDITS = 100


class EditInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to replace in which file."""

    path: Annotated[str, msgspec.Meta(description="The file; relative paths start at the working directory")]
    edits: Annotated[
        list[Edit],
        msgspec.Meta(
            min_length=1,
            max_length=_MAX_EDITS,
            description="Replacements; each is looked for in the file as it is now, and they may not overlap",
        ),
    ]


class EditTool:
    """Replace exact pieces of a text file."""

    name = "edit"
    description = (
        "Replace exact pieces of a text file: all edits are made, or none. Each old_text must occur exactly once "
        "(or set replace_all). Line ends and the mode of the file are kept."
    )
    effects: ClassVar[Effects] = "write"
    timeout: ClassVar[float | None] = 60.0
    input_type = EditInput

    async def run(self, arguments: EditInput, context: ToolContext) -> ToolOutput:
        """See the interface. A file that someone else has changed since the agent read it is not touched."""
        for index, edit in enumerate(arguments.edits):
            encoded(edit.new_text, f"edits[{index}].new_text")
        place = await located(context, arguments.path, reading=False)
        async with context.files.writing(place.path):
            known = context.files.known(place.path)
            edited = await trio.to_thread.run_sync(_edit, place, arguments.edits, known)
            context.files.note(place.path, edited.stamp)
        return ToolOutput(_summary(edited, place), {"path": place.path, "diff": edited.diff})

    async def describe(self, arguments: EditInput, context: ToolContext) -> list[CallPart]:
        """What the call would change."""
        return await trio.to_thread.run_sync(
            parts_of_edit, arguments.path, arguments.edits, context, abandon_on_cancel=True
        )


class _Edited(NamedTuple):
    stamp: Stamp
    lines: list[int]
    """Where the changes begin, in the old text."""
    diff: str


def _edit(place: Place, edits: list[Edit], known: Stamp | None) -> _Edited:
    with failures_of("edit", place):
        content = read_content(place)
        if known is not None and not known.same_content(content.stamp):
            raise changed_meanwhile(place)
        text = content.data.decode(errors="surrogateescape")  # what is no UTF-8 goes back as it came
        changes = _planned(text, edits, place)
        stamp = replace_content(place, _encoded(text, changes), expected=content.status).stamp
    diff = unified_diff(text, changes).encode(errors="surrogateescape").decode(errors="replace")
    return _Edited(stamp, _lines(text, changes), diff)


def _planned(text: str, edits: list[Edit], place: Place) -> list[Change]:
    try:
        return plan_changes(text, edits)
    except EditProblem as exc:
        raise ToolError(
            f"{place.asked}: {exc}; nothing was changed",
            "logical",
            recommendations=["Read the file again and copy old_text from it exactly, white space included."],
        ) from exc


def _encoded(text: str, changes: list[Change]) -> bytes:
    size = len(text) + sum(len(change.new) - (change.end - change.start) for change in changes)
    if size > HASHED_BYTES:
        raise ToolError(
            f"the edited file would have {size} characters; at most {HASHED_BYTES} can be edited", "logical"
        )
    return apply_changes(text, changes).encode(errors="surrogateescape")


def _lines(text: str, changes: list[Change]) -> list[int]:
    lines: list[int] = []
    line, position = 1, 0
    for change in changes:
        line += text.count("\n", position, change.start)
        position = change.start
        lines.append(line)
    return lines


def _summary(edited: _Edited, place: Place) -> str:
    lines = edited.lines
    shown = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
    where = f"at line {shown}" if len(lines) == 1 else f"in {len(lines)} places, at lines {shown}"
    return f"edited {place.asked} {where}"
