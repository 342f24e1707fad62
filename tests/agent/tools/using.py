"""Calling a tool as the runner does: the model's JSON is converted, the call is bounded."""

import os
from pathlib import Path
from typing import Any

import msgspec
import trio

from agent.processes.registry import ProcessRegistry
from agent.tools.base import Tool, ToolContext, ToolOutput
from agent.tools.file_state import FileTracker


class Bench:
    """A context that several calls share, and the way to make them."""

    def __init__(self, workspace: Path, **more: Any) -> None:
        self.files = FileTracker()
        self.context = ToolContext(
            cwd=os.path.realpath(workspace),
            environment={"HOME": str(workspace.parent / "home")},
            processes=ProcessRegistry(),
            files=self.files,
            **more,
        )

    async def use(self, tool: Tool, **arguments: Any) -> ToolOutput:
        with trio.fail_after(20):
            output = await tool.run(msgspec.convert(arguments, tool.input_type), self.context)
        return output if isinstance(output, ToolOutput) else ToolOutput(output)

    async def text(self, tool: Tool, **arguments: Any) -> str:
        return (await self.use(tool, **arguments)).text
