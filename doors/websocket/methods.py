"""The methods of the protocol: scope, parameters and function of each."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec

from doors.http.errors import HttpError
from doors.http.tokens import Scope
from doors.websocket import gateway_methods as gateway
from doors.websocket import run_methods as runs
from doors.websocket import session_methods as sessions
from doors.websocket.peer import MethodRequest, NoMethodParams
from errors import UsageError
from wire.framing import DECODE_ERRORS


class Method(NamedTuple):
    """``scope`` None: it needs the right to approve. ``ignored``: parameters that are taken and have no effect."""

    scope: Scope | None
    params: type[msgspec.Struct]
    run: Callable[[MethodRequest, Any], Awaitable[Any]]
    ignored: frozenset[str] = frozenset()


_LIST_IGNORED = frozenset({"includeGlobal", "includeUnknown", "includeLastMessage", "includeDerivedTitles"})
_RESOLVE_IGNORED = frozenset({"includeGlobal", "includeUnknown"})
_DESCRIBE_IGNORED = frozenset({"includeDerivedTitles", "includeLastMessage"})
_CRON_IGNORED = frozenset({"sortBy", "sortDir", "compact"})

METHODS: Mapping[str, Method] = {
    "agent": Method(Scope.WRITE, runs.AgentParams, runs.agent, runs.AGENT_IGNORED),
    "agent.wait": Method(Scope.READ, runs.WaitParams, runs.wait),
    "chat.send": Method(Scope.WRITE, runs.ChatParams, runs.send, runs.CHAT_IGNORED),
    "chat.history": Method(Scope.READ, runs.ChatHistoryParams, runs.history, frozenset({"maxChars"})),
    "chat.abort": Method(Scope.WRITE, runs.ChatAbortParams, runs.abort),
    "sessions.list": Method(Scope.READ, sessions.SessionListParams, sessions.list_sessions, _LIST_IGNORED),
    "sessions.get": Method(Scope.READ, sessions.SessionGetParams, sessions.get),
    "sessions.resolve": Method(Scope.READ, sessions.SessionResolveParams, sessions.resolve, _RESOLVE_IGNORED),
    "sessions.describe": Method(Scope.READ, sessions.SessionKeyParams, sessions.describe, _DESCRIBE_IGNORED),
    "sessions.patch": Method(Scope.WRITE, sessions.SessionPatchParams, sessions.patch),
    "sessions.subscribe": Method(Scope.READ, NoMethodParams, sessions.subscribe),
    "sessions.unsubscribe": Method(Scope.READ, NoMethodParams, partial(sessions.subscribe, wanted=False)),
    "sessions.messages.subscribe": Method(Scope.READ, sessions.SessionKeyParams, sessions.subscribe_messages),
    "sessions.messages.unsubscribe": Method(
        Scope.READ, sessions.SessionKeyParams, partial(sessions.subscribe_messages, wanted=False)
    ),
    "sessions.reset": Method(Scope.WRITE, sessions.SessionResetParams, sessions.reset, frozenset({"reason"})),
    "sessions.delete": Method(Scope.ADMIN, sessions.SessionDeleteParams, sessions.delete),
    "sessions.compact": Method(Scope.WRITE, sessions.SessionCompactParams, sessions.compact),
    "health": Method(Scope.READ, NoMethodParams, gateway.health, frozenset({"probe"})),
    "status": Method(Scope.READ, NoMethodParams, gateway.status),
    "wake": Method(Scope.WRITE, gateway.WakeParams, gateway.wake),
    "agents.list": Method(Scope.READ, NoMethodParams, gateway.agents),
    "models.list": Method(Scope.READ, gateway.ModelsParams, gateway.models),
    "system-presence": Method(Scope.READ, NoMethodParams, gateway.presence),
    "cron.list": Method(Scope.READ, gateway.CronParams, gateway.list_jobs, _CRON_IGNORED),
    "logs.tail": Method(Scope.ADMIN, gateway.LogParams, gateway.logs),
    "config.get": Method(Scope.ADMIN, NoMethodParams, gateway.config),
    "exec.approval.resolve": Method(None, gateway.ApprovalResolveParams, gateway.resolve),
}

_read_names = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def dispatch(name: str, params: msgspec.Raw, request: MethodRequest) -> Any:
    """Run a method; what it returns is the payload of its last answer. Raises PoolError."""
    method = METHODS.get(name)
    if method is None:
        raise UsageError(f"unknown method: {name!r}; there are: {', '.join(METHODS)}")
    _check_scope(name, method, request)
    return await method.run(request, _read(name, method, params, request))


def _check_scope(name: str, method: Method, request: MethodRequest) -> None:
    identity = request.identity
    if method.scope is None and not identity.approvals:
        raise HttpError(HTTPStatus.FORBIDDEN, f"missing scope: operator.approvals, for {name}")
    if method.scope is not None and identity.scope < method.scope:
        raise HttpError(HTTPStatus.FORBIDDEN, f"missing scope: operator.{method.scope.name.lower()}, for {name}")


def _read(name: str, method: Method, params: msgspec.Raw, request: MethodRequest) -> Any:
    raw = bytes(params)
    raw = b"{}" if raw == b"null" else raw
    try:
        names = _read_names.decode(raw)
        decoded = msgspec.json.decode(raw, type=method.params)
    except DECODE_ERRORS as exc:
        raise UsageError(f"bad parameters for {name}: {exc}") from exc
    known = {field.encode_name for field in msgspec.structs.fields(method.params)}
    for unknown in names.keys() - known - method.ignored:
        raise UsageError(f"bad parameters for {name}: unknown parameter {unknown[:50]!r}; there are: {sorted(known)}")
    request.ignored = sorted(names.keys() & method.ignored)
    return decoded
