"""Whether a tool call may run: the rules that need no person and no hook, in one fixed order, pure.

Known -> input fits -> deny list -> list of what needs approval -> mode. The first rule that objects decides; hooks come
after all of them and may only be stricter. The allow list (``--tools``) is part of the first: other tools do not exist.

Input for a running command counts as a call of ``exec`` as well: the lists of both tools apply.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from agent.processes.asking import INPUT_ACTIONS, ProcessInput
from agent.results import Result, denied, failure, of_error
from agent.tools.base import Tool, ToolError
from agent.tools.schema import arguments_of
from wire.entries import CallState, ToolUseBlock

__all__ = ["HARMLESS", "Allowed", "Mode", "Needed", "Policy", "Refused", "Verdict", "is_free", "judge"]

Mode = Literal["auto", "approval", "readonly"]
"""``auto``: run; ``approval``: ask a person about every call; ``readonly``: only tools that change nothing."""

HARMLESS = frozenset({"read", "none"})
_SHOWN = 100


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """``deny`` and ``require_approval`` name tools."""

    mode: Mode = "auto"
    deny: frozenset[str] = frozenset()
    require_approval: frozenset[str] = frozenset()


class Allowed(msgspec.Struct, frozen=True):
    """It may run, with this input in its shape."""

    tool: Tool
    arguments: Any


class Needed(msgspec.Struct, frozen=True):
    """It may run once a person has allowed it; ``reason`` says why one is asked."""

    tool: Tool
    arguments: Any
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """It may not run: DENIED by a rule, or FAILED since it makes no sense. ``result`` is for the model."""

    state: Literal[CallState.DENIED, CallState.FAILED]
    result: Result


Verdict: TypeAlias = Allowed | Needed | Refused


def judge(call: ToolUseBlock, tools: Mapping[str, Tool], policy: Policy) -> Verdict:
    """What the rules say about one call."""
    tool = tools.get(call.name)
    if tool is None:
        return Refused(CallState.FAILED, _unknown(call.name, tools))
    try:
        arguments = arguments_of(tool, call.input)
    except ToolError as exc:
        return Refused(CallState.FAILED, of_error(exc))
    ruling, reason = _by_lists(tool.name, arguments, policy) or _by_mode(tool, policy)
    match ruling:
        case "deny":
            return Refused(CallState.DENIED, denied(tool.name, reason))
        case "ask":
            return Needed(tool, arguments, reason)
        case "allow":
            return Allowed(tool, arguments)


_Ruling: TypeAlias = tuple[Literal["allow", "ask", "deny"], str]
"""What a rule says, and why."""


def is_free(name: str, policy: Policy) -> bool:
    """Whether calls of a tool with effects run without approval."""
    return policy.mode == "auto" and name not in policy.deny and name not in policy.require_approval


def _by_lists(name: str, arguments: Any, policy: Policy) -> _Ruling | None:
    feeds_a_command = isinstance(arguments, ProcessInput) and arguments.action in INPUT_ACTIONS
    if name in policy.deny:
        return "deny", "it is on the deny list"
    if feeds_a_command and "exec" in policy.deny:
        return "deny", "it is input for a command, and exec is on the deny list"
    if name in policy.require_approval:
        return "ask", "it is on the list of tools that need approval"
    if feeds_a_command and "exec" in policy.require_approval:
        return "ask", "it is input for a command, and exec is on the list of tools that need approval"
    return None


def _by_mode(tool: Tool, policy: Policy) -> _Ruling:
    match policy.mode:
        case "auto":
            return "allow", ""
        case "approval":
            return "ask", "every call needs approval"
        case "readonly" if tool.effects in HARMLESS:
            return "allow", ""
        case "readonly":
            return "deny", "this session may only read"


def _unknown(name: str, tools: Mapping[str, Tool]) -> Result:
    there_are = ", ".join(sorted(tools)) or "none"
    return failure(
        f"there is no tool {name[:_SHOWN]!r}; available: {there_are}",
        "validation",
        recommendations=["Call one of the tools that there are."],
    )
