"""The handlers behind every door: a method name and its parameters in, a result or an error out."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from errors import UsageError
from gateway.caller import Caller
from gateway.service import Gateway
from pool import stimuli
from pool.snapshot import SessionFigures
from wire.framing import DECODE_ERRORS

__all__ = ["Handlers"]

P = TypeVar("P")

Priority = Annotated[int, msgspec.Meta(ge=-1000, le=1000)]
"""Far more than any policy needs; a number without bounds could not be ordered by the waiting list."""
Timeout = Annotated[float, msgspec.Meta(ge=0)]
"""Seconds."""
RunName = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
"""What a front end calls its own run, to tell it from others of the same session."""


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method without parameters."""


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``prompt``: run one turn and follow it. ``run``: a name of the caller's to ``abort`` it by."""

    session: str
    text: str
    agent: str = "main"
    role: str = "default"
    priority: Priority = 5
    timeout: Timeout | None = None
    retry_safe: bool = False
    run: RunName | None = None


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``abort``: end the run of that name; without one the session's running run, or the first that waits."""

    session: str
    run: RunName | None = None


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method about one worker."""

    worker: str


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``explain``: for a session, or for what an agent in a role would need."""

    session: str | None = None
    agent: str | None = None
    role: str | None = None


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``drain``: ``timeout`` in seconds, default ``drain_timeout`` of the settings."""

    timeout: Timeout | None = None


Handler = Callable[[Any, Caller], Awaitable[Any]]


class Handlers:
    """The method table over one gateway."""

    def __init__(self, gateway: Gateway, supervisor: Callable[[], dict[str, Any]]) -> None:
        """``supervisor`` gives the facts about this process that ``status`` shows (pid, uptime, version, paths)."""
        self._gateway = gateway
        self._pool = gateway.pool
        self._supervisor = supervisor
        self._table: dict[str, tuple[type, Handler]] = {
            "status": (NoParams, self._status),
            "prompt": (PromptRequest, self._prompt),
            "abort": (AbortRequest, self._abort),
            "explain": (ExplainRequest, self._explain),
            "sessions.list": (NoParams, self._sessions),
            "workers.list": (NoParams, self._workers),
            "waiting.list": (NoParams, self._waiting),
            "workers.stop": (WorkerRequest, self._stop_worker),
            "workers.recycle": (WorkerRequest, self._recycle_worker),
            "pause": (NoParams, self._pause),
            "resume": (NoParams, self._resume),
            "drain": (DrainRequest, self._drain),
            "shutdown": (NoParams, self._shutdown),
        }

    @property
    def methods(self) -> tuple[str, ...]:
        """All method names."""
        return tuple(self._table)

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """Run a method; the result is JSON-encodable. Raises PoolError, UsageError for what the caller got wrong."""
        entry = self._table.get(method)
        if entry is None:
            raise UsageError(f"unknown method {method!r}; there are: {', '.join(self._table)}")
        kind, handler = entry
        return await handler(decode_params(kind, method, params), caller)

    async def _status(self, _params: NoParams, _caller: Caller) -> Any:
        statistics = self._pool.statistics()
        document = msgspec.to_builtins(statistics)
        sessions = [msgspec.to_builtins(session) for session in self._with_queued(statistics.sessions)]
        return {**document, "sessions": sessions, "supervisor": self._supervisor()}

    async def _prompt(self, params: PromptRequest, caller: Caller) -> Any:
        run = self._gateway.start_run(
            params.session,
            params.text,
            agent=params.agent,
            role=params.role,
            priority=params.priority,
            timeout=params.timeout,
            retry_safe=params.retry_safe,
            name=params.run,
        )
        async with run.events as batches:
            async for batch in batches:
                for event in batch:
                    await caller.push("event", {"request": caller.request_id, "type": event.event, "data": event.data})
        return run.outcome()

    async def _abort(self, params: AbortRequest, _caller: Caller) -> Any:
        return {"session": params.session, "aborted": await self._gateway.abort(params.session, params.run)}

    async def _explain(self, params: ExplainRequest, _caller: Caller) -> Any:
        profile = self._gateway.session_profile(params.session) if params.session is not None else None
        if profile is None or params.agent is not None or params.role is not None:
            profile = self._gateway.profile(params.agent or "main", params.role or "default")
        return {
            "session": params.session,
            "profile": {"signature": profile.short, "agent": profile.agent, "role": profile.role, "cwd": profile.cwd},
            "workers": self._pool.explain(params.session, profile),
        }

    async def _sessions(self, _params: NoParams, _caller: Caller) -> Any:
        return self._with_queued(self._pool.statistics().sessions)

    def _with_queued(self, sessions: Iterable[SessionFigures]) -> list[SessionFigures]:
        """The pool's sessions, with the runs that wait behind another of the same session counted as waiting."""
        return [
            msgspec.structs.replace(session, waiting=session.waiting + self._gateway.queued(session.key))
            for session in sessions
        ]

    async def _workers(self, _params: NoParams, _caller: Caller) -> Any:
        return self._pool.statistics().workers

    async def _waiting(self, _params: NoParams, _caller: Caller) -> Any:
        return self._pool.statistics().waiting

    async def _stop_worker(self, params: WorkerRequest, _caller: Caller) -> Any:
        self._pool.tell(stimuli.StopWorker(params.worker))
        return {"worker": params.worker, "stopping": True}

    async def _recycle_worker(self, params: WorkerRequest, _caller: Caller) -> Any:
        self._pool.tell(stimuli.RecycleWorker(params.worker))
        return {"worker": params.worker, "recycling": True}

    async def _pause(self, _params: NoParams, _caller: Caller) -> Any:
        self._pool.tell(stimuli.Pause())
        return {"paused": True}

    async def _resume(self, _params: NoParams, _caller: Caller) -> Any:
        self._pool.tell(stimuli.Resume())
        return {"paused": False}

    async def _drain(self, params: DrainRequest, _caller: Caller) -> Any:
        return {"drained": await self._pool.drain(params.timeout)}

    async def _shutdown(self, _params: NoParams, _caller: Caller) -> Any:
        self._gateway.shutdown_requested.set()
        return {"stopping": True}


def decode_params(kind: type[P], method: str, params: msgspec.Raw) -> P:
    """Decode a method's parameters; absent ones (``null``) are an empty object. Raises UsageError."""
    raw = bytes(params)
    try:
        return msgspec.json.decode(b"{}" if raw in (b"", b"null") else raw, type=kind)
    except DECODE_ERRORS as exc:
        raise UsageError(f"bad parameters for {method}: {exc}") from exc
