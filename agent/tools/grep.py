"""The tool ``grep``: lines that match a pattern."""

import re
from typing import Annotated

import msgspec

from agent.tools.base import Tool, ToolContext, ToolError, ToolOutput
from agent.tools.files import encode_text
from agent.tools.search.search import Query, search_output


class GrepInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to look for, and where."""

    pattern: Annotated[
        str,
        msgspec.Meta(
            min_length=1, max_length=2000, description="A regular expression (Python's), matched line by line"
        ),
    ]
    path: Annotated[str, msgspec.Meta(description="A file or a directory (default: the working directory)")] = "."
    glob: Annotated[
        str | None, msgspec.Meta(description="Only files that fit, such as '*.py' or 'src/**/*.{ts,tsx}'")
    ] = None
    ignore_case: bool = False
    literal: Annotated[bool, msgspec.Meta(description="Take the pattern as plain text")] = False
    context: Annotated[int, msgspec.Meta(ge=0, le=20, description="Lines to show before and after each match")] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=2000, description="How many matching lines to show")] = 100
    include_ignored: Annotated[bool, msgspec.Meta(description="Also files that .gitignore leaves out")] = False


class GrepTool(Tool):
    """Search the text of files."""

    name = "grep"
    description = (
        "Search files for lines that match a regular expression; shows path:line: text, with paths from the working "
        "directory. Binary files and what .gitignore leaves out are passed over; hidden files are not."
    )
    effects = "read"
    input_type = GrepInput

    async def run(self, arguments: GrepInput, context: ToolContext) -> ToolOutput:
        """Search with a bounded child process."""
        encode_text(arguments.pattern, "pattern")
        encode_text(arguments.glob or "", "glob")
        if "\n" in arguments.pattern:
            raise ToolError("pattern: it holds a line end, but lines are searched one by one", "validation")
        query = Query(
            glob=arguments.glob,
            pattern=re.escape(arguments.pattern) if arguments.literal else arguments.pattern,
            flags=int(re.IGNORECASE) if arguments.ignore_case else 0,
            context=arguments.context,
            limit=arguments.limit,
            include_ignored=arguments.include_ignored,
        )
        return await search_output(query, arguments.path, context, things="matching lines", none="No lines match.")
