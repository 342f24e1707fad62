"""Event types: the channel and durability of each, and the one table by which every front end displays them.

A type that is not listed is a monitor event: a report of the pool, or ``worker:NAME`` for a worker's event that this
version does not know. Front ends display such an event by its fields.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self

import msgspec


class EventChannel(StrEnum):
    """Who an event is for: a UI that draws, a person who must decide, or an operator."""

    PROGRESS = "progress"
    CONTROL = "control"
    MONITOR = "monitor"


class EventDisplay(msgspec.Struct, frozen=True, kw_only=True):
    """How front ends show one type of event.

    ``line`` holds the parts of its description, joined by ``separator``; empty where a front end has its own. ``{a.b}``
    is a field of the data, of a list its length; ``{a?words}`` is ``words`` if the field is set, ``{a=b?words}`` if it
    is ``b``. A part without a value for its field is left out.
    """

    line: tuple[str, ...] = ()
    detail: str = ""
    """One more part, for front ends with room for a long line."""
    separator: str = ", "
    tone: Literal["", "good", "warn", "bad"] = ""
    text: Literal["", "text", "think"] = ""
    """Whose running text it carries: the answer's or the reasoning's."""
    mark: Literal["", "!", "·"] = ""
    """What stands before its line beside an answer that is being printed; empty: it is not shown there."""
    is_activity: bool = True
    """Whether it shows what a session is doing."""
    session_change: Literal["", "state", "patch", "reset", "delete"] = ""
    """The ``reason`` of the WebSocket's ``sessions.changed``."""


class EventType(StrEnum):
    """The gateway's events.

    Attributes:
        channel: the channel of every event of this type.
        is_durable: whether readers see an event of this type only after its commit; control events always are.
        is_session_wide: whether followers of a single run see it although it belongs to none.
        display: how front ends show it.
    """

    channel: EventChannel
    is_durable: bool
    is_session_wide: bool
    display: EventDisplay

    def __new__(cls, value: str, channel: EventChannel, flags: str = "", display: EventDisplay | None = None) -> Self:
        """``flags``: ``durable`` and ``session-wide``, separated by a space."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.channel = channel
        member.is_durable = channel is EventChannel.CONTROL or "durable" in flags
        member.is_session_wide = "session-wide" in flags
        member.display = display or EventDisplay()
        return member

    RUN_ACCEPTED = (
        "run:accepted",
        EventChannel.PROGRESS,
        "durable",
        EventDisplay(
            line=(
                *("{mode}", "lane {lane}", "priority {priority}"),
                "{awaits_person?the session waits for a person's answer first}",
            ),
            is_activity=False,
        ),
    )
    RUN_START = "run:start", EventChannel.PROGRESS, "durable", EventDisplay(line=("on {worker}", "turn {turn}"))
    DONE = (
        "done",
        EventChannel.PROGRESS,
        "durable",
        EventDisplay(
            line=(
                *("{reason}", "{error.message}", "on {worker}"),
                "{usage.input_tokens} + {usage.output_tokens} tokens",
            ),
            detail="{text}",
            tone="good",
        ),
    )

    TEXT_CHUNK = "text_chunk", EventChannel.PROGRESS, "", EventDisplay(line=("{delta}",), text="text")
    TEXT_SNAPSHOT = "text_snapshot", EventChannel.PROGRESS, "", EventDisplay(line=("{text}",), text="text")
    THINK_CHUNK = "think_chunk", EventChannel.PROGRESS, "", EventDisplay(line=("{delta}",), text="think")
    THINK_SNAPSHOT = "think_snapshot", EventChannel.PROGRESS, "", EventDisplay(line=("{text}",), text="think")
    REPLY = "reply", EventChannel.PROGRESS
    TOOL_START = "tool:start", EventChannel.PROGRESS
    TOOL_RUNNING = "tool:running", EventChannel.PROGRESS
    TOOL_UPDATE = "tool:update", EventChannel.PROGRESS
    TOOL_ERROR = "tool:error", EventChannel.PROGRESS, "", EventDisplay(tone="bad")
    TOOL_END = "tool:end", EventChannel.PROGRESS
    COMPACTION_START = (
        "compaction:start",
        EventChannel.PROGRESS,
        "",
        EventDisplay(line=("the conversation is being compacted", "({reason})"), separator=" ", mark="·"),
    )
    COMPACTION_END = "compaction:end", EventChannel.PROGRESS, "", EventDisplay(mark="·")
    ALERT = "alert", EventChannel.PROGRESS, "durable session-wide"

    PERMISSION_REQUIRED = "permission_required", EventChannel.CONTROL, "", EventDisplay(tone="warn")
    PERMISSION_DECIDED = (
        "permission_decided",
        EventChannel.CONTROL,
        "",
        EventDisplay(line=("{decision}", "{call_id}", "by {by}", "{note}"), separator=" ", mark="·"),
    )
    UI_REQUEST = "ui_request", EventChannel.CONTROL, "", EventDisplay(tone="warn")
    UI_RESOLVED = "ui_resolved", EventChannel.CONTROL

    ERROR = (
        "error",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{severity}", "{phase}:", "{message}"), separator=" ", tone="bad", mark="!"),
    )
    TOOL_EXECUTED = "tool_executed", EventChannel.MONITOR
    AGENT_RESUMED = (
        "agent_resumed",
        EventChannel.MONITOR,
        "session-wide",
        EventDisplay(
            line=(
                "{strategy=kept?this worker still had the conversation}",
                "{strategy=loaded?the agent has loaded the conversation}",
                "{strategy=resumed?the agent has resumed the conversation}",
                (
                    "{strategy=refed?the agent has lost its memory of the conversation and its tool calls; "
                    "it was given the end of the transcript}"
                ),
                "the session was interrupted; tool calls sealed: {sealed}",
            ),
            mark="!",
        ),
    )
    TOKEN_USAGE = (
        "token_usage",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{input_tokens} in", "{output_tokens} out"), is_activity=False),
    )
    CONTEXT_USAGE = (
        "context_usage",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{used} of {size} tokens in context",), is_activity=False),
    )
    BACKGROUND = "background", EventChannel.MONITOR, "", EventDisplay(is_activity=False)
    TODO_CHANGED = "todo_changed", EventChannel.MONITOR
    FILE_CHANGED = "file_changed", EventChannel.MONITOR
    EXEC_EXIT = "exec_exit", EventChannel.MONITOR, "durable session-wide", EventDisplay(line=("{summary}",), mark="·")
    EXEC_LOST = "exec_lost", EventChannel.MONITOR, "durable"
    SYSTEM_EVENT = "system_event", EventChannel.MONITOR, "durable"
    DELEGATE_DONE = "delegate_done", EventChannel.MONITOR
    HEARTBEAT = "heartbeat", EventChannel.MONITOR, "durable"
    CRON = "cron", EventChannel.MONITOR, "", EventDisplay(line=("{job}", "{status}", "{error}"), separator=": ")
    STATE_CHANGED = (
        "state_changed",
        EventChannel.MONITOR,
        "",
        EventDisplay(
            line=("{from}", "->", "{to}", "({reason})"), separator=" ", is_activity=False, session_change="state"
        ),
    )
    SESSION_PATCHED = "session_patched", EventChannel.MONITOR, "", EventDisplay(session_change="patch")
    SESSION_RESET = "session_reset", EventChannel.MONITOR, "", EventDisplay(session_change="reset")
    SESSION_DELETED = "session_deleted", EventChannel.MONITOR, "", EventDisplay(session_change="delete")
    SESSION_BOUND = "session_bound", EventChannel.MONITOR, "", EventDisplay(is_activity=False)
    SESSION_PARKED = "session_parked", EventChannel.MONITOR, "", EventDisplay(is_activity=False)


EVENT_TYPES: Mapping[str, EventType] = {str(type_): type_ for type_ in EventType}

DEFAULT_DISPLAY = EventDisplay()
"""Of a type that is not listed."""

TEXT_KINDS: Mapping[str, str] = {str(type_): type_.display.text for type_ in EventType if type_.display.text}
"""Types of events that carry running text, and whose it is: ``text`` is the answer's, ``think`` the reasoning's."""

ANSWER_TEXT_EVENTS = frozenset(type_ for type_, text in TEXT_KINDS.items() if text == "text")


def channel_of(type_: str) -> EventChannel:
    """The channel of an event of this type."""
    known = EVENT_TYPES.get(type_)
    return EventChannel.MONITOR if known is None else known.channel


def display_of(type_: str) -> EventDisplay:
    """How an event of this type is shown."""
    known = EVENT_TYPES.get(type_)
    return DEFAULT_DISPLAY if known is None else known.display


_FIELD = re.compile(r"\{([\w.]+)(?:=(\w+))?(?:\?([^}]*))?\}")


def display_line(display: EventDisplay, data: Mapping[str, Any]) -> str:
    """The description of an event with a ``line``, not yet cleaned of control characters."""
    filled = (_fill(part, data) for part in display.line)
    return display.separator.join(part for part in filled if part)


def _fill(part: str, data: Mapping[str, Any]) -> str:
    texts = []
    for path, wanted, words in _FIELD.findall(part):
        value: Any = data
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None or value == "" or (words and not value) or (wanted and value != wanted):
            return ""
        texts.append(words or str(len(value) if isinstance(value, list) else value))
    remaining = iter(texts)
    return _FIELD.sub(lambda _match: next(remaining), part)
