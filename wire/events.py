"""Event types: the channel and durability of each, and the one table by which every front end displays them.

A name is words joined by ``_``; what goes through phases has them behind a colon (``PHASED``). A type that is not
listed is a monitor event: a report of the pool, or ``worker:NAME`` for a worker's event that this version does not
know. Front ends display such an event by its fields.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self

import msgspec

PHASED = frozenset({"run", "tool", "compaction"})
"""What has events of the form ``SUBJECT:PHASE``."""


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
    is_internal: bool = False
    """Whether it says how the pool works rather than what agents do: a list of events hides it at first."""
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
            detail="{text}",
            is_activity=False,
        ),
    )
    """A run is accepted and durable. ``lane``, ``priority``, ``mode``, ``text`` (its beginning, ``truncated`` where
    cut; absent for a beat), ``awaits_person``."""
    RUN_START = (
        "run:start",
        EventChannel.PROGRESS,
        "durable",
        EventDisplay(line=("on {worker}", "turn {turn}"), is_internal=True),
    )
    """Its turn begins. ``worker``, ``turn``, ``leader`` (the run that the turn is of; others may have been put into
    it)."""
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
    """Its one outcome. ``reason``, ``text`` (``truncated`` where cut), ``error``, ``usage``, ``worker``, ``media``,
    ``silent``, ``calls`` (what the caller is to do), ``step``, ``stop_reason``."""

    TEXT_CHUNK = "text_chunk", EventChannel.PROGRESS, "", EventDisplay(line=("{delta}",), text="text")
    """A piece of the answer: ``delta``."""
    TEXT_SNAPSHOT = "text_snapshot", EventChannel.PROGRESS, "", EventDisplay(line=("{text}",), text="text")
    """All of the answer so far, in place of its pieces: ``text``."""
    THINK_CHUNK = "think_chunk", EventChannel.PROGRESS, "", EventDisplay(line=("{delta}",), text="think")
    """A piece of the reasoning: ``delta``."""
    THINK_SNAPSHOT = "think_snapshot", EventChannel.PROGRESS, "", EventDisplay(line=("{text}",), text="think")
    """All of the reasoning so far: ``text``."""
    REPLY = "reply", EventChannel.PROGRESS, "", EventDisplay(is_internal=True)
    """A part of the answer, for callers that asked for parts (``blocks``). ``kind``, ``text``, ``media``."""
    TOOL_START = "tool:start", EventChannel.PROGRESS
    """The agent makes a tool call. ``call`` (``id``, ``name``, ``input_preview``, ``state``), ``details``."""
    TOOL_RUNNING = "tool:running", EventChannel.PROGRESS, "", EventDisplay(is_internal=True)
    """An approved call runs. ``call``, ``details``."""
    TOOL_UPDATE = "tool:update", EventChannel.PROGRESS, "", EventDisplay(is_internal=True)
    """New output. ``call``, ``tail`` (its end so far), ``details``."""
    TOOL_ERROR = "tool:error", EventChannel.PROGRESS, "", EventDisplay(tone="bad")
    """The call has failed; a ``tool:end`` follows from most agents. ``call``, ``error``, ``details``."""
    TOOL_END = "tool:end", EventChannel.PROGRESS
    """The call has ended. ``call``, ``result`` (cut to about 8,000 characters), ``error``, ``details``."""
    COMPACTION_START = (
        "compaction:start",
        EventChannel.PROGRESS,
        "",
        EventDisplay(line=("the conversation is being compacted", "({reason})"), separator=" ", mark="·"),
    )
    """The agent compacts its conversation. ``reason``."""
    COMPACTION_END = "compaction:end", EventChannel.PROGRESS, "", EventDisplay(mark="·")
    """It has. ``reason``, ``aborted``, ``error``."""
    ALERT = "alert", EventChannel.PROGRESS, "durable session-wide"
    """An agent reports something unasked. ``id``, ``agent``, ``reason``, ``to``, ``ts``, ``text``, ``media``."""

    PERMISSION_REQUIRED = "permission_required", EventChannel.CONTROL, "", EventDisplay(tone="warn")
    """A tool call waits for a person. ``call``, ``reason``, ``shown`` (the whole call, or its beginning), ``options``
    (answers that the agent offers)."""
    PERMISSION_DECIDED = (
        "permission_decided",
        EventChannel.CONTROL,
        "",
        EventDisplay(line=("{decision}", "{call_id}", "by {by}", "{note}"), separator=" ", mark="·"),
    )
    """It waits no longer. ``call_id``, ``decision``, ``by``, ``note``."""
    UI_REQUEST = "ui_request", EventChannel.CONTROL, "", EventDisplay(tone="warn")
    """An agent's extension asks something. ``id``, ``method``, and what the dialog shows."""
    UI_RESOLVED = "ui_resolved", EventChannel.CONTROL
    """It has been answered, or its turn has ended. ``id``, ``reason``."""

    ERROR = (
        "error",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{severity}", "{phase}:", "{message}"), separator=" ", tone="bad", mark="!"),
    )
    """Something went wrong. ``severity`` (info, warn, error), ``phase`` (model, tool, system, lifecycle), ``message``,
    ``detail``, ``agent``."""
    TOOL_EXECUTED = "tool_executed", EventChannel.MONITOR, "", EventDisplay(is_internal=True)
    """A call took effect. ``call``, ``ok``, ``approval`` (why it was needed, and who decided)."""
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
                "{cause=less?it had less than the transcript}",
                "{cause=error?it refused to load it}",
                "in its words: {error}",
                "the session was interrupted; tool calls sealed: {sealed}",
            ),
            mark="!",
        ),
    )
    """Another worker goes on with the conversation. ``sealed`` (calls that were left open), ``strategy`` (kept,
    loaded, resumed, refed), ``cause`` (why it was refed: unsupported, less, error), ``error`` (the agent's
    own words, where it refused)."""
    TOKEN_USAGE = (
        "token_usage",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{input_tokens} in", "{output_tokens} out"), is_activity=False, is_internal=True),
    )
    """Tokens of a model call. ``input_tokens``, ``output_tokens``."""
    CONTEXT_USAGE = (
        "context_usage",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{used} of {size} tokens in context",), is_activity=False, is_internal=True),
    )
    """How much of the model's context the conversation uses. ``used``, ``size``: tokens."""
    BACKGROUND = "background", EventChannel.MONITOR, "", EventDisplay(is_activity=False, is_internal=True)
    """How many background commands of the worker run. ``running``."""
    TODO_CHANGED = "todo_changed", EventChannel.MONITOR, "", EventDisplay(is_internal=True)
    """The agent's list of tasks, as the agent has it."""
    FILE_CHANGED = "file_changed", EventChannel.MONITOR, "", EventDisplay(is_internal=True)
    """The agent has written a file; the data is the agent's own (``path``, ...)."""
    EXEC_EXIT = "exec_exit", EventChannel.MONITOR, "durable session-wide", EventDisplay(line=("{summary}",), mark="·")
    """A background command has ended. ``session_id`` (its name), ``summary``, ``worker``, ``exit_code``, ``signal``,
    ``timed_out``."""
    EXEC_LOST = "exec_lost", EventChannel.MONITOR, "durable"
    """Background commands have died with their worker. ``worker``, ``commands`` (how many), ``names``, ``reason``."""
    SYSTEM_EVENT = "system_event", EventChannel.MONITOR, "durable"
    """A notice is queued for the session. ``id``, ``kind``, ``text``, ``context``."""
    DELEGATE_DONE = "delegate_done", EventChannel.MONITOR
    """A delegated task has ended. ``run_id``, ``session`` (where it ran), ``status``, ``text``."""
    HEARTBEAT = "heartbeat", EventChannel.MONITOR, "durable"
    """What became of a beat, or of an alert. ``state``, ``agent``, ``session``, ``reason``, ``at``, ``took``,
    ``skipped``, ``problem``, ``run``, ``text``, ``events``; of an alert ``id``, ``to``, ``attempts``, ``error``."""
    CRON = "cron", EventChannel.MONITOR, "", EventDisplay(line=("{job}", "{status}", "{error}"), separator=": ")
    """A scheduled job has begun or ended. ``job``, ``run``, ``due``, ``status``, ``error``."""
    STATE_CHANGED = (
        "state_changed",
        EventChannel.MONITOR,
        "",
        EventDisplay(
            line=(
                *("{from=READY?idle}", "{from=WORKING?working}", "{from=PAUSED?approval}"),
                *("->", "{to=READY?idle}", "{to=WORKING?working}", "{to=PAUSED?approval}", "({reason})"),
            ),
            separator=" ",
            is_activity=False,
            is_internal=True,
            session_change="state",
        ),
    )
    """A session is READY, WORKING or PAUSED. ``from``, ``to``, ``reason``."""
    SESSION_PATCHED = (
        "session_patched",
        EventChannel.MONITOR,
        "",
        EventDisplay(is_internal=True, session_change="patch"),
    )
    """A session's own settings have changed. ``changed`` (their names)."""
    SESSION_RESET = "session_reset", EventChannel.MONITOR, "", EventDisplay(session_change="reset")
    """A session begins a new conversation. ``transcript`` (of the old one)."""
    SESSION_DELETED = "session_deleted", EventChannel.MONITOR, "", EventDisplay(session_change="delete")
    """A session is deleted. ``transcript``."""
    SESSION_BOUND = "session_bound", EventChannel.MONITOR, "", EventDisplay(is_activity=False, is_internal=True)
    """A session has got a worker. ``session``, ``worker``, ``level`` (how well it matched)."""
    SESSION_PARKED = "session_parked", EventChannel.MONITOR, "", EventDisplay(is_activity=False, is_internal=True)
    """A session has given up its worker; its transcript stays. ``session``, ``worker``, ``reason``."""

    NODE_JOINED = (
        "node_joined",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("node {node}", "group {group}", "by {engine}", "{slots} slots", "{note}"), tone="good"),
    )
    """A node of the cluster takes workers. ``node``, ``group``, ``engine``, ``slots``, ``note`` (what limits them)."""
    NODE_REFUSED = (
        "node_refused",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("node {node}", "{reason}"), separator=": ", tone="warn"),
    )
    """A node may not join, or cannot. ``node`` (empty where it did not say), ``reason``."""
    NODE_LOST = (
        "node_lost",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("node {node}", "{reason}", "{workers} workers"), tone="bad", mark="!"),
    )
    """A node is out of reach: turns there fail, sessions go on elsewhere once it is fenced. ``node``, ``reason``,
    ``workers`` (how many it had)."""
    NODE_FENCED = "node_fenced", EventChannel.MONITOR, "", EventDisplay(line=("node {node}",), is_internal=True)
    """Nothing of a lost node can run any more. ``node``."""
    NODE_DRAINED = "node_drained", EventChannel.MONITOR, "", EventDisplay(line=("node {node} is empty",))
    """A node that was to be empty is. ``node``."""
    ENGINE_LOST = (
        "engine_lost",
        EventChannel.MONITOR,
        "",
        EventDisplay(line=("{engine}", "{reason}"), separator=": ", tone="warn"),
    )
    """What starts node programs cannot go on; its nodes stay. ``engine``, ``reason``, ``again_in`` (seconds)."""
    CLUSTER_READY = "cluster_ready", EventChannel.MONITOR, "", EventDisplay(line=("{address}",), is_internal=True)
    """Node programs may dial. ``address``, ``fingerprint`` (of the certificate)."""


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


TROUBLE_TYPES = frozenset({"breaker_opened", "breaker_closed", "session_failed", "worker_contaminated", "guard_lost"})
"""Reports of the pool that tell of trouble; its others are internals."""


def is_listed(type_: str) -> bool:
    """Whether a list of events shows this type at first: neither pieces of text nor how the pool works."""
    known = EVENT_TYPES.get(type_)
    return type_ in TROUBLE_TYPES if known is None else not (known.display.is_internal or type_ in TEXT_KINDS)


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
