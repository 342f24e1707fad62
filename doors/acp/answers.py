"""Results for an editor: what the pool can do, a session's options, pages of sessions, how a prompt ended. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from doors.acp.jsonrpc import INVALID_PARAMS, EditorError
from doors.acp.procedures import OwnRun, as_editor_error
from doors.acp.requests import ListedSession, RunEnded, SessionSettings
from wire.messages import ErrorBody

PROTOCOL_VERSION = 1
DEFAULT_VALUE = "default"
"""Of an option: as the agent's definition says."""
_OPTION_NAMES = {"model": "model", "thought_level": "thinking"}
_PAGE = 50
_NAMED = 50
"""Values that an error names."""


def initialize_result(version: str) -> dict[str, Any]:
    """What the pool can do, the same for every client."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
        },
        "agentInfo": {"name": "agent-pool", "title": "Agent pool", "version": version},
        "authMethods": [],
        "_meta": {"steering": {"supported": True}},
    }


# --- options ----------------------------------------------------------------------------------------------------------


def config_options(settings: SessionSettings) -> list[dict[str, Any]]:
    """All options of a session, with the values that its agent offers, as far as these are known, and what is set."""
    return [
        _select("model", "Model", settings.models, settings.model),
        _select("thought_level", "Thinking", settings.thinking_levels, settings.thinking),
    ]


def option_name(config_id: str) -> str:
    """The pool's name for an option. Raises EditorError for one that there is not."""
    try:
        return _OPTION_NAMES[config_id]
    except KeyError:
        text = f"params.configId: there is no option {config_id[:100]!r}; there are {' and '.join(_OPTION_NAMES)}"
        raise EditorError(INVALID_PARAMS, text) from None


def option_value(name: str, value: str, settings: SessionSettings) -> str | None:
    """What an option is to be; None: as the definition says. Raises EditorError that names what is offered."""
    if value == DEFAULT_VALUE:
        return None
    offered = settings.models if name == "model" else settings.thinking_levels
    if value not in offered and not (name == "model" and settings.any_model):
        known = ", ".join([DEFAULT_VALUE, *offered[:_NAMED]]) + (", ..." if len(offered) > _NAMED else "")
        raise EditorError(INVALID_PARAMS, f"params.value: {value[:100]!r} is none of {known}")
    return value


def _select(identity: str, name: str, offered: Iterable[str], current: str | None) -> dict[str, Any]:
    values = dict.fromkeys([*offered, *([] if current is None else [current])])
    options = [{"value": DEFAULT_VALUE, "name": "As the agent says"}, *({"value": v, "name": v} for v in values)]
    return {
        "id": identity,
        "name": name,
        "category": identity,
        "type": "select",
        "currentValue": current or DEFAULT_VALUE,
        "options": options,
    }


# --- lists ------------------------------------------------------------------------------------------------------------


def session_page(sessions: Iterable[ListedSession], cwd: str | None, cursor: str | None) -> dict[str, Any]:
    """A page of ``session/list``, the one used last first. ``cwd``: as the editor writes the directory of all of them.

    Raises EditorError for a cursor that no page had.
    """
    ordered = sorted((_place(each), each) for each in sessions if each.cwd is not None)
    if cursor is not None:
        after = _read_cursor(cursor)
        ordered = [(place, each) for place, each in ordered if place > after]
    page = [each for _place, each in ordered[:_PAGE]]
    result: dict[str, Any] = {"sessions": [_session_info(each, cwd) for each in page]}
    if len(ordered) > _PAGE:
        result["nextCursor"] = f"{page[-1].updated_at!r} {page[-1].key}"
    return result


def _place(session: ListedSession) -> tuple[float, str]:
    return -session.updated_at, session.key


def _read_cursor(cursor: str) -> tuple[float, str]:
    updated_at, _, key = cursor.partition(" ")
    try:
        return -float(updated_at), key
    except ValueError as exc:
        raise EditorError(INVALID_PARAMS, f"params.cursor: no page ends with {cursor[:100]!r}") from exc


def _session_info(session: ListedSession, cwd: str | None) -> dict[str, Any]:
    updated_at = datetime.fromtimestamp(session.updated_at, UTC).isoformat(timespec="milliseconds")
    info = {"sessionId": session.key, "cwd": cwd or session.cwd, "updatedAt": updated_at.replace("+00:00", "Z")}
    return info if session.label is None else {**info, "title": session.label}


# --- the end of a prompt ----------------------------------------------------------------------------------------------

_STOP_REASONS = {"completed": "end_turn", "tool_calls": "end_turn", "interrupted": "cancelled", "length": "max_tokens"}


def prompt_result(run: OwnRun, end: RunEnded) -> dict[str, Any]:
    """How a prompt ended. Raises EditorError where it failed."""
    if end.reason == "length" and end.stop_reason == "max_steps":
        return {"stopReason": "max_turn_requests"}
    if end.reason in _STOP_REASONS:
        return {"stopReason": _STOP_REASONS[end.reason]}
    error = end.error or ErrorBody("error", f"the run ended with {end.reason}")
    if error.code == "refusal":
        return {"stopReason": "refusal"}
    failed = as_editor_error(error, run=run.id)
    raise failed if failed.code != INVALID_PARAMS else EditorError(-32603, failed.message, failed.data)
