"""The tools ``read`` and ``write`` by the name they had together."""

from agent.tools.read import ReadTool
from agent.tools.write import WriteTool

__all__ = ["ReadTool", "WriteTool"]
