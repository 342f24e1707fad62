"""One run, from a prompt to its end: bounded in time, abortable at any moment, settled whatever happens."""

import sys
from typing import Any

import msgspec
import trio

from agent.hooks import AgentEnd, AgentStart
from agent.model_call import ModelCaller
from agent.models.base import ModelError
from agent.output import OutputLost, RunEvents
from agent.runs import AgentRun
from agent.step_loop import StepLoop
from agent.worker import AgentWorker
from wire.messages import PromptResult, StopReason
from wire.transcript_repair import TranscriptError


class RunClock:
    """Cancels ``scope`` when the run's time is over; pausable."""

    def __init__(self, scope: trio.CancelScope, seconds: float) -> None:
        self._scope = scope
        self._remaining = seconds
        self._since: float | None = None

    def resume(self) -> None:
        """Start the clock; harmless when it runs."""
        if self._since is None:
            self._since = trio.current_time()
            self._scope.deadline = self._since + self._remaining

    def pause(self) -> None:
        """Stop the clock; harmless when it is stopped."""
        if self._since is not None:
            self._remaining = max(0.0, self._remaining - (trio.current_time() - self._since))
            self._since = None
            self._scope.deadline = float("inf")


class RunExecutor:
    """Executes one ``AgentRun`` in the worker's current conversation; used once."""

    def __init__(self, run: AgentRun, worker: AgentWorker) -> None:
        self._run = run
        self._worker = worker
        self._conversation = worker.conversation
        self._toolbox = worker.toolbox
        self._clock = RunClock(run.scope, worker.limits.run_timeout)
        self._events = RunEvents(worker.output, run.run_id, worker.limits.recorded_events)
        self._caller = ModelCaller(run, worker, self._events)
        self._steps = StepLoop(run, worker, self._caller, self._emit)

    async def execute(self) -> PromptResult:
        """Run to the end, whatever it is; everything up to it is persisted."""
        self._events.emit("run_start", {})
        stop: StopReason = "aborted"
        error: str | None = None
        try:
            stop, error = await self._run_bounded()
        finally:  # also when the worker itself ends
            self._stop_input(stop)
            settling = await self._settle(stop)
            if settling is not None:
                stop, error = "error", error or settling
        hooks = self._toolbox.hooks
        if await hooks.has("agent_end"):
            end = AgentEnd(self._run.run_id, stop, self._steps.text, error, self._messages())
            await hooks.notify("agent_end", end)
        return self._emit_end(stop, error)

    async def _run_bounded(self) -> tuple[StopReason, str | None]:
        self._worker.compactor.was_cancelled = False
        with self._run.scope:
            self._clock.resume()
            try:
                return await self._run_steps(), None
            except (ModelError, TranscriptError) as exc:
                return "error", str(exc)
            except OutputLost:
                raise
            except Exception as exc:  # noqa: BLE001 - a defect ends one run, with an error
                return "error", _report_defect(exc)
        if self._run.aborting:
            return "aborted", None
        where = " while the conversation was being compacted" if self._worker.compactor.was_cancelled else ""
        return "timeout", f"the run took longer than {self._worker.limits.run_timeout:g} s{where}"

    async def _run_steps(self) -> StopReason:
        text, hooks = self._run.text, self._toolbox.hooks
        if await hooks.has("before_agent_start"):
            start = AgentStart(text, self._caller.system_prompt, self._messages())
            start = await hooks.before_agent_start(start)
            text, self._caller.system_prompt = start.text, start.system_prompt
        stop = await self._steps.run(text)
        model = self._toolbox.model
        if model.keeps_cache:
            self._conversation.record_cache(model.provider, model.name)
        return stop

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = msgspec.to_builtins(self._conversation.messages)
        return messages

    def _stop_input(self, stop: StopReason) -> None:
        """Accept no more input, in the step that found nothing left to do, so that every accepted input was read.

        At any other end queued inputs are dropped, unless an abort or the client's next prompt keeps them.
        """
        self._run.closing = True
        if not self._run.aborting and stop != "tool_calls":
            self._worker.input_queue.clear()

    async def _settle(self, stop: StopReason) -> str | None:
        """Settle the run's calls on disk; the error, if that failed."""
        try:
            await self._steps.settle(stop)
        except TranscriptError as exc:
            return str(exc)
        return None

    def _emit_end(self, stop: StopReason, error: str | None) -> PromptResult:
        usage = self._caller.usage
        if error is not None:
            self._events.emit("error", {"message": error})
        self._events.emit("token_usage", msgspec.to_builtins(usage))
        self._events.emit("done", {"stop_reason": stop, "step": self._run.step_count})
        self._events.close()
        open_calls = self._steps.client_calls if stop == "tool_calls" else []
        calls = [{"id": call.id, "name": call.name, "input": call.input} for call in open_calls]
        return PromptResult(self._steps.text, stop, self._events.recorded(), usage, error, calls, self._run.step_count)

    def _emit(self, name: str, data: dict[str, Any]) -> None:
        self._events.emit(name, data)
        if name in {"permission_required", "permission_decided"}:
            if self._toolbox.approvals.pending():
                self._clock.pause()  # the run does not pay for a person's time
            else:
                self._clock.resume()


def _report_defect(defect: BaseException) -> str:
    """The error for the user; also written to stderr."""
    while isinstance(defect, BaseExceptionGroup):
        defect = defect.exceptions[0]
    words = f"internal error: {type(defect).__name__}: {defect}"
    sys.stderr.write(f"agent: {words}\n")
    return words
