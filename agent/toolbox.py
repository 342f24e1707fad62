"""Model, tools and rules of a worker: changeable between model calls, shared by all its runs."""

from collections.abc import Callable, Mapping

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
    """What the children and tools of a worker see: the working directory (a real path), their environment.

    ``readable``: directories outside that may be read (of skills); ``protected``: what no file tool may write.
    ``skill_env`` is for children, only where ``environment`` does not set it.
    """

    cwd: str
    environment: Mapping[str, str]
    readable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    skill_env: Mapping[str, str] = {}
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
        """Those of this agent, by name."""
        if self._tools is None:
            self._tools = self.open_tools()
        return self._tools

    def context_for(self, conversation: Conversation, call: ToolUseBlock, report: Report) -> ToolContext:
        """What a call in this conversation may use."""
        session_id = conversation.header.id
        scope = self.sandbox
        return ToolContext(
            cwd=scope.cwd,
            environment={**scope.skill_env, **scope.environment},
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
