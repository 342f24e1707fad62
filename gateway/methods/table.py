"""The method table: every door calls ``Methods.call`` with a method's name and its parameters as JSON."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from errors import UsageError
from gateway import requests
from gateway.attachments import requests as attaching
from gateway.autonomy import Autonomy
from gateway.caller import Caller
from gateway.methods.agents import AgentMethods
from gateway.methods.attachments import AttachmentMethods
from gateway.methods.autonomy import AutonomyMethods
from gateway.methods.operator import OperatorMethods
from gateway.methods.ports import SupervisorPort
from gateway.methods.runs import RunMethods
from gateway.methods.sessions import SessionMethods
from gateway.methods.subscriptions import SubscriptionMethods
from gateway.methods.system_events import SystemEventMethods
from gateway.service import Gateway
from heartbeat.cron.requests import CronAdd, CronList, CronName

__all__ = ["Methods"]

Method = Callable[[Any, Caller], Awaitable[Any]]

_AT_ONCE = frozenset(
    {"ping", "status", "subscribe", "unsubscribe", "sessions.list", "sessions.get", "sessions.history", "agents.list"}
    | {"workers.list", "waiting.list", "approvals.list", "approvals.show", "explain", "route", "config.get", "shutdown"}
    | {"agent.wait", "events.peek", "heartbeat.status", "cron.list", "cron.get"}
)
"""Methods that are served before the recovered runs have their places in the lanes; all others wait for that."""


class Methods:
    """All methods over one gateway."""

    def __init__(self, gateway: Gateway, supervisor: SupervisorPort, autonomy: Autonomy) -> None:
        runs, sessions = RunMethods(gateway), SessionMethods(gateway)
        operator, subscriptions = OperatorMethods(gateway, supervisor, autonomy), SubscriptionMethods(gateway.bus)
        events, alone = SystemEventMethods(gateway), AutonomyMethods(gateway, autonomy)
        attachments = AttachmentMethods(gateway)
        self._table: Mapping[str, tuple[type, Method]] = {
            "ping": (requests.NoParams, operator.ping),
            "status": (requests.NoParams, operator.status),
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
            "approvals.list": (requests.NoParams, runs.approvals),
            "approvals.show": (requests.ApprovalRequest, runs.show_approval),
            "ui.respond": (requests.UiRespondRequest, runs.ui_respond),
            "sessions.list": (requests.NoParams, sessions.list),
            "sessions.get": (requests.SessionRequest, sessions.get),
            "sessions.patch": (requests.PatchRequest, sessions.patch),
            "sessions.reset": (requests.ResetRequest, sessions.reset),
            "sessions.delete": (requests.SessionRequest, sessions.delete),
            "sessions.history": (requests.HistoryRequest, sessions.history),
            "agents.list": (requests.NoParams, AgentMethods(gateway).list),
            "workers.list": (requests.NoParams, operator.workers),
            "workers.stop": (requests.WorkerRequest, operator.stop_worker),
            "workers.recycle": (requests.WorkerRequest, operator.recycle_worker),
            "waiting.list": (requests.NoParams, operator.waiting),
            "explain": (requests.ExplainRequest, operator.explain),
            "route": (requests.RouteRequest, runs.route),
            "process": (requests.ProcessRequest, runs.process),
            "delegate": (requests.DelegateRequest, runs.delegate),
            "attach.open": (attaching.AttachRequest, attachments.open),
            "attach.send": (attaching.SendRequest, attachments.send),
            "attach.end": (attaching.AttachmentRequest, attachments.end),
            "events.inject": (requests.InjectRequest, events.inject),
            "events.peek": (requests.SessionRequest, events.peek),
            "heartbeat.run": (requests.BeatNow, alone.beat),
            "heartbeat.status": (requests.NoParams, alone.heartbeats),
            "cron.add": (CronAdd, alone.add),
            "cron.list": (CronList, alone.list),
            "cron.get": (CronName, alone.get),
            "cron.remove": (CronName, alone.remove),
            "cron.run": (CronName, alone.run),
            "pause": (requests.NoParams, operator.pause),
            "resume": (requests.NoParams, operator.resume),
            "drain": (requests.DrainRequest, operator.drain),
            "config.get": (requests.NoParams, operator.config),
            "logs.tail": (requests.LogTailRequest, operator.log_tail),
            "reload": (requests.NoParams, operator.reload),
            "shutdown": (requests.NoParams, operator.shutdown),
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
        if not self._resumed.is_set() and method not in _AT_ONCE:
            await self._resumed.wait()
        return await run(decoded, caller)
