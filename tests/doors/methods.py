"""What may stand behind a control server in tests: one method for each thing a method can do."""

import math
from typing import Any

import msgspec
import trio

from errors import PoolSaturated, UsageError, WorkerExited
from gateway.caller import Caller
from wire.log_context import bind_facts, bound_facts


class FakeMethods:
    """Answers by method name; keeps what was called and which calls were cancelled."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled = trio.Event()
        self.hanging = trio.Event()
        self.running = 0
        self.max_running = 0
        self.pushed = 0
        self.release = trio.Event()
        self.ended: list[str] = []
        self._subscriptions: dict[int, trio.CancelScope] = {}

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
            event = an_event(number, "x" * params.get("size", 0))
            await caller.push("events", {"request": caller.request_id, "events": [event]})
            self.pushed += 1
        return {"events": params["events"]}

    async def do_count_at_once(self, params: Any, caller: Caller) -> Any:
        """Push ``events`` events in one push of JSON that is encoded already."""
        events = msgspec.json.encode([an_event(number) for number in range(params["events"])])
        data = b'{"request":%b,"events":%b}' % (msgspec.json.encode(caller.request_id), events)
        await caller.push_encoded("events", data)
        return {"events": params["events"]}

    async def do_end(self, _params: Any, caller: Caller) -> Any:
        """Wait for the next reader, push one event that the result follows, and wait once more before that."""
        await trio.testing.wait_all_tasks_blocked()
        data = msgspec.json.encode({"request": caller.request_id, "events": [an_event(0)]})
        await caller.push_encoded("events", data, result_follows=True)
        await trio.lowlevel.checkpoint()
        return "ended"

    async def do_subscribe(self, params: Any, caller: Caller) -> Any:
        """Push one event after another: ``events`` in all, else for ever, and then wait for the end."""
        subscription = len(self._subscriptions) + 1
        scope = self._subscriptions[subscription] = trio.CancelScope()
        since = params.get("since", 0)
        if not isinstance(since, int):
            raise UsageError("since is a seq")

        async def follow() -> None:
            reason = "closing"
            seq = since
            try:
                with scope:
                    while seq < params.get("events", math.inf):
                        events = [an_event(seq + 1, "x" * params.get("size", 0))]
                        await caller.push("events", {"subscription": subscription, "events": events})
                        seq += 1
                        self.pushed += 1
                    await (trio.sleep_forever if params.get("stays", True) else trio.lowlevel.checkpoint)()
                reason = "unsubscribed" if scope.cancelled_caught else "behind"
            finally:
                self.ended.append(reason)
                data = {"subscription": subscription, "bookmark": seq, "reason": reason}
                await caller.push("subscription_ended", data)

        caller.start(follow)
        return {"subscription": subscription, "head": since, "complete": True}

    async def do_unsubscribe(self, params: Any, _caller: Caller) -> Any:
        self._subscriptions[params["subscription"]].cancel()
        return {}

    async def do_break_task(self, _params: Any, caller: Caller) -> Any:
        async def fail() -> None:
            raise KeyError("nothing")

        caller.start(fail)

    async def do_fail_when_cancelled(self, _params: Any, _caller: Caller) -> Any:
        async def fail() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError("a defect of the clean-up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            self.hanging.set()
            await trio.sleep_forever()

    async def do_whoami(self, params: Any, caller: Caller) -> Any:
        """Note the logging context of this request; wait first where asked to."""
        bind_facts(**params.get("bind", {}))
        if params.get("waits"):
            await trio.lowlevel.checkpoint()
        return {"principal": caller.principal, "context": {**bound_facts()}}

    async def do_hang(self, _params: Any, _caller: Caller) -> Any:
        self.hanging.set()
        await trio.sleep_forever()

    async def do_wait(self, _params: Any, _caller: Caller) -> Any:
        self.hanging.set()
        await self.release.wait()
        return "released"

    async def do_wait_for_much(self, params: Any, _caller: Caller) -> Any:
        """Answer ``size`` bytes once released."""
        await self.release.wait()
        return "x" * params["size"]

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


def an_event(seq: int, text: str = "") -> dict[str, Any]:
    """An envelope as the gateway would make it."""
    event = {"seq": seq, "ts": 1.0, "session": "s", "channel": "progress", "type": "text_chunk"}
    return {**event, "data": {"delta": text}}
