"""Running the tool calls of one model answer: checked, bounded, told by events, one result each in call order."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from agent.history import failure
from agent.tools.base import Tool, ToolContext, ToolError
from wire.entries import ToolResultBlock, ToolUseBlock
from wire.messages import ToolCallView

__all__ = ["CallRunner", "Say"]

_PREVIEW_CHARS = 200

Say = Callable[[str, dict[str, Any]], None]
"""Tells an event of the run."""


class CallRunner:
    """The calls of one answer. ``results`` fills while ``run`` runs; ``close`` fails what is left."""

    def __init__(
        self, calls: Sequence[ToolUseBlock], tools: Mapping[str, Tool], context: tuple[str, dict[str, str]], say: Say
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._context = context
        self._say = say
        self._previews = {call.id: msgspec.json.encode(call.input).decode()[:_PREVIEW_CHARS] for call in calls}
        self._started: dict[str, float] = {}
        self._results: dict[str, ToolResultBlock] = {}

    def results(self) -> list[ToolResultBlock]:
        """What there is so far, in call order."""
        return [self._results[call.id] for call in self._calls if call.id in self._results]

    async def run(self, parallel: int) -> None:
        """Run all calls, ``parallel`` at a time, started in call order."""
        limit = trio.Semaphore(parallel)
        async with trio.open_nursery() as nursery:
            for call in self._calls:
                await limit.acquire()
                self._start(call)
                nursery.start_soon(self._run_one, call, limit)

    def close(self) -> None:
        """Give every call without a result the result that it was aborted."""
        for call in self._calls:
            if call.id not in self._results:
                ran = call.id in self._started
                advice = "Check for side effects: it had begun." if ran else "It had not begun."
                self._fail(call, failure("The call was aborted.", "aborted", retryable=True, note=advice))

    def _start(self, call: ToolUseBlock) -> None:
        self._started[call.id] = time.monotonic()
        self._say("tool", {"phase": "start", "call": self._view(call, "RUNNING")})

    async def _run_one(self, call: ToolUseBlock, limit: trio.Semaphore) -> None:
        try:
            data = await self._result_of(call)
        except ToolError as exc:
            self._fail(call, failure(str(exc), exc.error_type, retryable=exc.retryable))
        except Exception as exc:  # noqa: BLE001 - a tool's bug is the call's failure, never the end of the run
            self._fail(call, failure(f"{type(exc).__name__}: {exc}", "runtime", _thrownError=True))
        else:
            self._finish(call, {"ok": True, "data": data}, "COMPLETED")
        finally:
            limit.release()

    async def _result_of(self, call: ToolUseBlock) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"there is no tool {call.name!r}; available: {known}", "validation")
        try:
            arguments = msgspec.convert(call.input, tool.input_type)
        except msgspec.ValidationError as exc:
            raise ToolError(f"the input does not fit the tool {call.name}: {exc}", "validation") from exc
        cwd, environment = self._context
        context = ToolContext(cwd, environment, lambda tail: self._update(call, tail))
        with trio.move_on_after(float("inf") if tool.timeout is None else tool.timeout):
            return await tool.run(arguments, context)
        raise ToolError(f"timed out after {tool.timeout:g} s")

    def _update(self, call: ToolUseBlock, tail: str) -> None:
        self._say("tool", {"phase": "update", "call": self._view(call, "RUNNING"), "tail": tail})

    def _fail(self, call: ToolUseBlock, content: dict[str, Any]) -> None:
        if call.id not in self._started:
            self._start(call)
        self._say("tool", {"phase": "error", "call": self._view(call, "FAILED"), "error": content["error"]})
        self._finish(call, content, "FAILED")

    def _finish(self, call: ToolUseBlock, content: dict[str, Any], state: str) -> None:
        view = self._view(call, state)
        self._results[call.id] = ToolResultBlock(call.id, content, is_error=not content["ok"])
        self._say("tool_executed", {"call": view, "ok": content["ok"]})
        self._say("tool", {"phase": "end", "call": view})

    def _view(self, call: ToolUseBlock, state: str) -> ToolCallView:
        duration = None if state == "RUNNING" else round((time.monotonic() - self._started[call.id]) * 1000, 3)
        return ToolCallView(call.id, call.name, self._previews[call.id], state, duration)
