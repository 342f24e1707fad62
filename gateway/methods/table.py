"""The method table: every door calls ``Handlers.call`` with a method's name and its parameters as JSON."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from errors import UsageError
from gateway.caller import Caller
from gateway.methods import params as p
from gateway.methods.operator import OperatorMethods
from gateway.methods.ports import SupervisorPort
from gateway.methods.runs import RunMethods
from gateway.methods.sessions import SessionMethods
from gateway.methods.subscriptions import SubscriptionMethods
from gateway.service import Gateway

__all__ = ["Handlers"]

Method = Callable[[Any, Caller], Awaitable[Any]]


class Handlers:
    """All methods over one gateway."""

    def __init__(self, gateway: Gateway, supervisor: SupervisorPort) -> None:
        runs, sessions = RunMethods(gateway), SessionMethods(gateway)
        operator, subscriptions = OperatorMethods(gateway, supervisor), SubscriptionMethods(gateway.bus)
        self._table: Mapping[str, tuple[type, Method]] = {
            "ping": (p.NoParams, operator.ping),
            "status": (p.NoParams, operator.status),
            "agent": (p.AgentRequest, runs.agent),
            "agent.wait": (p.WaitRequest, runs.wait),
            "prompt": (p.PromptRequest, runs.prompt),
            "steer": (p.SteerRequest, runs.steer),
            "abort": (p.AbortRequest, runs.abort),
            "acquire": (p.AcquireRequest, runs.acquire),
            "release": (p.ReleaseRequest, runs.release),
            "subscribe": (p.SubscribeRequest, subscriptions.subscribe),
            "unsubscribe": (p.UnsubscribeRequest, subscriptions.unsubscribe),
            "decide": (p.DecideRequest, runs.decide),
            "ui.respond": (p.UiRespondRequest, runs.ui_respond),
            "sessions.list": (p.NoParams, sessions.list),
            "sessions.get": (p.SessionRequest, sessions.get),
            "sessions.reset": (p.SessionRequest, sessions.reset),
            "sessions.delete": (p.SessionRequest, sessions.delete),
            "sessions.history": (p.HistoryRequest, sessions.history),
            "workers.list": (p.NoParams, operator.workers),
            "workers.stop": (p.WorkerRequest, operator.stop_worker),
            "workers.recycle": (p.WorkerRequest, operator.recycle_worker),
            "waiting.list": (p.NoParams, operator.waiting),
            "explain": (p.ExplainRequest, operator.explain),
            "route": (p.RouteRequest, runs.route),
            "process": (p.ProcessRequest, runs.process),
            "delegate": (p.DelegateRequest, runs.delegate),
            "pause": (p.NoParams, operator.pause),
            "resume": (p.NoParams, operator.resume),
            "drain": (p.DrainRequest, operator.drain),
            "reload": (p.NoParams, operator.reload),
            "shutdown": (p.NoParams, operator.shutdown),
        }
        self._subscriptions = subscriptions

    @property
    def methods(self) -> tuple[str, ...]:
        """All method names."""
        return tuple(self._table)

    @property
    def attended(self) -> bool:
        """Whether some front end hears of questions to a person."""
        return self._subscriptions.attended

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; the result encodes to JSON. Raises PoolError, UsageError for what the caller got wrong."""
        entry = self._table.get(method)
        if entry is None:
            raise UsageError(f"unknown method {method!r}; there are: {', '.join(self._table)}")
        kind, run = entry
        return await run(p.decode_params(kind, method, params), caller)
