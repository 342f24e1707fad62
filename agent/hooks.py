"""What hooks import: the names of hooks, what they are given and what they may answer."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

HOOK_NAMES = (
    "session_start",
    "session_end",
    "before_agent_start",
    "agent_end",
    "before_compaction",
    "after_compaction",
    "before_tool_call",
    "after_tool_call",
    "tool_result_persist",
)
"""A hook is a function of one of these names, plain or async (trio)."""


class Hook(NamedTuple):
    """One function, and where it is from, for messages."""

    name: str
    function: Callable[..., Any]
    source: str


class HookFailed(Exception):
    """A hook raised, took too long, or answered what makes no sense; the message names it."""


class SessionInfo(msgspec.Struct, frozen=True):
    """``session_start`` and ``session_end``; ``reason``: start, new, switch or shutdown."""

    session_id: str
    session_file: str | None
    reason: str


class AgentStart(msgspec.Struct, frozen=True):
    """``before_agent_start``: the prompt as it will be sent, and what stands before it.

    ``messages``: the conversation so far, oldest first, as in the transcript: ``{role, content: [blocks], ...}``.
    """

    text: str
    system_prompt: str
    messages: list[dict[str, Any]] = []


class AgentEnd(msgspec.Struct, frozen=True):
    """``agent_end``: how a run ended; ``messages``: the conversation so far, as in ``AgentStart``."""

    run_id: str
    stop_reason: str
    text: str
    error: str | None = None
    messages: list[dict[str, Any]] = []


class CompactionInfo(msgspec.Struct, frozen=True):
    """``before_compaction`` and ``after_compaction``: messages at that moment; the summary only after it."""

    messages: int
    instructions: str | None = None
    summary: str | None = None


class SystemPrompt(msgspec.Struct, frozen=True):
    """``before_agent_start``: use this system prompt in the run. A plain string is put before the user's text."""

    text: str


class Deny(msgspec.Struct, frozen=True):
    """``before_tool_call``: do not run it; the model reads the note."""

    note: str = ""


class Ask(msgspec.Struct, frozen=True):
    """``before_tool_call``: run it only when a person allows it."""

    reason: str = ""


class UseResult(msgspec.Struct, frozen=True):
    """``before_tool_call``: do not run it, this is its result (JSON). Of no effect where a person is to be asked."""

    data: Any


class Change(msgspec.Struct, frozen=True):
    """``before_tool_call``: run it with this input (a JSON object) instead, which the rules judge again.

    ``then``: the hook's verdict on the changed call.
    """

    input: dict[str, Any]
    then: Deny | Ask | UseResult | None = None


ToolVerdict: TypeAlias = Deny | Ask | UseResult | Change | None
"""None: no objection."""
