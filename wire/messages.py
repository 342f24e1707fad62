"""Messages between a worker and its supervisor, one JSON object a line, and the envelope of events for front ends.

At the pipe one permissive ``Message`` takes any line; its ``data`` or ``result`` stays raw until it is decoded by name.
Everything above ``rpc/`` speaks this vocabulary, whatever dialect the worker's program speaks.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from wire.events import EventChannel

PROTOCOL_VERSION = 1

EMPTY = msgspec.Raw(b"null")
"""What an absent ``data``, ``params`` or ``result`` decodes from."""

StopReason = Literal["stop", "aborted", "error", "length", "timeout", "max_steps", "tool_calls"]


def omit_none(**fields: Any) -> dict[str, Any]:
    """The fields without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


class QueueMode(StrEnum):
    """What happens to a message that arrives while its session is busy."""

    STEER = "steer"
    """Into the running turn when it can take one, else as ``followup``."""
    FOLLOWUP = "followup"
    """A turn of its own afterwards."""
    COLLECT = "collect"
    """One turn afterwards for all that wait."""
    INTERRUPT = "interrupt"
    """Abort the running turn, drop what waits, run the newest."""


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request failed: a stable code, a sentence, further facts."""

    code: str
    message: str = ""
    data: dict[str, Any] = {}


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Any line a worker may print: an event (``event`` set) or an answer (``id`` set), never both.

    ``data`` (events) and ``result`` (answers) are undecoded JSON. ``gc=False`` is safe: raw bytes hold no references,
    and an ``ErrorBody`` cannot point back to its message.
    """

    id: str | int | None = None
    event: str | None = None
    data: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    error: ErrorBody | None = None


class RequestMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line to a worker (or to the control socket): a method to run, answered under the same ``id``."""

    id: str
    method: str
    params: Any = {}


# --- parameters -----------------------------------------------------------------------------------------------------


class ImageContent(msgspec.Struct, frozen=True, kw_only=True):
    """One image beside a prompt's text, base64 in ``data``."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str = msgspec.field(name="mimeType", default="image/png")


class JsonAnswer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An answer that is one JSON value: an object, or what fits the JSON schema ``schema``.

    ``name``, ``description`` and ``strict`` are for model servers that take a schema themselves.
    """

    name: str = "answer"
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class AnswerOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options for the answer of one run. They reach the model; the caller checks the answer.

    ``instructions``: more of the system prompt, for this run only. ``must_call``: names of client tools, of which the
    model is to call one. ``stop``: texts at which the model ends its answer, where its server can do that.
    """

    instructions: str = ""
    json: JsonAnswer | None = None
    must_call: list[str] = []
    stop: list[str] = []


class PromptParams(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """``prompt``: run one turn to its end. ``streaming_behavior`` says what to do when a run is in progress.

    ``client_tools``: definitions (``name``, ``description``, ``parameters``) of tools that the caller carries out; the
    run ends with their calls, and ``tool_results`` (``tool_use_id``, ``content``, ``is_error``) of a next prompt answer
    them. A client tool takes the place of the agent's own tool of the same name for that run. ``history_turns``: how
    many user messages the model sees at most. ``from_session`` names another session that the text comes from.
    ``answer``: options of the answer. ``traceparent``, ``tracestate``: the span that the run is in (W3C trace context),
    where the supervisor records traces; its commands are to have them as TRACEPARENT, TRACESTATE in their environment.
    """

    text: str
    images: list[ImageContent] = []
    streaming_behavior: Literal["steer", "follow_up"] | None = None
    run_id: str | None = None
    client_tools: list[dict[str, Any]] = []
    tool_results: list[dict[str, Any]] = []
    history_turns: int | None = None
    from_session: str | None = None
    answer: AnswerOptions | None = None
    traceparent: str | None = None
    tracestate: str | None = None


class TextParams(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """``steer`` and ``follow_up``: a text for the running turn, or for after it."""

    text: str
    images: list[ImageContent] = []


class AbortParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``abort``: with ``keep_queue`` the inputs that wait go with the next prompt."""

    keep_queue: bool = False


class CompactParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``compact``: what the summary should keep."""

    instructions: str | None = None


# --- results --------------------------------------------------------------------------------------------------------


class TokenUsage(msgspec.Struct, frozen=True, omit_defaults=False):
    """Tokens of one run as the model counted them; its cost in US dollars where the agent tells it, else unset."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | msgspec.UnsetType = msgspec.UNSET

    def plus(self, more: "TokenUsage") -> "TokenUsage":
        """The sum of two parts; the cost is that of the parts that tell one."""
        costs = [cost for cost in (self.cost, more.cost) if cost is not msgspec.UNSET]
        return TokenUsage(
            self.input_tokens + more.input_tokens,
            self.output_tokens + more.output_tokens,
            sum(costs) if costs else msgspec.UNSET,
        )


_Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""As large as JavaScript counts exactly."""


class ContextSize(msgspec.Struct, frozen=True):
    """Tokens of a conversation's context, and how many there may be, as its agent counts them."""

    used: _Tokens
    size: _Tokens


class PromptResult(msgspec.Struct, frozen=True):
    """The end of a run: its final text, why it stopped, its events without the text pieces, what it cost.

    ``calls``: the tool calls (``id``, ``name``, ``input``) that the caller is to carry out (``tool_calls``). ``step``:
    how many model calls it took. ``strategy``: ``refed``, where the prompt began with the end of the transcript.
    """

    text: str = ""
    stop_reason: StopReason = "stop"
    events: list[dict[str, Any]] = []
    usage: TokenUsage = TokenUsage()
    error: str | None = None
    calls: list[dict[str, Any]] = []
    step: int | None = None
    strategy: str | msgspec.UnsetType = msgspec.UNSET


class SessionResult(msgspec.Struct, frozen=True):
    """``new_session`` and ``switch_session``: which conversation the worker now holds; no file when it keeps none.

    ``sealed``: ids of the tool calls that a former worker had left open and that were closed now, where there are any.
    ``strategy``: how an agent whose own memory is not ours to read goes on with the conversation: ``kept``, ``loaded``,
    ``resumed``, or ``refed``, where it was given the end of it as text; ``cause``: why; ``error``: the agent's words.
    """

    session_id: str
    session_file: str | None = None
    sealed: list[str] | msgspec.UnsetType = msgspec.UNSET
    strategy: str | msgspec.UnsetType = msgspec.UNSET
    cause: str | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class Bookmark(msgspec.Struct, frozen=True):
    """A place in a conversation: the seq of an entry, its Unix time in seconds, and which kind of message it is.

    ``kind``: assistant, or how a user's message came about (``wire.entries.Origin``).
    """

    seq: int
    ts: float
    kind: str | None = None


Breakpoint: TypeAlias = Literal[
    "READY",
    "PRE_MODEL",
    "STREAMING_MODEL",
    "TOOL_PENDING",
    "AWAITING_APPROVAL",
    "PRE_TOOL",
    "TOOL_EXECUTING",
    "POST_TOOL",
]
"""The point of a step that a run has reached: before or during the model's answer, or the state of its calls."""


class AgentStatus(msgspec.Struct, frozen=True):
    """Where an agent stands. READY: it waits for a prompt; WORKING; PAUSED: all that is left to do waits for a person.

    ``step_count``: model calls of the latest run. ``last_safe_index``: the last message after which no tool call is
    open (-1: none). ``cursor``: the seq of the last event; ``bookmark``: of the last message that was persisted.
    ``pending_permissions``: ids of the calls that wait for a decision. ``breakpoint``: where in its step a run stands.
    """

    state: Literal["READY", "WORKING", "PAUSED"] = "READY"
    step_count: int = 0
    last_safe_index: int = -1
    cursor: int = 0
    bookmark: Bookmark | None = None
    pending_permissions: list[str] = []
    breakpoint: Breakpoint = "READY"


class StateResult(msgspec.Struct, frozen=True):
    """``get_state``: what the worker is doing, for which conversation, with which model."""

    session_id: str
    session_file: str | None = None
    message_count: int = 0
    is_streaming: bool = False
    is_compacting: bool = False
    provider: str | None = None
    model: str | None = None
    thinking: str | None = None
    pending: int = 0
    background: int = 0
    status: AgentStatus | None = None


# --- events ---------------------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True):
    """``ready``: the first line of a worker; written when it can take requests, not before.

    ``capabilities``: what a program of another protocol says that it can do; unset where ``methods`` says it all.
    ``models``, ``thinking_levels``: the values that it offers; unset where it says nothing of them.
    """

    protocol: int = PROTOCOL_VERSION
    agent: str = ""
    version: str = ""
    pid: int = 0
    methods: list[str] = []
    capabilities: list[str] | msgspec.UnsetType = msgspec.UNSET
    models: list[str] | msgspec.UnsetType = msgspec.UNSET
    thinking_levels: list[str] | msgspec.UnsetType = msgspec.UNSET


class StartFailed(msgspec.Struct, frozen=True):
    """``start_failed``: the worker runs and will never be ready; said by a dialect whose program does not say it."""

    message: str = ""


class AssistantMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """``assistant_message`` and ``thinking``: ``partial`` is the new piece of text, never the accumulated text."""

    partial: str = ""
    run_id: str | None = None
    seq: int = 0


class ToolCallView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call as events show it."""

    id: str
    name: str
    input_preview: str = ""
    state: str = "PENDING"
    duration_ms: float | None = None
    approval: str | None = None


class PermissionOption(msgspec.Struct, frozen=True):
    """An answer that an agent offers itself. ``kind``: allow_once, allow_always, reject_once, reject_always.

    An agent that offers nothing but allow_always takes a plain yes and no too.
    """

    id: str
    name: str = ""
    kind: str = ""


class CallDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about the command that a tool call is about. ``status``: running, completed or failed.

    ``session_id`` is its name; at the end of a call of ``exec``, status running says that it goes on in the background.
    ``started_at`` is Unix time in seconds. It ended with ``exit_code`` or by ``exit_signal``, because it ``timed_out``.
    """

    status: str | None = None
    session_id: str | None = None
    pid: int | None = None
    started_at: float | None = None
    cwd: str | None = None
    exit_code: int | None = None
    exit_signal: str | None = None
    timed_out: bool = False


class ToolEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """``tool``: a call is made (``start``), runs after an approval, has new output, fails, ends.

    ``tail``: the end of its output so far. ``result``: the result as the model reads it, cut to about 8,000 characters;
    only with ``end``, also of a failed call.
    """

    phase: Literal["start", "running", "update", "end", "error"]
    call: ToolCallView
    run_id: str | None = None
    seq: int = 0
    tail: str | None = None
    error: str | None = None
    details: CallDetails | None = None
    result: str | None = None


class BackgroundProcesses(msgspec.Struct, frozen=True):
    """``background``: how many processes the worker runs in the background, and their ``names``; at every change."""

    running: int = 0
    names: list[str] = []


class ExecExit(msgspec.Struct, frozen=True, omit_defaults=True):
    """``exec_exit``: a process in the background has ended unseen; sent before its ``background``.

    ``session_id`` is the process's name, ``summary`` says in a line how it ended. ``session_key``: the worker's
    conversation it belonged to, as ``get_state`` names it. ``exit_code``, or the name of the ``signal`` that ended it.
    ``timed_out``: that was because its time was over.
    """

    session_id: str
    summary: str = ""
    session_key: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    timed_out: bool = False


class UiRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """``ui_request``: an extension asks a person; answered by ``ui_respond`` with the same ``id``."""

    id: str
    method: str
    fields: dict[str, Any] = {}


class EventEnvelope(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One event in the gateway's order. ``ts`` is Unix time in seconds; ``data`` undecoded JSON."""

    seq: int
    ts: float
    session: str
    channel: EventChannel
    type: str
    data: msgspec.Raw = EMPTY
    run_id: str | None = None
