"""The tool ``read``: a page of a text file, or an image.

The text is shown as it is: no line numbers (``edit`` wants the exact text back), line ends kept; only a byte order mark
is left out. A large file is never held in memory.
"""

import os
from base64 import b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
import trio

from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from agent.tools.file_state import HASHED_BYTES, FileVersion, digest_of, version_of
from agent.tools.pages import MAX_BYTES, MAX_LINES, PageBuilder
from agent.tools.paths import (
    SAMPLE_BYTES,
    ConfinedPath,
    image_type,
    looks_binary,
    open_regular,
    resolve_path,
    tool_errors,
)
from wire.entries import ImageBlock

MAX_IMAGE_BYTES = 3_750_000
"""As base64 this is 5 MB, which providers take."""
_BLOCK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class ReadInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lines of which file."""

    path: Annotated[str, msgspec.Meta(description="The file; relative paths start at the working directory")]
    offset: Annotated[int, msgspec.Meta(ge=1, description="The first line to show, counted from 1")] = 1
    limit: Annotated[int, msgspec.Meta(ge=1, description=f"How many lines to show, at most {MAX_LINES}")] = MAX_LINES


class ReadTool(Tool):
    """Read a text file, at most 2,000 lines and 50 kB at once, or an image."""

    name = "read"
    description = (
        f"Read a text file or an image (png, jpeg, gif, webp). At most {MAX_LINES} lines or {MAX_BYTES} bytes at once; "
        "go on with offset (first line, from 1) and limit (lines)."
    )
    effects = "read"
    input_type = ReadInput

    async def run(self, arguments: ReadInput, context: ToolContext) -> ToolOutput:
        """Read a page, and record the file's version."""
        path, look = await trio.to_thread.run_sync(_read, context, arguments, abandon_on_cancel=True)
        context.files.record(path, look.version)
        return look.output


class _ReadResult(NamedTuple):
    output: ToolOutput
    version: FileVersion


def _read(context: ToolContext, arguments: ReadInput) -> tuple[str, _ReadResult]:
    """The real path, and what stands there."""
    place = resolve_path(context, arguments.path)
    with tool_errors("read", place):
        descriptor, status = open_regular(place)
        with os.fdopen(descriptor, "rb") as file:
            return place.path, _read_open_file(file, status, place, arguments)


def _read_open_file(file: BinaryIO, status: os.stat_result, place: ConfinedPath, arguments: ReadInput) -> _ReadResult:
    head = file.read(SAMPLE_BYTES)
    kind = image_type(head)
    if kind is not None:
        return _image(head + file.read(MAX_IMAGE_BYTES + 1 - len(head)), kind, status, place)
    if looks_binary(head):
        raise ToolError(
            f"{place.requested} is binary, or text that is not UTF-8 ({status.st_size} bytes)",
            "logical",
            recommendations=["Use exec with file, xxd, strings or iconv to look into it."],
        )
    if status.st_size > HASHED_BYTES:
        return _ReadResult(_page(file, arguments, place, total=None), version_of(status, None))
    data = head + file.read(HASHED_BYTES)
    total = data.count(b"\n") + (not data.endswith(b"\n"))
    return _ReadResult(_page(BytesIO(data), arguments, place, total), version_of(status, digest_of(data)))


def _page(file: BinaryIO, arguments: ReadInput, place: ConfinedPath, total: int | None) -> ToolOutput:
    """The page of ``file`` (anywhere in it now); ``total``: its lines, where they have been counted."""
    file.seek(0)
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    passed = _skip_lines(file, arguments.offset - 1)
    builder = PageBuilder(arguments.offset, arguments.limit)
    page = builder.page(more=not builder.feed(_lines(file)))
    if not page.text and arguments.offset > 1:
        raise ToolError(
            f"offset: {arguments.offset} is behind the end of {place.requested} ({passed} lines)", "validation"
        )
    text = page.text + page.footer(total) if page.text else "[The file is empty.]"
    details = {"path": place.path, "first_line": page.first, "last_line": page.last, "more": page.more}
    return ToolOutput(text, details | ({} if total is None else {"total_lines": total}))


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Go on behind ``count`` lines, or to the end; how many there were. A cancelled call ends here."""
    left = count
    last = b"\n"
    while left > 0:
        trio.from_thread.check_cancelled()
        block = file.read(_BLOCK)
        if not block:
            left -= last != b"\n"  # a line without an end is one too
            break
        last = block[-1:]
        ends = block.count(b"\n")
        if ends < left:
            left -= ends
            continue
        position = -1
        for _ in range(left):
            position = block.index(b"\n", position + 1)
        file.seek(position + 1 - len(block), os.SEEK_CUR)
        left = 0
    return count - left


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines, a very long one only as far as it can be shown."""
    while line := file.readline(_BLOCK):
        piece = line
        while piece and not piece.endswith(b"\n"):
            trio.from_thread.check_cancelled()
            piece = file.readline(_BLOCK)
        yield line


def _image(data: bytes, kind: str, status: os.stat_result, place: ConfinedPath) -> _ReadResult:
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{place.requested} is an image of {status.st_size} bytes; at most {MAX_IMAGE_BYTES} can be shown",
            "logical",
            recommendations=["Use exec with an image program to make a smaller copy inside the working directory."],
        )
    block = ImageBlock(b64encode(data).decode(), kind)
    output = ToolOutput(f"[Image {kind}, {len(data)} bytes]", {"path": place.path, "mime_type": kind}, [block])
    return _ReadResult(output, version_of(status, digest_of(data)))
