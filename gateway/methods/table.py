"""The method table: every door calls ``MethodTable.call`` with a method's name and its parameters as JSON."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import msgspec

from errors import PoolClosed, UsageError
from gateway import requests
from gateway.autonomy import Autonomy
from gateway.caller import NO_RESPONSE, Caller
from gateway.gateway import Gateway
from gateway.methods.operator import OperatorMethods, SupervisorPort
from gateway.methods.runs import RunMethods, SubscriptionMethods
from gateway.requests import (
    AttachmentRequest,
    EmptyRequest,
    HeartbeatRunRequest,
    HistoryRequest,
    InjectRequest,
    ResetRequest,
    SendRequest,
    SessionRequest,
)
from gateway.sessions.admin import SessionView
from gateway.sessions.options import SessionOptions
from heartbeat.cron.requests import CronAdd, CronList, CronName
from heartbeat.records import BeatReport
from heartbeat.wake import WakeReason
from pool.agent_records import ProgramRecord
from pool.snapshot import WaiterSnapshot
from pool.statistics import WorkerStatus
from router.keys import normalize_session_key

MethodHandler = Callable[[Any, Caller], Any]
"""Takes the decoded parameters and the caller; returns the result, or an awaitable of it."""


class AgentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent, as front ends see it."""

    name: str
    dialect: str
    is_default: bool
    """Whether a message that names no agent goes to it."""
    client_tools: bool
    """Whether a message to it may bring tools of its own."""
    program: str
    """A mark of dialect and command: another one where they are others."""
    seen: ProgramRecord | None = None
    """What its workers have shown of its program; absent before the first one has been started."""


class _Methods:
    """The methods that are more than one call; each takes the decoded parameters and the caller."""

    def __init__(self, gateway: Gateway, autonomy: Autonomy) -> None:
        self._gateway = gateway
        self._admin = gateway.session_admin
        self._events = gateway.system_events
        self._autonomy = autonomy

    def agents(self, _params: EmptyRequest, _caller: Caller) -> list[AgentView]:
        """Every agent in the settings."""
        parts = self._gateway.profile_cache.parts
        return [
            AgentView(
                name=name,
                dialect=parts.profiles.dialect_of(name),
                is_default=name == parts.router.default_agent,
                client_tools=parts.profiles.traits_of(name).takes_client_tools,
                program=parts.profiles.program_mark(name),
                seen=self._gateway.pool.agent_records.find(name),
            )
            for name in parts.profiles.agent_names()
        ]

    def ping(self, _params: EmptyRequest, _caller: Caller) -> dict[str, Any]:
        """Answer with an empty object."""
        return {}

    def workers(self, _params: EmptyRequest, _caller: Caller) -> tuple[WorkerStatus, ...]:
        """Every worker process."""
        return self._gateway.pool.statistics().workers

    def waiting(self, _params: EmptyRequest, _caller: Caller) -> tuple[WaiterSnapshot, ...]:
        """Every request that waits for a worker, and why."""
        return self._gateway.pool.statistics().waiting

    def session(self, params: SessionRequest, _caller: Caller) -> SessionView:
        """One session."""
        return self._admin.view(params.session)

    def options(self, params: SessionRequest, _caller: Caller) -> SessionOptions:
        """What can be set in a session, and what holds."""
        return self._gateway.openings.options(params.session)

    async def reset(self, params: ResetRequest, _caller: Caller) -> Any:
        """Begin a new conversation; the transcript of the old one stays."""
        session = normalize_session_key(params.session)
        self._admin.view(session)
        return {"session": session, "reset": True, "ended": await self._admin.reset(session, force=params.force)}

    async def delete(self, params: SessionRequest, _caller: Caller) -> Any:
        """Forget a session with its conversation, and end its background commands."""
        ended = self._admin.background_commands(self._admin.view(params.session).key)
        removed = await self._admin.delete(params.session)
        return {"session": params.session, "deleted": True, "removed": removed, "ended": ended}

    async def history(self, params: HistoryRequest, _caller: Caller) -> Any:
        """The latest messages, oldest first."""
        return {"session": params.session, "messages": await self._admin.history(params.session, params.limit)}

    async def inject(self, params: InjectRequest, _caller: Caller) -> Any:
        """Queue a system event, durably; ``event`` is null if it repeats the one queued last."""
        session = normalize_session_key(params.session)
        if not params.text.strip():
            raise UsageError("the text is empty; say what has happened", session=session)
        event = self._events.inject(session, params.text, kind=params.kind)
        await self._events.wait_durable()
        return {"session": session, "event": event}

    def peek(self, params: SessionRequest, _caller: Caller) -> Any:
        """The session's queued system events, oldest first; they stay queued."""
        session = normalize_session_key(params.session)
        return {"session": session, "events": self._events.peek(session)}

    async def send(self, params: SendRequest, caller: Caller) -> Any:
        """Send one line to the worker; no answer but an error: pushes say how many lines were ``taken`` so far."""
        await self._gateway.attachments.send(params, caller)
        return NO_RESPONSE

    async def end(self, params: AttachmentRequest, caller: Caller) -> Any:
        """Close the front end's input."""
        await self._gateway.attachments.finish(params.attachment, caller)
        return {}

    async def beat(self, params: HeartbeatRunRequest, _caller: Caller) -> BeatReport:
        """Run an agent's heartbeat now, and answer with its report."""
        if self._gateway.intake.is_closed:
            raise PoolClosed("the supervisor is shutting down, and nothing begins any more")
        agent, session = self._resolve_target(params)
        return await self._autonomy.heartbeat.run_now(agent, WakeReason(params.reason), session)

    def _resolve_target(self, params: HeartbeatRunRequest) -> tuple[str, str | None]:
        default = params.agent or self._gateway.profile_cache.parts.router.default_agent
        if params.session is None:
            return default, None
        session, agent, _role = self._gateway.sessions.resolve(params.session, None, None, default=default)
        if params.agent is not None and params.agent != agent:
            raise UsageError(f"session {session} is agent {agent}'s, not {params.agent}'s", session=session)
        return agent, normalize_session_key(session)


def _params_only(handle: Callable[[Any], Any]) -> MethodHandler:
    @wraps(handle)
    def run(params: Any, _caller: Caller) -> Any:
        return handle(params)

    return run


def _plain(handle: Callable[[], Any]) -> MethodHandler:
    @wraps(handle)
    def run(_params: Any, _caller: Caller) -> Any:
        return handle()

    return run


_SERVED_BEFORE_RECOVERY = frozenset(
    {
        "ping",
        "status",
        "metrics",
        "subscribe",
        "unsubscribe",
        "sessions.list",
        "sessions.get",
        "sessions.history",
        "agents.list",
    }
    | {
        "workers.list",
        "nodes.list",
        "waiting.list",
        "approvals.list",
        "approvals.show",
        "explain",
        "route",
        "config.get",
        "shutdown",
        "logs.list",
        "logs.read",
        "logs.watch",
    }
    | {"agent.wait", "events.peek", "heartbeat.status", "cron.list", "cron.get"}
)
"""Methods that are served before the recovered runs have their places in the lanes; all others wait for that."""


_Table = dict[str, tuple[type, MethodHandler]]
"""By method: the type of its parameters, and what takes them."""


def _run_methods(gateway: Gateway, subscriptions: SubscriptionMethods, methods: _Methods) -> _Table:
    """Messages, their events, the questions of their turns, attached front ends."""
    runs = RunMethods(gateway)
    return {
        "agent": (requests.AgentRequest, runs.agent),
        "agent.wait": (requests.WaitRequest, runs.wait),
        "prompt": (requests.PromptRequest, runs.prompt),
        "steer": (requests.SteerRequest, runs.steer),
        "abort": (requests.AbortRequest, runs.abort),
        "acquire": (requests.AcquireRequest, gateway.holds.acquire),
        "release": (requests.ReleaseRequest, runs.release),
        "subscribe": (requests.SubscribeRequest, subscriptions.subscribe),
        "unsubscribe": (requests.UnsubscribeRequest, subscriptions.unsubscribe),
        "decide": (requests.DecideRequest, runs.decide),
        "approvals.list": (requests.EmptyRequest, _plain(gateway.pending_permissions.snapshot)),
        "approvals.show": (requests.ApprovalRequest, runs.show_approval),
        "ui.respond": (requests.UiRespondRequest, runs.ui_respond),
        "route": (requests.RouteRequest, runs.route),
        "process": (requests.ProcessRequest, runs.process),
        "process.write": (requests.ProcessWriteRequest, runs.write_process),
        "delegate": (requests.DelegateRequest, runs.delegate),
        "attach.open": (requests.AttachRequest, gateway.attachments.open),
        "attach.send": (requests.SendRequest, methods.send),
        "attach.end": (requests.AttachmentRequest, methods.end),
    }


def _session_methods(gateway: Gateway, autonomy: Autonomy, methods: _Methods) -> _Table:
    """Sessions, agents, system events, heartbeats, scheduled jobs."""
    admin, cron = gateway.session_admin, autonomy.cron
    return {
        "sessions.list": (requests.SessionListRequest, _params_only(admin.views)),
        "sessions.get": (requests.SessionRequest, methods.session),
        "sessions.open": (requests.OpenSessionRequest, _params_only(gateway.openings.open)),
        "sessions.options": (requests.SessionRequest, methods.options),
        "sessions.patch": (requests.PatchRequest, _params_only(admin.patch)),
        "sessions.reset": (requests.ResetRequest, methods.reset),
        "sessions.delete": (requests.SessionRequest, methods.delete),
        "sessions.history": (requests.HistoryRequest, methods.history),
        "agents.list": (requests.EmptyRequest, methods.agents),
        "events.inject": (requests.InjectRequest, methods.inject),
        "events.peek": (requests.SessionRequest, methods.peek),
        "heartbeat.run": (requests.HeartbeatRunRequest, methods.beat),
        "heartbeat.status": (requests.EmptyRequest, _plain(autonomy.heartbeat.status)),
        "cron.add": (CronAdd, _params_only(cron.add)),
        "cron.list": (CronList, _params_only(cron.list)),
        "cron.get": (CronName, _params_only(cron.get)),
        "cron.delete": (CronName, _params_only(cron.delete)),
        "cron.enable": (CronName, _params_only(cron.enable)),
        "cron.disable": (CronName, _params_only(cron.disable)),
        "cron.run": (CronName, _params_only(cron.run_now)),
    }


def _operator_methods(gateway: Gateway, supervisor: SupervisorPort, autonomy: Autonomy, methods: _Methods) -> _Table:
    """The supervisor, its workers, who waits for one."""
    operator = OperatorMethods(gateway, supervisor, autonomy)
    return {
        "ping": (requests.EmptyRequest, methods.ping),
        "status": (requests.EmptyRequest, operator.status),
        "metrics": (requests.EmptyRequest, operator.metrics),
        "workers.list": (requests.EmptyRequest, methods.workers),
        "workers.stop": (requests.WorkerRequest, operator.stop_worker),
        "workers.recycle": (requests.WorkerRequest, operator.recycle_worker),
        "nodes.list": (requests.EmptyRequest, operator.nodes),
        "nodes.drain": (requests.NodeDrainRequest, operator.drain_node),
        "nodes.resume": (requests.NodeRequest, operator.resume_node),
        "waiting.list": (requests.EmptyRequest, methods.waiting),
        "explain": (requests.ExplainRequest, operator.explain),
        "pause": (requests.EmptyRequest, operator.pause),
        "resume": (requests.EmptyRequest, operator.resume),
        "drain": (requests.DrainRequest, operator.drain),
        "config.get": (requests.EmptyRequest, operator.config),
        "logs.tail": (requests.LogTailRequest, operator.log_tail),
        "logs.list": (requests.EmptyRequest, operator.list_logs),
        "logs.read": (requests.LogReadRequest, operator.read_log),
        "logs.watch": (requests.EmptyRequest, operator.watch_logs),
        "reload": (requests.EmptyRequest, _plain(supervisor.reload)),
        "scale": (requests.ScaleRequest, operator.scale),
        "restart": (requests.EmptyRequest, operator.restart),
        "shutdown": (requests.EmptyRequest, operator.shutdown),
    }


class MethodTable:
    """All methods over one gateway.

    A front end that is attached to a worker gets pushes: its output as ``attach{attachment, taken, lines}``, its stderr
    as ``attach_words{attachment, words}``, the end as ``attach_ended{attachment, code, message}``, where code ``left``
    means that the front end itself asked for it.
    """

    def __init__(self, gateway: Gateway, supervisor: SupervisorPort, autonomy: Autonomy) -> None:
        self._subscriptions = SubscriptionMethods(gateway.bus)
        self._attachments = gateway.attachments
        self._resumed = gateway.resumed
        methods = _Methods(gateway, autonomy)
        self.entries: Mapping[str, tuple[type, MethodHandler]] = {
            **_run_methods(gateway, self._subscriptions, methods),
            **_session_methods(gateway, autonomy, methods),
            **_operator_methods(gateway, supervisor, autonomy, methods),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """All method names."""
        return tuple(self.entries)

    def attended(self, session: str) -> bool:
        """Whether some front end receives the questions of extensions in the session."""
        return self._subscriptions.attended(session) or self._attachments.attended(session)

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; the result encodes to JSON. Raises PoolError, UsageError for what the caller got wrong."""
        entry = self.entries.get(method)
        if entry is None:
            raise UsageError(f"unknown method {method!r}; there are: {', '.join(self.entries)}")
        kind, run = entry
        decoded: Any = requests.decode_params(kind, method, params)
        if not self._resumed.is_set() and method not in _SERVED_BEFORE_RECOVERY:
            await self._resumed.wait()
        result = run(decoded, caller)
        return await result if inspect.isawaitable(result) else result
