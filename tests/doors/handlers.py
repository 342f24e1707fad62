"""Handlers to put behind a control server in tests: one method for each thing a handler can do."""

from typing import Any

import msgspec
import trio

from errors import PoolSaturated, UsageError, WorkerExited
from gateway.caller import Caller


class FakeHandlers:
    """Answers by method name; keeps what was called and which calls were cancelled."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled = trio.Event()
        self.hanging = trio.Event()
        self.running = 0
        self.max_running = 0
        self.pushed = 0
        self.release = trio.Event()

    async def call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        """See the methods below; any other name is unknown."""
        self.calls.append(method)
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            return await self._call(method, params, caller)
        except trio.Cancelled:
            self.cancelled.set()
            raise
        finally:
            self.running -= 1

    async def _call(self, method: str, params: msgspec.Raw, caller: Caller) -> Any:
        handler = getattr(self, f"do_{method}", None)
        if handler is None:
            raise UsageError(f"unknown method {method!r}")
        return await handler(msgspec.json.decode(params), caller)

    async def do_echo(self, params: Any, _caller: Caller) -> Any:
        return params

    async def do_count(self, params: Any, caller: Caller) -> Any:
        """Push ``events`` events of ``size`` bytes."""
        for number in range(params["events"]):
            text = "x" * params.get("size", 0)
            await caller.push("event", {"request": caller.request_id, "number": number, "text": text})
            self.pushed += 1
        return {"events": params["events"]}

    async def do_hang(self, _params: Any, _caller: Caller) -> Any:
        self.hanging.set()
        await trio.sleep_forever()

    async def do_wait(self, _params: Any, _caller: Caller) -> Any:
        self.hanging.set()
        await self.release.wait()
        return "released"

    async def do_fail(self, _params: Any, _caller: Caller) -> Any:
        raise WorkerExited("the worker w1 exited with code 3", worker="w1", sent=True, stderr_tail="boom")

    async def do_saturate(self, _params: Any, _caller: Caller) -> Any:
        raise PoolSaturated("all workers are busy", retry_after=2.5, figures=object())

    async def do_group(self, _params: Any, _caller: Caller) -> Any:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [UsageError("wrapped")])])

    async def do_crash(self, _params: Any, _caller: Caller) -> Any:
        raise KeyError("nothing")

    async def do_unencodable(self, _params: Any, _caller: Caller) -> Any:
        return object()
