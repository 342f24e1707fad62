"""One run with its clock.

The time that a run may take; while a person is asked it does not pass.

One run, from a prompt to its end: bounded in time, abortable at any moment, and settled whatever happened.
"""

import sys
from typing import Any

import msgspec
import trio

from agent.client_tools import view_of
from agent.hook_types import AgentEnd, AgentStart
from agent.model_call import ModelCaller
from agent.models.base import ModelError
from agent.output import OutputLost, RunVoice
from agent.runs import Run
from agent.steps import Steps
from agent.worker import Worker
from wire.messages import PromptResult, StopReason
from wire.transcript_repair import TranscriptError


class RunClock:
    """Cancels ``scope`` when the time is over. Enter the scope first."""

    def __init__(self, seconds: float) -> None:
        self.scope = trio.CancelScope()
        self._left = seconds
        self._since: float | None = None

    def go_on(self) -> None:
        """Let the time pass; harmless when it does."""
        if self._since is None:
            self._since = trio.current_time()
            self.scope.deadline = self._since + self._left

    def pause(self) -> None:
        """Stop it; harmless when it stands."""
        if self._since is not None:
            self._left = max(0.0, self._left - (trio.current_time() - self._since))
            self._since = None
            self.scope.deadline = float("inf")


class Turn:
    """The execution of one ``Run`` in the conversation that the worker has when this is made; used once."""

    def __init__(self, run: Run, worker: Worker) -> None:
        self._run = run
        self._conversation = worker.conversation
        self._brain = worker.brain
        self._compactor = worker.compactor
        self._inbox = worker.inbox
        self._limits = worker.limits
        self._clock = RunClock(self._limits.run_timeout)
        self._voice = RunVoice(worker.output, run.run_id, self._limits.recorded_events)
        self._caller = ModelCaller(
            run,
            conversation=self._conversation,
            brain=self._brain,
            compactor=self._compactor,
            voice=self._voice,
            output=worker.output,
            limits=self._limits,
        )
        self._steps = Steps(
            run,
            conversation=self._conversation,
            brain=self._brain,
            caller=self._caller,
            inbox=self._inbox,
            limits=self._limits,
            say=self._say,
        )

    async def execute(self) -> PromptResult:
        """Run to the end, whatever end it is; what was said and done until then is persisted."""
        self._say("run_start", {})
        stop: StopReason = "aborted"
        error: str | None = None
        try:
            stop, error = await self._bounded()
        finally:  # also when the worker itself ends
            self._close(stop)
            settling = await self._settle(stop)
            if settling is not None:
                stop, error = "error", error or settling
        messages = await self._messages_for("agent_end")
        await self._brain.hooks.agent_end(AgentEnd(self._run.run_id, stop, self._steps.text, error, messages))
        return self._tell_the_end(stop, error)

    async def _bounded(self) -> tuple[StopReason, str | None]:
        self._compactor.cut_short = False
        with self._run.scope:
            with self._clock.scope:
                self._clock.go_on()
                try:
                    return await self._go(), None
                except (ModelError, TranscriptError) as exc:
                    return "error", str(exc)
                except OutputLost:
                    raise
                except Exception as exc:  # noqa: BLE001 - a defect ends one run, and as every other end does: told
                    return "error", _told(exc)
            where = " while the conversation was being compacted" if self._compactor.cut_short else ""
            return "timeout", f"the run took longer than {self._limits.run_timeout:g} s{where}"
        return "aborted", None

    async def _go(self) -> StopReason:
        messages = await self._messages_for("before_agent_start")
        start = AgentStart(self._run.text, self._brain.system_prompt, messages)
        start = await self._brain.hooks.before_agent_start(start)
        self._caller.system_prompt = start.system_prompt
        stop = await self._steps.go(start.text)
        model = self._brain.model
        if model.keeps_cache:
            self._conversation.note_cache(model.provider, model.name)
        return stop

    async def _messages_for(self, hook: str) -> list[dict[str, Any]]:
        if not await self._brain.hooks.has(hook):
            return []
        messages: list[dict[str, Any]] = msgspec.to_builtins(self._conversation.messages)
        return messages

    def _close(self, stop: StopReason) -> None:
        """Take nothing in any more, in the step that found nothing left to do: whatever was accepted has been read.

        Of a run that ends otherwise, what still waits is forgotten, but what an abort, or the client's next prompt, is
        to keep.
        """
        self._run.closing = True
        if not self._run.aborting and stop != "tool_calls":
            self._inbox.clear()

    async def _settle(self, stop: StopReason) -> str | None:
        """Why it could not be written, or None."""
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self._limits.settle_timeout):
                await self._steps.settle(stop)
        except TranscriptError as exc:
            return str(exc)
        return None

    def _tell_the_end(self, stop: StopReason, error: str | None) -> PromptResult:
        usage = self._caller.usage
        if error is not None:
            self._say("error", {"message": error})
        self._say("token_usage", msgspec.to_builtins(usage))
        self._say("done", {"stop_reason": stop, "step": self._run.step_count})
        self._voice.fall_silent()
        calls = [view_of(call) for call in self._steps.client_calls] if stop == "tool_calls" else []
        return PromptResult(self._steps.text, stop, self._voice.events(), usage, error, calls, self._run.step_count)

    def _say(self, name: str, data: dict[str, Any]) -> None:
        self._voice.say(name, data)
        if name in {"permission_required", "permission_decided"}:
            if self._brain.approvals.pending():
                self._clock.pause()  # it is a person's time that passes
            else:
                self._clock.go_on()


def _told(defect: BaseException) -> str:
    """What is said of it, to the user and to whoever looks after the worker."""
    while isinstance(defect, BaseExceptionGroup):
        defect = defect.exceptions[0]
    words = f"internal error: {type(defect).__name__}: {defect}"
    sys.stderr.write(f"agent: {words}\n")
    return words
