"""The tools of the agent: names at once, modules when they are first needed."""

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
"""Module and class; ``todo`` belongs to a worker."""

TOOL_NAMES = (*_CLASS_NAMES, "todo")


def open_tools(names: frozenset[str], todo: Tool) -> dict[str, Tool]:
    """These tools by name, in the order of ``TOOL_NAMES``."""
    tools: dict[str, Tool] = {
        name: getattr(import_module(f"agent.tools.{name}"), kind)()
        for name, kind in _CLASS_NAMES.items()
        if name in names
    }
    return tools | ({"todo": todo} if "todo" in names else {})
