"""Pi's lines, the commands written to it, and the parameters of requests to it.

One envelope takes any line of pi; its parts are decoded by name. A ``message_update`` of pi before 0.84 carries the
whole text so far twice; the envelope decodes its small ``assistantMessageEvent`` and skips the rest, so that a turn
costs time in proportion to its text, not to its square. No byte of a client reaches pi unparsed: a line ``null`` kills
it, and it accepts wrong types in silence.
"""

import json
from typing import Annotated, Literal

import msgspec

from wire.framing import DECODE_ERRORS
from wire.messages import EMPTY, ImageContent


class AssistantEvent(msgspec.Struct, frozen=True, gc=False):
    """The new piece of a streamed message; ``type`` is ``text_delta``, ``thinking_delta``, ``toolcall_delta`` ..."""

    type: str = ""
    delta: str = ""


class PiLine(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Any line of pi: an answer (``type`` is ``response``) or an event. Absent fields keep their defaults.

    Fields that hold different things in different events, or are of no use before the event is known, stay raw.
    ``gc=False`` is safe: nothing in here can point back to it.
    """

    type: str
    # answers, and the id of a dialog
    id: str | int | None = None
    command: str | None = None
    success: bool = True
    data: msgspec.Raw = EMPTY
    error: msgspec.Raw = EMPTY
    # runs and messages
    assistant_message_event: AssistantEvent | None = None
    message: msgspec.Raw = EMPTY
    will_retry: bool | None = None
    # tools
    tool_call_id: str = ""
    tool_name: str = ""
    args: msgspec.Raw = EMPTY
    partial_result: msgspec.Raw = EMPTY
    result: msgspec.Raw = EMPTY
    is_error: bool = False
    # queue, compaction, retry, state
    steering: list[str] = []
    follow_up: list[str] = []
    reason: msgspec.Raw = EMPTY
    aborted: bool = False
    attempt: int = 0
    max_attempts: int = 0
    delay_ms: float = 0
    error_message: str | None = None
    final_error: str | None = None
    level: str | None = None
    name: str | None = None
    # extensions
    extension_path: str | None = None
    event: msgspec.Raw = EMPTY
    method: str | None = None
    title: msgspec.Raw = EMPTY
    options: msgspec.Raw = EMPTY
    placeholder: msgspec.Raw = EMPTY
    prefill: msgspec.Raw = EMPTY
    timeout: msgspec.Raw = EMPTY
    text: msgspec.Raw = EMPTY
    notify_type: msgspec.Raw = EMPTY
    status_key: msgspec.Raw = EMPTY
    status_text: msgspec.Raw = EMPTY
    widget_key: msgspec.Raw = EMPTY
    widget_lines: msgspec.Raw = EMPTY
    widget_placement: msgspec.Raw = EMPTY


def is_present(field: msgspec.Raw) -> bool:
    """Whether a raw field was in the line: an absent one is the default object itself."""
    return field is not EMPTY


class PiCost(msgspec.Struct, frozen=True):
    """US dollars of one model call; 0 where pi knows no price."""

    total: float = 0.0


class PiUsage(msgspec.Struct, frozen=True):
    """Tokens of one model call, and what they cost."""

    input: int = 0
    output: int = 0
    cacheRead: int = 0  # noqa: N815 - pi's spelling, used nowhere else
    cacheWrite: int = 0  # noqa: N815 - the same
    cost: PiCost | None = None


class AssistantMessageEnd(msgspec.Struct, frozen=True, rename="camel"):
    """The ``message`` of a ``message_end``; ``content`` stays raw, since a user's may be megabytes."""

    role: str = ""
    content: msgspec.Raw = EMPTY
    usage: PiUsage = PiUsage()
    stop_reason: str | None = None
    error_message: str | None = None


class PiToolOutput(msgspec.Struct, frozen=True):
    """The ``result`` or ``partialResult`` of a tool."""

    content: msgspec.Raw = EMPTY


class ModelRef(msgspec.Struct, frozen=True):
    """Which model the session uses; pi says ``unknown`` for both when none is configured."""

    id: str
    provider: str

    @property
    def is_known(self) -> bool:
        """Whether a prompt has a chance."""
        return "unknown" not in (self.id, self.provider)


class PiState(msgspec.Struct, frozen=True, rename="camel"):
    """The ``data`` of a ``get_state`` answer."""

    session_id: str
    session_file: str | None = None
    model: ModelRef | None = None
    thinking_level: str | None = None
    is_streaming: bool = False
    is_compacting: bool = False
    message_count: int = 0
    pending_message_count: int = 0


class SessionChangeResult(msgspec.Struct, frozen=True):
    """The ``data`` of a ``new_session`` or ``switch_session`` answer: an extension may have said no."""

    cancelled: bool = False


class _PiContentBlock(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


_blocks_decoder: msgspec.json.Decoder[list[_PiContentBlock] | str] = msgspec.json.Decoder(list[_PiContentBlock] | str)


def content_text(content: msgspec.Raw) -> str:
    """The text blocks of a message's raw ``content``, joined; "" when there are none or it has another shape."""
    try:
        blocks = _blocks_decoder.decode(content)
    except DECODE_ERRORS:
        blocks = _decode_leniently(content)
    if isinstance(blocks, str):
        return blocks
    return "".join(block.text for block in blocks if block.type == "text")


def _decode_leniently(content: msgspec.Raw) -> list[_PiContentBlock] | str:
    """The same where a text was cut inside an emoji: half a surrogate pair is fine in JavaScript and nowhere else."""
    try:
        plain = json.dumps(json.loads(bytes(content)), ensure_ascii=False)
        whole = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return _blocks_decoder.decode(whole)
    except (*DECODE_ERRORS, ValueError):
        return ""


ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


class PiCommand(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type", tag="command"
):
    """A line to pi; ``id`` comes back in its answer."""

    id: str = ""

    @property
    def type(self) -> str:
        """The command's name on the wire."""
        return str(self.__struct_config__.tag)


class PiPrompt(PiCommand, frozen=True, tag="prompt"):
    """Start a run; with ``streaming_behavior`` join one that is on, or start one when it has just ended."""

    message: str
    images: list[ImageContent] = []
    streaming_behavior: Literal["steer", "followUp"] | None = None


class PiAbort(PiCommand, frozen=True, tag="abort"):
    """End the run, or the wait before a retry."""


class PiAbortBash(PiCommand, frozen=True, tag="abort_bash"):
    """End what ``bash`` started."""


class PiBash(PiCommand, frozen=True, tag="bash"):
    """Run a shell command for the user, outside any run; ignores pi's tool allow-list."""

    command: str


class PiClearQueue(PiCommand, frozen=True, tag="clear_queue"):
    """Drop the texts that wait for a run; releases before 0.84.4 do not know it."""


class PiCompact(PiCommand, frozen=True, tag="compact"):
    """Summarise the conversation."""

    custom_instructions: str | None = None


class PiGetState(PiCommand, frozen=True, tag="get_state"):
    """Answered at once, also in a run: pi's ping."""


class PiGetMessages(PiCommand, frozen=True, tag="get_messages"):
    """The conversation."""


class PiGetCommands(PiCommand, frozen=True, tag="get_commands"):
    """Extension commands, prompt templates, skills."""


class PiNewSession(PiCommand, frozen=True, tag="new_session"):
    """A fresh conversation; kills a run without a word."""

    parent_session: str | None = None


class PiSwitchSession(PiCommand, frozen=True, tag="switch_session"):
    """Another conversation; a path that is no transcript is answered ``success`` and overwritten."""

    session_path: str


class PiSetModel(PiCommand, frozen=True, tag="set_model"):
    """Also written to the settings file of the agent dir."""

    provider: str
    model_id: str


class PiSetThinkingLevel(PiCommand, frozen=True, tag="set_thinking_level"):
    """The same; a level that pi does not know is answered ``success`` and means ``off``."""

    level: ThinkingLevel


class PiUiResponse(PiCommand, frozen=True, tag="extension_ui_response"):
    """A person's answer to a dialog; ``id`` is the dialog's. Never answered."""

    value: str | None = None
    confirmed: bool | None = None
    cancelled: bool | None = None


_encode = msgspec.json.Encoder().encode


def encode_command(command: PiCommand) -> bytes:
    """The command as one whole line."""
    return _encode(command) + b"\n"


_NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
_AbsolutePath = Annotated[str, msgspec.Meta(pattern="^/[^\x00]+$")]


class PiNoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For methods without parameters."""


class PiNewSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``new_session``: ``parent_session`` is the transcript that the new one refers to."""

    parent_session: _AbsolutePath | None = None


class PiSwitchSessionParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``switch_session``: the transcript's absolute path; the worker's own directory may be another."""

    session_file: _AbsolutePath


class PiSetModelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_model``."""

    provider: _NonEmptyText
    model: _NonEmptyText


class PiSetThinkingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``set_thinking``: off, minimal, low, medium, high or xhigh."""

    level: ThinkingLevel


class PiBashParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``bash``."""

    command: _NonEmptyText
