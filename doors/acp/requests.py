"""Parameters of an editor's requests, and what the pool answers to ours; what is optional may be anything. Pure."""

from collections.abc import Collection
from typing import Annotated, Any

import msgspec

from doors.acp.jsonrpc import INVALID_PARAMS, EditorError
from doors.acp.prompts import PromptBlock
from doors.acp.updates import EditorWishes
from wire.call_page import CallPage
from wire.mcp_servers import MAX_SERVERS, McpServer, declared_servers
from wire.messages import EMPTY, ContextSize, ErrorBody, TokenUsage, ToolCallView

_SessionId = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Directory = Annotated[str, msgspec.Meta(pattern="^/", max_length=4_096)]


class EditorParams(msgspec.Struct, rename="camel"):
    """Of any request. Members are named as JavaScript does."""


class InitializeParams(EditorParams):
    """``initialize``."""

    protocol_version: int
    client_capabilities: Any = None

    @property
    def wishes(self) -> EditorWishes:
        """Updates that the client has said that it takes."""
        given = self.client_capabilities if isinstance(self.client_capabilities, dict) else {}
        session = given.get("session")
        wanted = session if isinstance(session, dict) else {}
        return EditorWishes(
            notices=isinstance(wanted.get("notices"), dict), compaction=isinstance(wanted.get("compaction"), dict)
        )


class OpenSessionParams(EditorParams, kw_only=True):
    """``session/new``."""

    cwd: _Directory
    mcp_servers: Annotated[list[McpServer], msgspec.Meta(max_length=MAX_SERVERS)] = []
    additional_directories: Any = None

    @property
    def servers(self) -> list[dict[str, Any]]:
        """The MCP servers as they are declared. Raises EditorError for too many bytes of them."""
        try:
            return declared_servers(self.mcp_servers)
        except ValueError as exc:
            raise EditorError(INVALID_PARAMS, f"params.mcpServers: {exc}") from exc

    def ignored(self, by_pool: Collection[str]) -> list[str]:
        """What was given and has no effect. ``by_pool``: what the pool says of that."""
        unused = ["mcpServers"] if "mcp_servers" in by_pool else []
        return [*unused, "additionalDirectories"] if self.additional_directories else unused


class KnownSessionParams(OpenSessionParams, kw_only=True):
    """``session/load`` and ``session/resume``."""

    session_id: _SessionId


class SessionParams(EditorParams):
    """``session/close`` and ``session/cancel``."""

    session_id: _SessionId


class EditorPrompt(EditorParams):
    """``session/prompt`` and ``_session/steering``."""

    session_id: _SessionId
    prompt: list[PromptBlock]


class ListParams(EditorParams):
    """``session/list``."""

    cwd: _Directory | None = None
    cursor: str | None = None


class SetOptionParams(EditorParams):
    """``session/set_config_option``."""

    session_id: _SessionId
    config_id: str
    value: str


class CancelRequestParams(EditorParams):
    """``$/cancel_request``."""

    request_id: msgspec.Raw = EMPTY


# --- from the pool ----------------------------------------------------------------------------------------------------


class PendingQuestion(ToolCallView, frozen=True):
    """A call that waits for approval."""

    reason: str | None = None


class SessionSettings(msgspec.Struct, frozen=True):
    """``sessions.options``: what is set, and what can be chosen. ``any_model``: other models may be there, too."""

    model: str | None = None
    thinking: str | None = None
    models: list[str] = []
    any_model: bool = True
    thinking_levels: list[str] = []


class SessionOpened(msgspec.Struct, frozen=True):
    """``sessions.open``."""

    session: str
    cwd: str
    options: SessionSettings = SessionSettings()
    context: ContextSize | None = None
    head: int = 0
    pending: list[PendingQuestion] = []
    ignored: list[str] = []


class ListedSession(msgspec.Struct, frozen=True):
    """Of ``sessions.list``."""

    key: str
    cwd: str | None = None
    updated_at: float = 0.0
    label: str | None = None


class HistoryAnswer(msgspec.Struct, frozen=True):
    """``sessions.history``."""

    messages: list[dict[str, Any]] = []


class SubscribeAnswer(msgspec.Struct, frozen=True):
    """``subscribe``."""

    subscription: str
    complete: bool = True


class CallPageAnswer(msgspec.Struct, frozen=True):
    """``approvals.show``."""

    page: CallPage
    is_partial: bool = False


class OfferedOption(msgspec.Struct, frozen=True):
    """An answer that an agent offers to its question."""

    id: str
    name: str = ""
    kind: str = ""


class QuestionAsked(msgspec.Struct, frozen=True):
    """The data of ``permission_required``."""

    call: ToolCallView
    reason: str | None = None
    shown: CallPage | None = None
    options: list[OfferedOption] = []


class QuestionDecided(msgspec.Struct, frozen=True):
    """The data of ``permission_decided``."""

    call_id: str


class RunEnded(msgspec.Struct, frozen=True):
    """The data of ``done``, and the outcome that ``agent.wait`` answers."""

    reason: str = "completed"
    stop_reason: str | None = None
    error: ErrorBody | None = None
    usage: TokenUsage | None = None
    worker: str | None = None
    status: str | None = None


class PushedEvents(msgspec.Struct, frozen=True, gc=False):
    """The data of ``events`` and ``subscription_ended``."""

    subscription: str = ""
    events: msgspec.Raw = EMPTY
    reason: str | None = None


class SettingsPatched(msgspec.Struct, frozen=True):
    """The data of ``session_patched``."""

    changed: list[str] = []
