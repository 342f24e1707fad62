"""``agent -p TEXT``: one prompt in the terminal; the answer on stdout, progress and approval questions on stderr."""

import getpass
import math
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from agent.approvals import Approvals, NotDecidable
from agent.assembly import StartupError, assemble
from agent.models.scripted import ProcessFaults
from agent.options import Options
from agent.output import OutputLost, WorkerOutput
from agent.run_executor import RunExecutor
from agent.runs import AgentRun
from agent.worker import AgentWorker
from wire.call_page import CallPage, describe_hidden
from wire.entries import ApprovalDecision
from wire.messages import PromptResult, ToolCallView
from wire.run_view import CallLines, RunView, describe_call

_ALLOW, _DENY, _ALL = frozenset({"y", "yes"}), frozenset({"n", "no"}), frozenset({"a", "all"})


class ApprovalPrompter:
    """Asks at the terminal about calls that need approval, one after the other; an answer is one line."""

    def __init__(self, view: RunView, approvals: Approvals, terminal: int) -> None:
        """``terminal``: the file descriptor of a terminal, to read from."""
        self._view = view
        self._calls = CallLines(view)
        self._approvals = approvals
        self._terminal = terminal
        self._sender, self._requests = trio.open_memory_channel[dict[str, Any]](math.inf)

    def enqueue(self, question: dict[str, Any]) -> None:
        """Take the data of a ``permission_required``; the worker bounds how many there are."""
        self._sender.send_nowait(question)

    async def run(self) -> None:
        """Ask until cancelled."""
        async for question in self._requests:
            call: ToolCallView = question["call"]
            self._view.line(f"? needs your approval: {call.name} ({question['reason']})", style="")
            self._calls.page(question["shown"])
            termios.tcflush(self._terminal, termios.TCIFLUSH)  # typed before the question was shown
            await self._prompt_until_decided(call.id, question["shown"])

    async def _prompt_until_decided(self, call_id: str, shown: CallPage) -> None:
        """A call with hidden parts is allowed only with ``seen`` of its last page."""
        while any(call.id == call_id for call in self._approvals.pending()):
            hidden = describe_hidden(shown)
            asked = f"{hidden}: a(ll of it), or n(o)" if hidden else "y(es), or n(o)"
            self._view.line(f"  {asked}; after no you may give a reason", whole=True, style="")
            word, _, why = (await self._read_line()).partition(" ")
            if word.lower() in _ALL and hidden:
                shown = self._show_hidden(call_id, shown)
            elif word.lower() in _DENY:
                self._decide(call_id, "deny", why.strip() or None, None)
            elif word.lower() in _ALLOW:
                self._decide(call_id, "allow", None, shown.seen)

    def _show_hidden(self, call_id: str, shown: CallPage) -> CallPage:
        """Show the hidden rest of the call; returns its last page."""
        try:
            while shown.hidden:
                shown = self._approvals.page(call_id, shown.end)
                self._calls.page(shown)
        except NotDecidable as exc:
            self._view.line(f"! {exc}", whole=True, style="")
        return shown

    def _decide(self, call_id: str, decision: ApprovalDecision, note: str | None, seen: str | None) -> None:
        try:
            self._approvals.decide(call_id, decision, note, getpass.getuser(), seen=seen)
        except NotDecidable as exc:
            self._view.line(f"! {exc}", whole=True, style="")

    async def _read_line(self) -> str:
        """One typed line; end of input counts as no."""
        await trio.lowlevel.wait_readable(self._terminal)
        typed = os.read(self._terminal, 4096)
        return typed.decode(errors="replace").strip() if typed else "no"


class TerminalOutput(WorkerOutput):
    """The worker's output for a person. Without a ``prompter``, calls that need approval are denied."""

    approvals: Approvals | None = None
    prompter: ApprovalPrompter | None = None

    def __init__(self, view: RunView) -> None:
        super().__init__()
        self._view = view
        self._calls = CallLines(view)
        self._handlers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "tool": self._tool,
            "error": self._error,
            "permission_required": self._permission,
            "agent_resumed": self._resumed,
            "compaction": self._compaction,
            "exec_exit": lambda data: view.line(f"· {data['summary']}"),
        }

    def emit_pieces(self, name: str, parts: Sequence[str], run_id: str) -> None:  # noqa: ARG002 - the interface's
        """Show what belongs to the answer."""
        if name == "assistant_message":
            with _output_errors_raised():
                self._view.answer("".join(parts))
                self._view.flush()

    def emit(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Show the events that are for a person."""
        handler = self._handlers.get(name)
        if handler is not None:
            with _output_errors_raised():
                handler(data)
        return {"event": name, "data": {**data, "seq": self.next_seq()}}

    def _tool(self, data: dict[str, Any]) -> None:
        call: ToolCallView = data["call"]
        match data["phase"]:
            case "start":
                self._calls.start(call)
            case "update":
                self._calls.update(data["tail"])
            case "error":
                self._calls.error(call, data["error"], data.get("details"))
            case "end":
                self._calls.end(call, data.get("details"))

    def _error(self, data: dict[str, Any]) -> None:
        if data.get("severity") == "warn":  # an error ends the run, and is shown then
            self._view.line(f"! {data['message']}", style="")

    def _permission(self, data: dict[str, Any]) -> None:
        if self.prompter is not None:
            self.prompter.enqueue(data)
            return
        call: ToolCallView = data["call"]
        words = describe_call(call.name, call.input_preview)
        self._view.line(f"? needs approval, and no one can approve it here: {words}", about=call.id)
        if self.approvals is not None:
            self.approvals.decide(call.id, "deny", "no one can approve it here: go another way", "agent -p")

    def _resumed(self, data: dict[str, Any]) -> None:
        count = len(data["sealed"])
        calls = "1 tool call" if count == 1 else f"{count} tool calls"
        self._view.line(
            f"! the session was interrupted: {calls} of it sealed; the model was asked to check their effects"
        )

    def _compaction(self, data: dict[str, Any]) -> None:
        match data:
            case {"phase": "start"}:
                self._view.line(f"· the conversation is being compacted ({data['reason']})")
            case {"error": error}:
                self._view.line(f"! could not compact the conversation: {error}")
            case {"aborted": True}:
                self._view.line("! not compacted: the run was ended")
            case _:
                self._view.line("✓ the conversation is compacted")


@contextmanager
def _output_errors_raised() -> Iterator[None]:
    """Failed output ends the process; it is no defect of the run."""
    try:
        yield
    except OSError as exc:
        raise OutputLost(str(exc)) from exc


_EXIT_CODES = {"stop": 0, "timeout": 4, "max_steps": 5, "length": 5}
"""As those of ``pool prompt``."""
_INCOMPLETE_REASONS = {
    "max_steps": "the agent was not done: it has made all model calls that one run may (--max-steps)",
    "length": "the answer is cut off: it has reached the model's limit",
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_once(options: Options) -> int:
    """Run the prompt of the options; the exit code (``agent --help`` lists them). Raises StartupError."""
    view = RunView(sys.stdout, sys.stderr, os.environ)
    output = TerminalOutput(view)
    worker = assemble(options, output, ProcessFaults(lambda data: view.answer(data.decode(errors="replace"))))
    output.approvals = worker.toolbox.approvals
    if options.prompt != "-" and sys.stdin.isatty() and sys.stderr.isatty():
        output.prompter = ApprovalPrompter(view, worker.toolbox.approvals, sys.stdin.fileno())
    return trio.run(_run, worker, view, _read_prompt(options.prompt or ""), output.prompter)


def _read_prompt(prompt: str) -> str:
    """The prompt; for ``-`` all of stdin. Raises StartupError."""
    try:
        text = sys.stdin.buffer.read().decode() if prompt == "-" else prompt
    except UnicodeDecodeError as exc:
        raise StartupError(f"what stdin holds is not UTF-8 text: {exc}") from exc
    if not text.strip():
        raise StartupError("the prompt is empty; say something")
    return text


async def _run(worker: AgentWorker, view: RunView, prompt: str, prompter: ApprovalPrompter | None) -> int:
    run = AgentRun(run_id=f"r{worker.output.next_seq()}", text=worker.project_context.expand(prompt))
    caught: list[int] = []
    results: list[PromptResult] = []
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, caught, run, view, nursery.cancel_scope)
            if prompter is not None:
                nursery.start_soon(prompter.run)
            results.append(await _run_to_end(worker, run, view))
            nursery.cancel_scope.cancel()
    view.close()
    for result in results:
        trouble = result.error or _INCOMPLETE_REASONS.get(result.stop_reason)
        if trouble is not None:
            view.line(f"agent: {trouble}", style="", whole=True)
        if not caught:
            return _EXIT_CODES.get(result.stop_reason, 1)
    return 128 + caught[0]


async def _watch_signals(
    signals: AsyncIterator[int], caught: list[int], run: AgentRun, view: RunView, everything: trio.CancelScope
) -> None:
    """The first signal aborts the run and waits for its commands; the second does not wait."""
    async for number in signals:
        if caught:
            everything.cancel()
        else:
            view.line("! aborting; a second signal ends it at once")
            run.abort()
        caught.append(number)


async def _run_to_end(worker: AgentWorker, run: AgentRun, view: RunView) -> PromptResult:
    """Commands still in the background when the answer is complete end with it."""
    processes = worker.toolbox.sandbox.processes
    async with trio.open_nursery() as nursery:
        await nursery.start(processes.run)
        await worker.start()
        result = await RunExecutor(run, worker).execute()
        if left := processes.background_ids():
            view.line(f"! stopped commands that still ran in the background: {len(left)}")
        await processes.aclose()
        await worker.close()
        nursery.cancel_scope.cancel()
    return result
