"""The tool ``find``: paths that match a glob."""

from typing import Annotated

import msgspec

from agent.tools.base import Tool, ToolContext, ToolOutput
from agent.tools.files import encode_text
from agent.tools.search.search import Query, search_output


class FindInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to find, and where."""

    pattern: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=1000,
            description="A glob: '*.py' for names anywhere, 'src/**/*.{ts,tsx}' for paths below path",
        ),
    ]
    path: Annotated[str, msgspec.Meta(description="The directory to search (default: the working directory)")] = "."
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000, description="How many paths to show")] = 1000
    include_ignored: Annotated[bool, msgspec.Meta(description="Also what .gitignore leaves out")] = False


class FindTool(Tool):
    """Find files and directories by name."""

    name = "find"
    description = (
        "Find files and directories by a glob pattern, hidden ones too, sorted, as paths from the working directory. "
        "What .gitignore leaves out is passed over unless include_ignored; links are not followed."
    )
    effects = "read"
    input_type = FindInput

    async def run(self, arguments: FindInput, context: ToolContext) -> ToolOutput:
        """Search with a bounded child process."""
        encode_text(arguments.pattern, "pattern")
        query = Query(glob=arguments.pattern, limit=arguments.limit, include_ignored=arguments.include_ignored)
        return await search_output(query, arguments.path, context, things="paths", none="No paths match.")
