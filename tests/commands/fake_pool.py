"""A supervisor's methods as the commands know them, without a pool behind them, on a control socket in a thread."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
from click.testing import CliRunner, Result

import cli
from doors.control.server import ControlServer
from errors import AcquireTimeout, PoolClosed, PoolError, PoolSaturated, UsageError
from gateway import requests
from gateway.caller import Caller
from profiles import ProfilesSettings
from router.route import route
from router.settings import RouterSettings
from router.source import MessageSource
from tests.commands.documents import DOCUMENT, NODES, SESSION_VIEWS

EXPLANATION = {
    "session": "ada",
    "profile": {"signature": "a1b2c3d4", "agent": "main", "role": "default", "cwd": "/"},
    "workers": [{"worker": "w1", "level": "exact", "difference": "", "state": "idle", "session": None}],
}
SESSION = {"key": "ada", "agent": "main", "role": "default", "state": "READY", "created_at": 1.5, "model": None}
HISTORY = {
    "session": "ada",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "list it"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "exec", "input": {"cmd": "ls"}}]},
    ],
}
EVENT = {"id": "e1", "session": "ada", "kind": "exec", "text": "Exec completed\x1b[31m", "ts": 1.5}
OUTCOME = {"run_id": "r1", "session": "ada", "status": "ok", "text": "done so", "stop_reason": "stop", "worker": "w1"}
CALL = {"id": "c1", "name": "exec", "input_preview": "ls -la"}

_PARAMS: dict[str, type] = {
    "prompt": requests.PromptRequest,
    "agent": requests.AgentRequest,
    "agent.wait": requests.WaitRequest,
    "steer": requests.SteerRequest,
    "abort": requests.AbortRequest,
    "decide": requests.DecideRequest,
    "delegate": requests.DelegateRequest,
    "route": requests.RouteRequest,
    "subscribe": requests.SubscribeRequest,
    "unsubscribe": requests.UnsubscribeRequest,
    "explain": requests.ExplainRequest,
    "drain": requests.DrainRequest,
    "workers.stop": requests.WorkerRequest,
    "workers.recycle": requests.WorkerRequest,
    "nodes.drain": requests.NodeDrainRequest,
    "nodes.resume": requests.NodeRequest,
    "events.inject": requests.InjectRequest,
    "events.peek": requests.SessionRequest,
    "sessions.get": requests.SessionRequest,
    "sessions.reset": requests.ResetRequest,
    "sessions.delete": requests.SessionRequest,
    "sessions.history": requests.HistoryRequest,
}
"""Parameters of the real methods: what a command sends must be understood by them."""


def envelope(seq: int, type_: str, data: Any = None, *, session: str = "ada", channel: str = "progress") -> Any:
    """An event as it goes over the socket."""
    return {"seq": seq, "ts": 0.5, "session": session, "channel": channel, "type": type_, "data": data, "run_id": "r1"}


class FakePool:
    """The methods of a supervisor; keeps what was called with what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.answered: list[Any] = []
        self.fixed: dict[str, Any] = {}
        """What methods answer instead of the usual, an error included; of an iterator the next each time."""
        self.waits: list[str] = []
        """Answers of ``agent.wait`` before the last one."""
        self.events: list[Any] = []
        """What a subscription pushes before the supervisor ends it."""

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        self.answered.append(await self.find_answer(method, params, caller))
        return self.answered[-1]

    async def find_answer(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        asked = msgspec.json.decode(params) or {}
        self.calls.append((method, asked))
        if method in self.fixed:
            return self.fixed_answer(method)
        requests.decode_params(_PARAMS.get(method, requests.EmptyRequest), method, params)
        match method:
            case "prompt":
                return await self.answer(asked, caller)
            case "subscribe":
                return await self.subscribe(caller)
            case "agent.wait" if self.waits:
                return {"run_id": asked["run_id"], "status": self.waits.pop(0)}
            case "route":
                source = msgspec.convert(asked["source"], MessageSource)
                return route(RouterSettings(), ProfilesSettings(), source, asked["text"], data_dir=Path("/data"))
            case "sessions.reset" if asked["session"] == "busy" and not asked["force"]:
                raise UsageError("calm-fox of session 'busy' still runs in the background", running=["calm-fox"])
            case "workers.stop":
                raise UsageError(f"there is no worker {asked['worker']}")
        return self.answers(asked).get(method, {})

    def fixed_answer(self, method: str) -> Any:
        fixed = self.fixed[method]
        answer = next(fixed) if isinstance(fixed, Iterator) else fixed
        if isinstance(answer, PoolError):
            raise answer
        return answer

    def answers(self, asked: Any) -> dict[str, Any]:
        """What the plain methods answer."""
        return {
            "status": DOCUMENT,
            "sessions.reset": {"ended": ["calm-fox"] if asked.get("force") else []},
            "sessions.delete": {"ended": []},
            "workers.list": DOCUMENT["workers"],
            "nodes.list": NODES,
            "waiting.list": DOCUMENT["waiting"],
            "explain": EXPLANATION,
            "drain": {"drained": asked.get("timeout") != 0.5},
            "reload": {"changed": ["pool.max", "log.level"], "needs_restart": ["data_dir"]},
            "agent": {"run_id": asked.get("run"), "session": "ada", "status": "accepted", "accepted_at": 1.0},
            "agent.wait": OUTCOME,
            "abort": {"session": asked.get("session"), "aborted": asked.get("session") != "quiet"},
            "delegate": {"run_id": "d1", "status": "accepted"} if asked.get("mode") == "async" else OUTCOME,
            "events.inject": {
                "session": asked.get("session"),
                "event": None if asked.get("text") == "again" else EVENT,
            },
            "events.peek": {
                "session": asked.get("session"),
                "events": [EVENT] if asked.get("session") == "ada" else [],
            },
            "sessions.list": SESSION_VIEWS,
            "sessions.get": SESSION,
            "sessions.history": HISTORY,
        }

    async def answer(self, asked: Any, caller: Caller) -> Any:
        match asked["text"]:
            case "full":
                raise PoolSaturated("the waiting list is full", retry_after=2.0)
            case "late":
                raise AcquireTimeout("no worker became free")
            case "defect":
                raise KeyError("oops")
        events = [
            envelope(1, "run:accepted", {"lane": "main", "priority": 5, "mode": "steer"}),
            envelope(2, "think_chunk", {"delta": "hm"}),
            envelope(3, "text_chunk", {"delta": "you said: "}),
            envelope(4, "text_chunk", {"delta": asked["text"]}),
        ]
        if asked["text"] == "may I?":
            events.append(envelope(5, "permission_required", {"call": CALL}, channel="control"))
        await caller.push("events", {"request": caller.request_id, "events": events})
        if asked["text"] == "gone":
            raise PoolClosed("the supervisor closed the connection before the request had ended")
        if asked["text"] == "bad":
            error = {"code": "worker_exited", "message": "the worker w1 exited", "data": {"worker": "w1"}}
            return {**OUTCOME, "status": "error", "stop_reason": "error", "error": error}
        return OUTCOME

    async def subscribe(self, caller: Caller) -> Any:
        """The first one is given the events and ended; further ones are refused, as by a supervisor that stops."""

        async def push() -> None:
            await caller.push("events", {"subscription": "s1", "events": self.events})
            await caller.push("subscription_ended", {"subscription": "s1", "bookmark": 43, "reason": "closing"})

        if [method for method, _ in self.calls].count("subscribe") > 1:
            raise PoolClosed("the supervisor is stopping")
        caller.start(push)
        return {"subscription": "s1", "head": 40, "complete": True}


class Bench:
    """A command runner beside a control server that runs in a thread."""

    def __init__(self, socket: Path, pool: FakePool) -> None:
        self.socket = socket
        self.pool = pool

    def run(self, *args: str, stdin: str | bytes | None = None) -> Result:
        env = {"POOL_SOCKET": str(self.socket), "COLUMNS": "140"}
        return CliRunner().invoke(cli.main, args, input=stdin, env=env)

    def json(self, *args: str, stdin: str | None = None) -> Any:
        result = self.run(*args, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return msgspec.json.decode(result.stdout)


@contextmanager
def serving(pool: FakePool) -> Iterator[Path]:
    """The pool behind a socket; its path."""
    ready = threading.Event()
    stop: list[Any] = []

    async def serve(path: Path) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(ControlServer(pool, path).serve)
            stop.extend([trio.lowlevel.current_trio_token(), nursery.cancel_scope.cancel])
            ready.set()

    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        thread = threading.Thread(target=trio.run, args=(serve, Path(folder) / "s"))
        thread.start()
        assert ready.wait(20)
        try:
            yield Path(folder) / "s"
        finally:
            stop[0].run_sync_soon(stop[1])
            thread.join(5)
