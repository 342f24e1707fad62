"""The entries of a native transcript: one JSON object a line, a header first, then what happened, oldest first.

```
{"type":"session","version":1,"id":"...","created":"2026-01-31T10:00:00Z","cwd":"/work"}
{"type":"message","seq":3,"ts":1769853600.1,"message":{"role":"user","content":[{"type":"text","text":"hi"}]}}
{"type":"call","seq":6,"ts":1769853650.3,"record":{"id":"c1","name":"exec","state":"RUNNING","started_at":...,"audit":[...]}}
{"type":"compaction","seq":9,"ts":1769853700.2,"summary":"...","kept_from":7}
{"type":"exec","seq":8,"ts":1769853651.2,"record":{"id":"calm-fox","command":"make","started_at":1769853650.4,...}}
{"type":"cache-ttl","seq":10,"ts":1769853700.9,"provider":"openai","model":"gpt-5"}
```
A ``call`` entry is written at each move of a tool call, before the move takes effect; the last one of an id holds. So
does the last ``exec`` entry of an id, written when a command goes to the background and when it has ended.
An entry of a type that this version does not know is kept as it is (``UnknownEntry``), so that a later version's
transcripts can be read as far as they are understood.
"""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

FORMAT_VERSION = 1
STEER_PREFIX = "[INTERRUPT] New message from user: "
"""What the model reads before a message that came into a running turn (``origin`` ``steer``)."""

MessageOrigin = Literal["prompt", "follow_up", "steer", "tool", "summary"]
"""How a user message came about; ``tool`` messages hold the results of the calls in the message before."""


class SessionHeader(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="session"):
    """The first line: which conversation this is. ``created`` is ISO 8601 in UTC, ``parent`` another session's id.

    The last three only where the supervisor writes the transcript: the agent's name and version, and its own id of the
    conversation. Where the agent goes on with it under another id, a later line of this type says so.
    """

    version: int
    id: str
    created: str
    cwd: str
    parent: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    agent_session: str | None = None


class ProcessMark(msgspec.Struct, frozen=True, tag_field="type", tag="process"):
    """A line of a transcript that the supervisor writes: what the agent's process does with the conversation.

    ``opened``: one is about to take it up. ``closed``: the last one has closed it, or has ended in good order; that
    holds while it is the last line. ``lost``: it no longer has it. Readers of the conversation pass over it.
    """

    state: str


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Plain text."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought aloud."""

    thinking: str


class ImageBlock(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image, base64 in ``data``."""

    data: str
    mime_type: str = msgspec.field(name="mimeType", default="image/png")


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """The model calls a tool; ``id`` is unique over all conversations."""

    id: str
    name: str
    input: Any


class ToolResultBlock(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    """What a call came to; ``content`` is any JSON, ``images`` are what it shows beside it."""

    tool_use_id: str
    content: Any
    is_error: bool = False
    images: list[ImageBlock] = []


ContentBlock: TypeAlias = TextBlock | ThinkingBlock | ImageBlock | ToolUseBlock | ToolResultBlock


class TranscriptMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation. ``stop_reason`` belongs to assistant messages, ``origin`` to user messages.

    ``from_session`` names the session that a user message came from, where that is another one.
    """

    role: Literal["user", "assistant"]
    content: list[ContentBlock]
    origin: MessageOrigin = "prompt"
    stop_reason: str | None = None
    from_session: str | None = None

    @property
    def text(self) -> str:
        """All its text blocks in one."""
        return "".join([block.text for block in self.content if isinstance(block, TextBlock)])

    @property
    def calls(self) -> list[ToolUseBlock]:
        """The tool calls it makes."""
        return [block for block in self.content if isinstance(block, ToolUseBlock)]


class MessageEntry(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A message, complete. ``seq`` rises strictly within a transcript; ``ts`` is Unix time in seconds."""

    seq: int
    ts: float
    message: TranscriptMessage


class CompactionEntry(msgspec.Struct, frozen=True, tag_field="type", tag="compaction"):
    """Everything before the message with seq ``kept_from`` is from here on represented by ``summary``."""

    seq: int
    ts: float
    summary: str
    kept_from: int


ApprovalDecision = Literal["allow", "deny"]
"""What may be said about a call that waits for approval."""


class CallState(StrEnum):
    """Where a tool call stands. Which moves there are is its agent's affair."""

    PENDING = "PENDING"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DENIED = "DENIED"
    SEALED = "SEALED"


class CallApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A person is asked, ``reason`` says why; ``decision`` None: not decided yet. ``by`` decided, at ``ts``.

    ``allows``: the calls of this conversation that the decision allows too, as the agent names them.
    """

    reason: str = ""
    decision: ApprovalDecision | None = None
    note: str | None = None
    by: str | None = None
    ts: float | None = None
    allows: str | None = None


class CallTransition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a call's history: the state it took (or had, when only something was noted), and when."""

    state: CallState
    ts: float
    note: str | None = None


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool call and its history. Times are Unix times in seconds.

    ``input`` is not repeated in a transcript: it stands in the message that makes the call. ``changed_input`` is what a
    hook has put in its place. ``result`` is the content of the call's result, ``images`` what belongs to it; ``error``
    is set where the call did not succeed. ``client``: the sender of the prompt carries it out, and the next prompt
    brings its result.
    """

    id: str
    name: str
    state: CallState
    input: Any = msgspec.UNSET
    changed_input: Any = msgspec.UNSET
    approval: CallApproval | None = None
    result: Any = msgspec.UNSET
    images: list[ImageBlock] = []
    error: str | None = None
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    client: bool = False
    audit: list[CallTransition] = []


class CallEntry(msgspec.Struct, frozen=True, tag_field="type", tag="call"):
    """A tool call has moved, or a decision about it was noted."""

    seq: int
    ts: float
    record: CallRecord


class ExecRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command in the background, for the next worker that holds the conversation. Times are Unix times in seconds.

    ``ended_at`` None: it runs, or died with its worker; then the next worker writes ``lost``. ``tail``: the end of its
    output; ``unseen``: how many of its characters no poll has shown; ``is_cut``: there was more before it. ``cleared``:
    the agent has removed it from its list.
    """

    id: str
    command: str
    cwd: str
    pid: int
    started_at: float
    ended_at: float | None = None
    exit_code: int | None = None
    exit_signal: str | None = None
    timed_out: bool = False
    lost: bool = False
    tail: str = ""
    unseen: int = 0
    is_cut: bool = False
    cleared: bool = False


class ExecEntry(msgspec.Struct, frozen=True, tag_field="type", tag="exec"):
    """The new state of a background command."""

    seq: int
    ts: float
    record: ExecRecord


class CacheTtlEntry(msgspec.Struct, frozen=True, tag_field="type", tag="cache-ttl"):
    """At this moment this model had the whole conversation before it: what it keeps of it begins to age."""

    seq: int
    ts: float
    provider: str
    model: str


class UnknownEntry(msgspec.Struct, frozen=True):
    """An entry of a type unknown here: its type, its seq (0 if it has none) and its line without the LF."""

    type: str
    seq: int
    line: bytes


KnownEntry: TypeAlias = MessageEntry | CompactionEntry | CallEntry | ExecEntry | CacheTtlEntry
TranscriptEntry: TypeAlias = KnownEntry | UnknownEntry

OUTPUTS_SUFFIX = ".tool-outputs"
"""The end of the names of directories for full outputs, by which file tools refuse those of other conversations."""


def outputs_directory(transcript: str) -> str:
    """The directory for full outputs of a conversation's tools, beside its transcript.

    It is made for the first cut output, and removed with the transcript.
    """
    return transcript + OUTPUTS_SUFFIX
