"""Model, tools and rules of a worker: changeable between model calls, shared by all its runs."""

from collections.abc import Callable

import msgspec

from agent.approvals import Approvals
from agent.conversation import Conversation
from agent.history.sanitize import IncrementalSanitizer, SanitizeRules
from agent.hooks import Hooks
from agent.models.base import Model, ToolDefinition
from agent.policy import Policy
from agent.processes.registry import ProcessRegistry
from agent.tools.base import Report, Tool, ToolContext
from agent.tools.file_state import FileTracker
from wire.entries import ToolUseBlock


class SandboxScope(msgspec.Struct, frozen=True, kw_only=True):
    """What tools and their commands may use: the working directory (a real path), the environment.

    ``readable``: directories outside it that may be read (of skills); ``protected``: paths that no file tool may write.
    """

    cwd: str
    environment: dict[str, str]
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    allow_outside: bool = False


class Toolbox(msgspec.Struct, eq=False, kw_only=True):
    """``tools`` are made when they are first needed: a worker is ready before it has imported them."""

    model: Model
    system_prompt: str
    sandbox: SandboxScope
    processes: ProcessRegistry
    open_tools: Callable[[], dict[str, Tool]] = dict
    files: FileTracker = msgspec.field(default_factory=FileTracker)
    thinking: str = "off"
    policy: Policy = Policy()
    approvals: Approvals = msgspec.field(default_factory=Approvals)
    hooks: Hooks = msgspec.field(default_factory=Hooks)
    sanitize_rules: SanitizeRules = SanitizeRules()
    sanitizer: IncrementalSanitizer = msgspec.field(default_factory=IncrementalSanitizer)
    context_tokens: int = 200_000
    _tools: dict[str, Tool] | None = None

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools by name."""
        if self._tools is None:
            self._tools = self.open_tools()
        return self._tools

    def context_for(self, conversation: Conversation, call: ToolUseBlock, report: Report) -> ToolContext:
        """What a call in this conversation may use."""
        session_id = conversation.header.id
        scope = self.sandbox
        return ToolContext(
            cwd=scope.cwd,
            environment=scope.environment,
            report=report,
            call_id=call.id,
            files=self.files,
            processes=self.processes,
            scope_key=session_id,
            session_key=session_id,
            outputs=conversation.outputs,
            readable=scope.readable,
            protected=scope.protected,
            allow_outside=scope.allow_outside,
        )

    def definitions(self) -> list[ToolDefinition]:
        """The tools as a model sees them."""
        return [ToolDefinition(tool.name, tool.description, tool.schema) for tool in self.tools.values()]
