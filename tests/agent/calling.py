"""Tool calls on a bench: tools that do what a test says, a journal that remembers, and everything that is told."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from agent.approvals import Approvals
from agent.call_runner import CallRunner
from agent.hook_runner import Hooks
from agent.hooks import Hook
from agent.policy import Policy
from agent.processes.registry import ProcessRegistry
from agent.tools.base import Effects, Tool, ToolContext, ToolError, ToolOutput
from wire.entries import CallRecord, CallState, ToolUseBlock
from wire.messages import ToolCallView
from wire.transcript_repair import TranscriptError


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float = 0.0
    say: str = "done"


Work = Callable[[Input, ToolContext], Awaitable[str | ToolOutput]]


async def take_time(arguments: Input, _context: ToolContext) -> str:
    await trio.sleep(arguments.seconds)
    return arguments.say


class FakeTool(Tool):
    description = "does what the test says"
    input_type = Input

    def __init__(
        self, name: str, work: Work = take_time, effects: Effects = "run", timeout: float | None = 60.0
    ) -> None:
        self.name = name
        self.effects = effects
        self.timeout = timeout
        self.begun: list[str] = []
        self._work = work

    async def run(self, arguments: Input, context: ToolContext) -> str | ToolOutput:
        self.begun.append(context.call_id)
        return await self._work(arguments, context)


async def fail(_arguments: Input, _context: ToolContext) -> str:
    raise ToolError("no such thing", "logical", retryable=True, note="look again", recommendations=["look elsewhere"])


async def break_down(_arguments: Input, _context: ToolContext) -> str:
    raise KeyError("a bug")


async def hang(_arguments: Input, _context: ToolContext) -> str:
    await trio.sleep_forever()
    raise AssertionError


TOOLS = {"work": take_time, "fail": fail, "break": break_down, "hang": hang}
FINE = [("tool", "start"), ("tool_executed", None), ("tool", "end")]
BAD = [("tool", "start"), ("tool", "error"), ("tool_executed", None), ("tool", "end")]


class Journal:
    """``safe`` is what survives a power cut. ``full``: the disk takes nothing more."""

    def __init__(self) -> None:
        self.noted: list[CallRecord] = []
        self.safe = 0
        self.syncs = 0
        self.full = False

    def record_call(self, record: CallRecord) -> None:
        if self.full:
            raise TranscriptError("the disk is full")
        msgspec.json.encode(record)
        self.noted.append(record)

    def is_allowed(self, key: str) -> bool:
        return any(record.approval is not None and record.approval.allows == key for record in self.noted)

    async def sync(self) -> None:
        self.syncs += 1
        await trio.lowlevel.checkpoint()
        self.safe = len(self.noted)

    def states(self, call_id: str) -> list[CallState]:
        return [record.state for record in self.noted if record.id == call_id]

    def last(self, call_id: str) -> CallRecord:
        return next(record for record in reversed(self.noted) if record.id == call_id)


class Bench:
    """Calls are ``(name, input)`` and get the ids c0, c1, ...; ``react`` is called inside the telling of each event."""

    def __init__(self, *tools: FakeTool, policy: Policy | None = None, hooks: dict[str, Any] | None = None) -> None:
        self.tools = {tool.name: tool for tool in tools or map(FakeTool, TOOLS, TOOLS.values())}
        self.policy = policy or Policy()
        self.approvals = Approvals()
        self.processes = ProcessRegistry()
        self.journal = Journal()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.warnings: list[tuple[str, str]] = []
        self.react: Callable[[str, dict[str, Any]], None] = lambda _name, _data: None
        functions = [Hook(name, function, "test") for name, function in (hooks or {}).items()]
        self.hooks = Hooks(functions, lambda phase, message: self.warnings.append((phase, message)))
        self._news = trio.Event()

    def say(self, name: str, data: dict[str, Any]) -> None:
        self.events.append((name, data))
        self._news.set()
        self._news = trio.Event()
        self.react(name, data)

    def runner(self, *calls: tuple[str, Any]) -> CallRunner:
        return CallRunner(
            [ToolUseBlock(f"c{number}", name, given) for number, (name, given) in enumerate(calls)],
            tools=self.tools,
            policy=self.policy,
            approvals=self.approvals,
            hooks=self.hooks,
            log=self.journal,
            context_for=lambda call, report: ToolContext("/", {}, self.processes, report, call.id),
            emit=self.say,
        )

    async def run(self, *calls: tuple[str, Any], parallel: int = 3) -> list[dict[str, Any]]:
        """Run the calls to their ends; the contents of their results."""
        runner = self.runner(*calls)
        with trio.fail_after(1000):
            await runner.run(parallel)
        return contents(runner)

    async def told(self, name: str, call_id: str, phase: str | None = None) -> None:
        """Wait for an event about a call."""
        with trio.fail_after(1000):
            while (name, phase) not in self.story(call_id):
                await self._news.wait()

    def story(self, call_id: str) -> list[tuple[str, str | None]]:
        """What was told about one call, in order."""
        return [(name, data.get("phase")) for name, data in self.events if subject(data) == call_id]

    def states_told(self, call_id: str) -> list[str]:
        return [
            data["call"].state
            for _, data in self.events
            if isinstance(data.get("call"), ToolCallView) and data["call"].id == call_id
        ]


def subject(data: dict[str, Any]) -> str:
    """The id of the call that an event is about."""
    call_id: str = data["call"].id if "call" in data else data["call_id"]
    return call_id


def contents(runner: CallRunner) -> list[dict[str, Any]]:
    return [result.content for result in runner.results()]


def answer(bench: Bench, **decisions: str) -> None:
    """Decide about these calls from inside the handler that hears of them."""

    def react(name: str, data: dict[str, Any]) -> None:
        if name == "permission_required" and subject(data) in decisions:
            bench.approvals.decide(subject(data), decisions[subject(data)], "my note", "ann")  # type: ignore[arg-type]

    bench.react = react
