"""Method table and one-line methods.

Methods about agents: which there are.

Methods about sessions: list, look, begin anew, delete, read what was said.

Methods about system events: have a session told something with its next turn, look at what it is to be told.

Methods of front ends that take a worker's own program for what they speak with: attach, hand over lines, leave.

Methods about what agents do by themselves: heartbeats and scheduled tasks.

The method table: every door calls ``MethodTable.call`` with a method's name and its parameters as JSON.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from errors import PoolClosed, UsageError
from gateway.attachments.attachments import AttachView
from gateway.autonomy import Autonomy
from gateway.caller import NO_RESPONSE, Caller
from gateway.gateway import Gateway
from gateway.methods.operator import OperatorMethods, SupervisorPort
from gateway.methods.runs import RunMethods
from gateway.methods.subscriptions import SubscriptionMethods
from gateway.runs import requests
from gateway.runs import requests as attaching
from gateway.runs.requests import (
    AttachmentRequest,
    AttachRequest,
    EmptyRequest,
    HeartbeatRunRequest,
    HistoryRequest,
    InjectRequest,
    PatchRequest,
    ResetRequest,
    SendRequest,
    SessionRequest,
)
from gateway.sessions.admin import SessionView
from heartbeat.cron.requests import CronAdd, CronJobPage, CronJobView, CronList, CronName
from heartbeat.records import BeatReport, HeartbeatStatus
from heartbeat.wake import WakeReason
from router.keys import normalize_session_key


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as front ends see it."""

    name: str
    dialect: str
    is_default: bool
    """Whether a message that names none is for it."""
    client_tools: bool
    """Whether whoever sends a message may bring tools of its own."""


class AgentMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._profile_cache = gateway.profile_cache

    async def list(self, _params: EmptyRequest, _caller: Caller) -> Any:
        """Every agent that the settings know."""
        return [self._view(name) for name in self._profile_cache.parts.profiles.agent_names()]

    def _view(self, name: str) -> AgentView:
        parts = self._profile_cache.parts
        return AgentView(
            name=name,
            dialect=parts.profiles.dialect_of(name),
            is_default=name == parts.router.default_agent,
            client_tools=parts.profiles.traits_of(name).takes_client_tools,
        )


class SessionMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._session_admin = gateway.session_admin

    async def list(self, _params: EmptyRequest, _caller: Caller) -> list[SessionView]:
        """Every session, the one used last first."""
        return self._session_admin.views()

    async def get(self, params: SessionRequest, _caller: Caller) -> SessionView:
        """One session."""
        return self._session_admin.view(params.session)

    async def patch(self, params: PatchRequest, _caller: Caller) -> SessionView:
        """Change a session's own settings, from the next turn on."""
        return self._session_admin.patch(params)

    async def reset(self, params: ResetRequest, _caller: Caller) -> Any:
        """Begin a new conversation; the transcript of the old one stays."""
        session = normalize_session_key(params.session)
        self._session_admin.view(session)
        return {
            "session": session,
            "reset": True,
            "ended": await self._session_admin.reset(session, force=params.force),
        }

    async def delete(self, params: SessionRequest, _caller: Caller) -> Any:
        """Forget a session with its conversation, and end its background commands."""
        ended = self._session_admin.background_commands(self._session_admin.view(params.session).key)
        removed = await self._session_admin.delete(params.session)
        return {"session": params.session, "deleted": True, "removed": removed, "ended": ended}

    async def history(self, params: HistoryRequest, _caller: Caller) -> Any:
        """The latest messages, oldest first."""
        return {"session": params.session, "messages": await self._session_admin.history(params.session, params.limit)}


class SystemEventMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway) -> None:
        self._events = gateway.system_events

    async def inject(self, params: InjectRequest, _caller: Caller) -> Any:
        """Queue an event, durably; ``event`` null: it is the one queued last again, and tells nothing new."""
        session = normalize_session_key(params.session)
        if not params.text.strip():
            raise UsageError("the text is empty; say what has happened", session=session)
        event = self._events.inject(session, params.text, kind=params.kind)
        await self._events.wait_durable()
        return {"session": session, "event": event}

    async def peek(self, params: SessionRequest, _caller: Caller) -> Any:
        """What the session is to be told, the oldest first; it stays."""
        session = normalize_session_key(params.session)
        return {"session": session, "events": self._events.peek(session)}


class AttachmentMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result.

    What the worker says is pushed as ``attach{attachment, taken, lines}``, what it writes to stderr as
    ``attach_words{attachment, words}``, the end as ``attach_ended{attachment, code,
    message}``, where code ``left`` says that the front end itself has asked for it.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._attachments = gateway.attachments

    async def open(self, params: AttachRequest, caller: Caller) -> AttachView:
        """Attach to a session, until the connection ends."""
        return await self._attachments.open(params, caller)

    async def send(self, params: SendRequest, caller: Caller) -> Any:
        """One line to the worker; no answer but an error: pushes tell how many lines were ``taken`` so far."""
        await self._attachments.send(params, caller)
        return NO_RESPONSE

    async def end(self, params: AttachmentRequest, caller: Caller) -> Any:
        """The front end says nothing more."""
        await self._attachments.finish(params.attachment, caller)
        return {}


class AutonomyMethods:
    """Each takes decoded parameters and the caller; what it returns is encoded as the result."""

    def __init__(self, gateway: Gateway, autonomy: Autonomy) -> None:
        self._gateway = gateway
        self._heartbeat = autonomy.heartbeat
        self._cron = autonomy.cron

    async def beat(self, params: HeartbeatRunRequest, _caller: Caller) -> BeatReport:
        """Have an agent beat, and answer with what came of it."""
        if self._gateway.intake.is_closed:
            raise PoolClosed("the supervisor is shutting down, and nothing begins any more")
        agent, session = self._resolve_target(params)
        return await self._heartbeat.run_now(agent, WakeReason(params.reason), session)

    def _resolve_target(self, params: HeartbeatRunRequest) -> tuple[str, str | None]:
        default = self._gateway.profile_cache.parts.router.default_agent
        if params.session is None:
            return params.agent or default, None
        session, agent, _role = self._gateway.sessions.resolve(
            params.session, None, None, default=params.agent or default
        )
        if params.agent is not None and params.agent != agent:
            raise UsageError(f"session {session} is agent {agent}'s, not {params.agent}'s", session=session)
        return agent, normalize_session_key(session)

    async def heartbeats(self, _params: EmptyRequest, _caller: Caller) -> list[HeartbeatStatus]:
        """How every agent's heartbeat stands."""
        return self._heartbeat.status()

    async def add(self, params: CronAdd, _caller: Caller) -> CronJobView:
        """Keep a task."""
        return await self._cron.add(params)

    async def list(self, params: CronList, _caller: Caller) -> CronJobPage:
        """Tasks by name."""
        return self._cron.list(params)

    async def get(self, params: CronName, _caller: Caller) -> CronJobView:
        """One task, with its history."""
        return self._cron.get(params)

    async def remove(self, params: CronName, _caller: Caller) -> CronJobView:
        """Drop a task."""
        return await self._cron.remove(params)

    async def run(self, params: CronName, _caller: Caller) -> CronJobView:
        """Run a task now."""
        return self._cron.run_now(params)


MethodHandler = Callable[[Any, Caller], Awaitable[Any]]

_SERVED_BEFORE_RECOVERY = frozenset(
    {"ping", "status", "subscribe", "unsubscribe", "sessions.list", "sessions.get", "sessions.history", "agents.list"}
    | {"workers.list", "waiting.list", "approvals.list", "approvals.show", "explain", "route", "config.get", "shutdown"}
    | {"agent.wait", "events.peek", "heartbeat.status", "cron.list", "cron.get"}
)
"""Methods that are served before the recovered runs have their places in the lanes; all others wait for that."""


class MethodTable:
    """All methods over one gateway."""

    def __init__(self, gateway: Gateway, supervisor: SupervisorPort, autonomy: Autonomy) -> None:
        runs, sessions = RunMethods(gateway), SessionMethods(gateway)
        operator, subscriptions = OperatorMethods(gateway, supervisor, autonomy), SubscriptionMethods(gateway.bus)
        events, alone = SystemEventMethods(gateway), AutonomyMethods(gateway, autonomy)
        attachments = AttachmentMethods(gateway)
        self._table: Mapping[str, tuple[type, MethodHandler]] = {
            "ping": (requests.EmptyRequest, operator.ping),
            "status": (requests.EmptyRequest, operator.status),
            "agent": (requests.AgentRequest, runs.agent),
            "agent.wait": (requests.WaitRequest, runs.wait),
            "prompt": (requests.PromptRequest, runs.prompt),
            "steer": (requests.SteerRequest, runs.steer),
            "abort": (requests.AbortRequest, runs.abort),
            "acquire": (requests.AcquireRequest, runs.acquire),
            "release": (requests.ReleaseRequest, runs.release),
            "subscribe": (requests.SubscribeRequest, subscriptions.subscribe),
            "unsubscribe": (requests.UnsubscribeRequest, subscriptions.unsubscribe),
            "decide": (requests.DecideRequest, runs.decide),
            "approvals.list": (requests.EmptyRequest, runs.approvals),
            "approvals.show": (requests.ApprovalRequest, runs.show_approval),
            "ui.respond": (requests.UiRespondRequest, runs.ui_respond),
            "sessions.list": (requests.EmptyRequest, sessions.list),
            "sessions.get": (requests.SessionRequest, sessions.get),
            "sessions.patch": (requests.PatchRequest, sessions.patch),
            "sessions.reset": (requests.ResetRequest, sessions.reset),
            "sessions.delete": (requests.SessionRequest, sessions.delete),
            "sessions.history": (requests.HistoryRequest, sessions.history),
            "agents.list": (requests.EmptyRequest, AgentMethods(gateway).list),
            "workers.list": (requests.EmptyRequest, operator.workers),
            "workers.stop": (requests.WorkerRequest, operator.stop_worker),
            "workers.recycle": (requests.WorkerRequest, operator.recycle_worker),
            "waiting.list": (requests.EmptyRequest, operator.waiting),
            "explain": (requests.ExplainRequest, operator.explain),
            "route": (requests.RouteRequest, runs.route),
            "process": (requests.ProcessRequest, runs.process),
            "delegate": (requests.DelegateRequest, runs.delegate),
            "attach.open": (attaching.AttachRequest, attachments.open),
            "attach.send": (attaching.SendRequest, attachments.send),
            "attach.end": (attaching.AttachmentRequest, attachments.end),
            "events.inject": (requests.InjectRequest, events.inject),
            "events.peek": (requests.SessionRequest, events.peek),
            "heartbeat.run": (requests.HeartbeatRunRequest, alone.beat),
            "heartbeat.status": (requests.EmptyRequest, alone.heartbeats),
            "cron.add": (CronAdd, alone.add),
            "cron.list": (CronList, alone.list),
            "cron.get": (CronName, alone.get),
            "cron.remove": (CronName, alone.remove),
            "cron.run": (CronName, alone.run),
            "pause": (requests.EmptyRequest, operator.pause),
            "resume": (requests.EmptyRequest, operator.resume),
            "drain": (requests.DrainRequest, operator.drain),
            "config.get": (requests.EmptyRequest, operator.config),
            "logs.tail": (requests.LogTailRequest, operator.log_tail),
            "reload": (requests.EmptyRequest, operator.reload),
            "shutdown": (requests.EmptyRequest, operator.shutdown),
        }
        self._subscriptions = subscriptions
        self._attachments = gateway.attachments
        self._resumed = gateway.resumed

    @property
    def names(self) -> tuple[str, ...]:
        """All method names."""
        return tuple(self._table)

    def attended(self, session: str) -> bool:
        """Whether some front end hears of an extension's questions in the session."""
        return self._subscriptions.attended(session) or self._attachments.attended(session)

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; the result encodes to JSON. Raises PoolError, UsageError for what the caller got wrong."""
        entry = self._table.get(method)
        if entry is None:
            raise UsageError(f"unknown method {method!r}; there are: {', '.join(self._table)}")
        kind, run = entry
        decoded: Any = requests.decode_params(kind, method, params)
        if not self._resumed.is_set() and method not in _SERVED_BEFORE_RECOVERY:
            await self._resumed.wait()
        return await run(decoded, caller)
