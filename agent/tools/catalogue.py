"""The tools of this agent: their names at once, themselves when they are first needed."""

from collections.abc import Callable
from importlib import import_module

from agent.tools.base import Tool

_CLASS_NAMES = {
    "read": "ReadTool",
    "write": "WriteTool",
    "edit": "EditTool",
    "ls": "LsTool",
    "grep": "GrepTool",
    "find": "FindTool",
    "exec": "ExecTool",
    "process": "ProcessTool",
}
"""Module and class; ``todo`` is made by whoever keeps the list."""

TOOL_NAMES = (*_CLASS_NAMES, "todo")


def open_tools(names: frozenset[str], todo: Callable[[], Tool]) -> dict[str, Tool]:
    """These tools by name, in the order of ``TOOL_NAMES``."""
    tools: dict[str, Tool] = {}
    for name in TOOL_NAMES:
        if name in names:
            tools[name] = (
                todo() if name == "todo" else getattr(import_module(f"agent.tools.{name}"), _CLASS_NAMES[name])()
            )
    return tools
