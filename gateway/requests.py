"""Parameters of the methods: typed, bounded; unknown fields are refused by name."""

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from errors import UsageError
from gateway.turns.client_tools import MAX_CLIENT_TOOLS, MAX_TOOL_RESULTS, ClientTool, ToolResult
from gateway.turns.replies import Blocks
from heartbeat.system_events import SystemEventKind
from router.source import MessageSource
from wire.events import EventChannel
from wire.framing import DECODE_ERRORS, decode_problem
from wire.mcp_servers import MAX_SERVERS, McpServer
from wire.messages import AnswerOptions, ImageContent, QueueMode
from wire.traceparent import MAX_TRACESTATE, TRACEPARENT_PATTERN, TRACESTATE_PATTERN

P = TypeVar("P")

Priority = Annotated[int, msgspec.Meta(ge=-1000, le=1000)]
"""Bounded, so that the waiting list can order it."""
Timeout = Annotated[float, msgspec.Meta(ge=0)]
"""Seconds."""
CallerKey = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
"""A caller's own name for a run (its idempotency key), a hold, a subscription."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
LogPosition = Annotated[str, msgspec.Meta(max_length=41, pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^\S(.*\S)?$")]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[^\s/](\S*[^\s/])?$")]
ThinkingName = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^\S+$")]
SessionKeyText = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class EmptyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method without parameters."""


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``agent``: accept a run. Either ``session`` (with ``agent``, ``role``), or ``source``, which decides all three.

    ``run`` is the idempotency key and becomes the run's id; made when absent. ``queue``: what to do when the session is
    busy, before what session, channel and settings say. ``priority``: which message gets a worker first; unset = as its
    source says: a direct message 10, one in a group 5, a webhook's 3, two more for ``router.priority_senders``, any
    other 5. ``spawn`` false takes only a worker that is there already.
    ``model``: ``provider/model``, or a model of the agent's provider, for this run only, which has a turn of its own.
    ``blocks``: tell the answer in parts, as events ``reply``; the outcome then has what no part had. ``client_tools``:
    what the caller can do for the model; a run that ends with reason ``tool_calls`` has the ``calls``, and the next
    one's ``tool_results`` answer them. ``answer``: the required form of the answer; the model is asked for it,
    and the caller checks it. Such a run has a turn of its own. ``traceparent``: the caller's span (W3C trace context),
    below which the run's is recorded; ``tracestate`` is handed on beside it.
    """

    text: str
    session: SessionKeyText | None = None
    source: MessageSource | None = None
    agent: Name | None = None
    role: Name | None = None
    run: CallerKey | None = None
    priority: Priority | None = None
    timeout: Timeout | None = None
    retry_safe: bool = False
    lane: Name = "main"
    queue: QueueMode | None = None
    images: Annotated[list[ImageContent], msgspec.Meta(max_length=32)] = []
    spawn: bool = True
    model: ModelName | None = None
    blocks: Blocks = Blocks.OFF
    client_tools: Annotated[list[ClientTool], msgspec.Meta(max_length=MAX_CLIENT_TOOLS)] = []
    tool_results: Annotated[list[ToolResult], msgspec.Meta(max_length=MAX_TOOL_RESULTS)] = []
    answer: AnswerOptions | None = None
    traceparent: Annotated[str, msgspec.Meta(max_length=55, pattern=TRACEPARENT_PATTERN)] | None = None
    tracestate: Annotated[str, msgspec.Meta(max_length=MAX_TRACESTATE, pattern=TRACESTATE_PATTERN)] | None = None


class PromptRequest(AgentRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``prompt``: accept a run and follow it to its end. ``hold``: on the worker of a hold of the same principal."""

    hold: CallerKey | None = None


class WaitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``agent.wait``: the outcome of a run, within ``timeout_ms``; 0 = only look. Ends the wait, never the run."""

    run_id: CallerKey
    session: SessionKeyText | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 30_000


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``abort``: end the run of that id; without one the session's running turn. ``clear``: and all that waits."""

    session: SessionKeyText
    run: CallerKey | None = None
    clear: bool = False


class SteerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``steer``: put a text into the session's running turn now; an error where there is none to take it."""

    session: SessionKeyText
    text: str
    run: CallerKey | None = None


class AcquireRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``acquire``: hold a session's worker until ``release`` or the end of the connection.

    ``timeout``: for the wait, both for the session and for a worker; None = ``pool.waiting_timeout``.
    """

    session: SessionKeyText
    agent: Name | None = None
    role: Name | None = None
    priority: Priority = 5
    timeout: Timeout | None = None
    spawn: bool = True


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``release``: give a hold back."""

    hold: CallerKey


class SubscribeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``subscribe``: events from now on, or after the bookmark ``since``; empty lists let everything through."""

    session: SessionKeyText = "*"
    channels: Annotated[list[EventChannel], msgspec.Meta(max_length=3)] = []
    kinds: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    since: Annotated[int, msgspec.Meta(ge=0)] | None = None


class UnsubscribeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``unsubscribe``: end a subscription of the same principal."""

    subscription: CallerKey


class DecideRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``decide``: let a tool call that waits for approval run, or not; ``note`` reaches the model.

    ``seen``: from the last page of ``approvals.show``, for a call whose event shows only its beginning. ``option_id``:
    one of the answers that the agent offers (``options`` of the event), instead of its plain yes or no.
    """

    call_id: CallerKey
    decision: Literal["allow", "deny"]
    note: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None
    session: SessionKeyText | None = None
    seen: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    option_id: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``approvals.show``: what a call that waits for approval would do, a page from ``offset`` characters on."""

    call_id: CallerKey
    session: SessionKeyText | None = None
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


class UiRespondRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``ui.respond``: answer an extension's dialog with exactly one of the three."""

    session: SessionKeyText
    id: CallerKey
    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method about one session."""

    session: SessionKeyText


_Directory = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]


class OpenSessionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sessions.open``: a session that works in the directory ``cwd``, which is absolute; a new key when unnamed.

    ``exists``: it must be known. One that has its conversation in another directory is refused. ``mcp_servers``: those
    of the session from now on, kept in memory alone; when absent, it keeps what it has.
    """

    cwd: _Directory
    session: SessionKeyText | None = None
    agent: Name | None = None
    role: Name | None = None
    exists: bool = False
    mcp_servers: Annotated[list[McpServer], msgspec.Meta(max_length=MAX_SERVERS)] | None = None


class SessionListRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sessions.list``: all sessions, or those that work in the directory ``cwd``."""

    cwd: _Directory | None = None


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sessions.reset``; ``force``: even if that ends commands in the background."""

    session: SessionKeyText
    force: bool = False


class InjectRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``events.inject``: queue a system event for a session's next turn."""

    session: SessionKeyText
    text: Annotated[str, msgspec.Meta(max_length=40_000)]
    kind: SystemEventKind = SystemEventKind.OTHER


class HeartbeatRunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``heartbeat.run``: run an agent's heartbeat now, in its own session or the one named."""

    agent: Name | None = None
    session: SessionKeyText | None = None
    reason: Literal["manual", "wake", "hook"] = "manual"


class HistoryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sessions.history``: the latest messages of the conversation."""

    session: SessionKeyText
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method about one worker."""

    worker: Name


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``explain``: for a session, or for what an agent in a role would need."""

    session: SessionKeyText | None = None
    agent: Name | None = None
    role: Name | None = None


class RouteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``route``: explain how a message would be routed; nothing is started."""

    source: MessageSource
    text: str = ""


class ProcessRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``process``: a session's background processes. ``params`` are the worker's own for the action.

    ``clear``: forget one that has ended, or all; ``remove``: kill or forget one.
    """

    session: SessionKeyText
    action: Literal["list", "poll", "log", "kill", "clear", "remove"]
    params: dict[str, Any] = {}


class ProcessWriteRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``process.write``: input for a background process, which a shell executes without asking for approval.

    ``data`` as it is, with ``enter`` behind it; or else ``keys`` (Enter, C-c, Up) for one that has a terminal. ``eof``:
    its input ends with this.
    """

    session: SessionKeyText
    id: Name
    data: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""
    enter: bool = False
    keys: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    eof: bool = False


class DelegateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``delegate``: give a task of a session to another agent; ``sync`` answers with the outcome, ``async`` at once."""

    session: SessionKeyText
    agent: Name
    task: str
    role: Name | None = None
    mode: Literal["sync", "async"] = "sync"
    timeout: Timeout | None = None


class LogTailRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``logs.tail``: at most ``limit`` lines and ``max_bytes`` of the supervisor's log, the latest after ``cursor``."""

    cursor: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 500
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 250_000


class LogReadRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``logs.read``: the last lines of a log file, at most ``limit``, of ``max_bytes``.

    ``log``: a worker's id, also of one that has ended, or ``supervisor``. ``before``, ``after``: a position of an
    earlier answer; only lines before it, or only what has been added since.
    """

    log: Name
    before: LogPosition | None = None
    after: LogPosition | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 250_000


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``scale``: ``max`` workers at most, in place of ``pool.max`` of the settings."""

    max: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class PatchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sessions.patch``: an absent member changes nothing, null removes the session's own value.

    ``label``: a name for people, of one session only. ``model``: ``provider/model``, or a model of its provider.
    ``thinking``: ``off``, ``minimal``, ``low``, ``medium``, ``high`` or ``xhigh``; a level of its own for an ACP agent.
    ``verbose``, ``reasoning``: whether answers show tool calls, and the model's thinking.
    """

    session: SessionKeyText
    label: Label | msgspec.UnsetType | None = msgspec.UNSET
    model: ModelName | msgspec.UnsetType | None = msgspec.UNSET
    thinking: ThinkingName | msgspec.UnsetType | None = msgspec.UNSET
    queue_mode: QueueMode | msgspec.UnsetType | None = msgspec.UNSET
    verbose: bool | msgspec.UnsetType | None = msgspec.UNSET
    reasoning: bool | msgspec.UnsetType | None = msgspec.UNSET


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``drain``: ``timeout`` in seconds, default ``drain_timeout`` of the settings."""

    timeout: Timeout | None = None


class NodeDrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``nodes.drain``: after ``timeout`` seconds what still runs there is ended; null = when its turns end."""

    node: Name
    timeout: Timeout | None = None


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method about one node of the cluster."""

    node: Name


def decode_params(kind: type[P], method: str, params: msgspec.Raw) -> P:
    """Decode a method's parameters; absent ones (``null``) are an empty object. Raises UsageError."""
    raw = bytes(params)
    try:
        return msgspec.json.decode(b"{}" if raw in (b"", b"null") else raw, type=kind)
    except DECODE_ERRORS as exc:
        raise UsageError(f"bad parameters for {method}: {decode_problem(exc)}") from exc


_Text = Annotated[str, msgspec.Meta(max_length=131_072)]
"""As much as the system takes as one argument of a program."""


class AttachRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.open``: speak the protocol of the worker's own program, as if it was started here.

    ``session``: a key, or the path of a transcript; without one a conversation of its own is begun. ``arguments``: of
    the program, but for ``--mode rpc``. ``cwd``: where it was started. ``env``: what of its environment it looks at.
    """

    session: SessionKeyText | None = None
    agent: Name | None = None
    role: Name | None = None
    arguments: Annotated[list[_Text], msgspec.Meta(max_length=1_000)] = []
    cwd: Annotated[str, msgspec.Meta(max_length=4_096)]
    env: Annotated[dict[Name, _Text], msgspec.Meta(max_length=64)] = {}


class AttachmentRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.end``: no more lines follow; answered when the open requests are, or cannot be soon."""

    attachment: CallerKey


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``attach.send``: one line. ``line``: the JSON object that it is, else ``text``: what it is instead.

    ``refusal``: why the client could not pass it on as it was; it is answered with that.
    """

    attachment: CallerKey
    line: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: str = ""
    refusal: Annotated[str, msgspec.Meta(max_length=1_000)] | None = None
