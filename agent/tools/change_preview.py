"""The diff that ``write`` or ``edit`` would make, for approval; complete, and bounded in time.

The cost of a diff grows with the product of the line counts, so only small texts are compared line by line. In larger
ones, everything between the common beginning and end is one change.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher

from agent.tools.base import ToolContext, ToolError
from agent.tools.edits import Edit, EditError, TextChange, plan_changes, unified_diff
from agent.tools.files import read_content
from agent.tools.paths import resolve_path
from wire.call_page import CallPart


def describe_write(path: str, content: str, context: ToolContext) -> list[CallPart]:
    """The file and its diff; of a new file, or one that is no text, the new content."""
    old: bytes | None = None
    try:
        place = resolve_path(context, path, reading=False)
        with suppress(FileNotFoundError):
            old = read_content(place).data
    except (OSError, ToolError) as exc:
        return [CallPart("file", path), CallPart("note", f"the call will fail: {exc}"), CallPart("content", content)]
    if old is None:
        return [CallPart("file", f"{place.path} (new)"), CallPart("content", content)]
    text = _decoded(old)
    if text is None or text == content:
        what = f"{place.path} ({'the same again' if text == content else f'replaces {len(old):,} bytes'})"
        return [CallPart("file", what), CallPart("content", content)]
    changes = list(_line_changes(text, content))
    return [CallPart("file", place.path), CallPart("changes", unified_diff(text, changes, most=None), "diff")]


def describe_edit(path: str, edits: Sequence[Edit], context: ToolContext) -> list[CallPart]:
    """The file and its diff with context; the edits themselves where they do not fit the file."""
    try:
        place = resolve_path(context, path, reading=False)
        text = read_content(place).data.decode(errors="surrogateescape")
        changes = plan_changes(text, edits)
    except (OSError, ToolError, EditError) as exc:
        parts = [CallPart("file", path), CallPart("note", f"the call will fail: {exc}")]
        return [*parts, *(CallPart("changes", _edit_as_diff(edit), "diff") for edit in edits)]
    diff = unified_diff(text, changes, most=None).encode(errors="surrogateescape").decode(errors="replace")
    return [CallPart("file", place.path), CallPart("changes", diff, "diff")]


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode() if len(data) <= 1024 * 1024 else None
    except UnicodeDecodeError:
        return None


def _edit_as_diff(edit: Edit) -> str:
    removed = [f"-{line}" for line in edit.old_text.split("\n")]
    return "\n".join([*removed, *(f"+{line}" for line in edit.new_text.split("\n"))])


def _line_changes(old: str, new: str) -> Iterator[TextChange]:
    """The changes, in units of whole lines."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _common_prefix(before, after)
    tail = _common_prefix(before[head:][::-1], after[head:][::-1])
    mine, theirs = before[head : len(before) - tail], after[head : len(after) - tail]
    starts = [sum(map(len, before[:head]))]
    for line in mine:
        starts.append(starts[-1] + len(line))
    if len(mine) * len(theirs) > 400 * 400:
        yield TextChange(starts[0], starts[-1], "".join(theirs))
        return
    for tag, first, last, new_first, new_last in SequenceMatcher(None, mine, theirs).get_opcodes():
        if tag != "equal":
            yield TextChange(starts[first], starts[last], "".join(theirs[new_first:new_last]))


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    most = min(len(one), len(other))
    return next((index for index in range(most) if one[index] != other[index]), most)
