"""Model, tools and rules of a worker: changeable between model calls, shared by all its runs."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec

from agent.approvals import Approvals
from agent.conversation import Conversation
from agent.hook_runner import Hooks
from agent.models.base import Model, ToolDefinition
from agent.policy import Policy
from agent.sanitize import IncrementalSanitizer, SanitizeRules
from agent.tools.base import Report, Tool, ToolContext
from wire.entries import ToolUseBlock

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
"""Module and class; imported when first needed. ``todo`` belongs to a worker."""

TOOL_NAMES = (*_CLASS_NAMES, "todo")


def open_tools(names: frozenset[str], todo: Tool) -> dict[str, Tool]:
    """These tools by name, in the order of ``TOOL_NAMES``."""
    tools: dict[str, Tool] = {
        name: getattr(import_module(f"agent.tools.{name}"), kind)()
        for name, kind in _CLASS_NAMES.items()
        if name in names
    }
    return tools | ({"todo": todo} if "todo" in names else {})


class Toolbox(msgspec.Struct, eq=False, kw_only=True):
    """``sandbox``: what every call may use, its commands and the files it knows among it.

    ``tools`` are made when they are first needed: a worker is ready before it has imported them.
    """

    model: Model
    system_prompt: str
    sandbox: ToolContext
    open_tools: Callable[[], dict[str, Tool]] = dict
    thinking: str = "off"
    policy: Policy = Policy()
    approvals: Approvals = msgspec.field(default_factory=Approvals)
    hooks: Hooks = msgspec.field(default_factory=Hooks)
    sanitize_rules: SanitizeRules = SanitizeRules()
    sanitizer: IncrementalSanitizer = msgspec.field(default_factory=IncrementalSanitizer)
    context_tokens: int = 200_000
    _tools: dict[str, Tool] | None = None
    _definitions: Sequence[ToolDefinition] | None = None

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name."""
        if self._tools is None:
            self._tools = self.open_tools()
        return self._tools

    def context_for(
        self, conversation: Conversation, call: ToolUseBlock, report: Report, environment: Mapping[str, str]
    ) -> ToolContext:
        """What a call in this conversation may use; ``environment``: of its run, beside the usual one."""
        own: dict[str, Any] = {"call_id": call.id, "scope_key": conversation.header.id, "outputs": conversation.outputs}
        if environment:
            own["environment"] = {**self.sandbox.environment, **environment}
        return msgspec.structs.replace(self.sandbox, report=report, **own)

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """The tools as a model sees them."""
        if self._definitions is None:
            tools = self.tools.values()
            self._definitions = [ToolDefinition(tool.name, tool.description, tool.schema) for tool in tools]
        return self._definitions
