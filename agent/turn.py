"""One run, from a prompt to its end: call the model, run its tools, persist each message before acting on it."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import trio

from agent.approvals import Approvals
from agent.calls import CallRunner
from agent.conversation import Conversation
from agent.hooks import Hooks
from agent.inbox import Inbox
from agent.limits import Limits
from agent.models.base import (
    CallPiece,
    Model,
    ModelError,
    ModelRequest,
    Piece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    ToolDefinition,
    UsagePiece,
)
from agent.output import Output
from agent.policy import Policy
from agent.tools.base import Tool, ToolContext, definition_of
from wire.entries import Block, ImageBlock, Origin, TextBlock, ThinkingBlock, ToolUseBlock, TranscriptMessage
from wire.messages import ImageContent, PromptResult, StopReason, TokenUsage
from wire.transcript import TranscriptError

__all__ = ["Brain", "Run", "Turn"]

_INTERRUPT = "[INTERRUPT] New message from user: "


class Run(msgspec.Struct, eq=False):
    """One prompt that was accepted: its id, its words, and how to abort it."""

    run_id: str
    text: str
    images: list[ImageContent]
    scope: trio.CancelScope
    aborting: bool = False

    def abort(self) -> None:
        """End it at the next possible moment; harmless when repeated, or before it has begun."""
        self.aborting = True
        self.scope.cancel()


class Brain(msgspec.Struct, eq=False):
    """What answers: changeable between model calls."""

    model: Model
    system_prompt: str
    tools: dict[str, Tool]
    cwd: str
    environment: dict[str, str]
    thinking: str = "off"
    policy: Policy = Policy()
    approvals: Approvals = msgspec.field(default_factory=Approvals)
    hooks: Hooks = msgspec.field(default_factory=Hooks)

    def context_for(self, call: ToolUseBlock, report: Callable[[str], None]) -> ToolContext:
        """What a call may use."""
        return ToolContext(cwd=self.cwd, environment=self.environment, report=report, call_id=call.id)

    def definitions(self) -> list[ToolDefinition]:
        """The tools as a model sees them."""
        return [ToolDefinition(tool.name, tool.description, definition_of(tool)) for tool in self.tools.values()]


class _Reply(msgspec.Struct):
    """A model answer as it comes in."""

    text: list[str] = []
    thinking: list[str] = []
    calls: list[ToolUseBlock] = []
    stop_reason: str = "stop"

    def message(self) -> TranscriptMessage:
        """It, complete."""
        blocks: list[Block] = []
        if self.thinking:
            blocks.append(ThinkingBlock("".join(self.thinking)))
        if self.text:
            blocks.append(TextBlock("".join(self.text)))
        return TranscriptMessage("assistant", [*blocks, *self.calls], stop_reason=self.stop_reason)


class Turn:
    """The execution of one ``Run``; used once."""

    def __init__(
        self, run: Run, *, conversation: Conversation, brain: Brain, inbox: Inbox, output: Output, limits: Limits
    ) -> None:
        self._run = run
        self._conversation = conversation
        self._brain = brain
        self._inbox = inbox
        self._output = output
        self._limits = limits
        self._events: list[dict[str, Any]] = []
        self._unrecorded = 0
        self._usage = TokenUsage()
        self._text = ""
        self._reply: _Reply | None = None
        self._calls: CallRunner | None = None

    async def execute(self) -> PromptResult:
        """Run to the end, whatever end it is; what was said and done until then is persisted."""
        self._say("run_start", {})
        self._say("state_changed", {"state": "processing", "reason": "run_started"})
        stop, error = await self._steps_bounded()
        try:
            await self._settle(stop)
        except TranscriptError as exc:
            stop, error = "error", error or str(exc)
        if error is not None:
            self._say("error", {"message": error})
        self._say("token_usage", msgspec.to_builtins(self._usage))
        self._say("done", {"stop_reason": stop})
        self._say("state_changed", {"state": "idle", "reason": "run_completed"})
        if self._unrecorded:
            self._events.append({"event": "left_out", "data": {"events": self._unrecorded}})
        return PromptResult(self._text, stop, self._events, self._usage, error)

    async def _steps_bounded(self) -> tuple[StopReason, str | None]:
        with self._run.scope:
            with trio.move_on_after(self._limits.run_timeout):
                try:
                    return await self._steps(), None
                except (ModelError, TranscriptError) as exc:
                    return "error", str(exc)
            return "timeout", f"the run took longer than {self._limits.run_timeout:g} s"
        return "aborted", None

    async def _steps(self) -> StopReason:
        await self._take_user_message("prompt", self._run.text, self._run.images)
        for step in range(self._limits.max_steps):
            for steer in self._inbox.take_steers():
                await self._take_user_message("steer", _INTERRUPT + steer.text, steer.images)
            message = await self._call_model(step)
            if message.calls:
                await self._run_calls(message.calls)
            elif message.stop_reason == "length":
                return "length"
            elif not self._inbox.has_steers():
                follow_up = self._inbox.take_follow_up()
                if follow_up is None:
                    return "stop"
                await self._take_user_message("follow_up", follow_up.text, follow_up.images)
        return "max_steps"

    async def _take_user_message(self, origin: Origin, text: str, images: list[ImageContent]) -> None:
        blocks: list[Block] = [TextBlock(text), *(ImageBlock(image.data, image.mime_type) for image in images)]
        self._conversation.add(TranscriptMessage("user", blocks, origin=origin))
        await self._conversation.sync()

    async def _call_model(self, step: int) -> TranscriptMessage:
        brain = self._brain
        request = ModelRequest(
            f"{self._run.run_id}.{step}",
            self._conversation.messages,
            system_prompt=brain.system_prompt,
            thinking=brain.thinking,
            tools=brain.definitions(),
        )
        reply = self._reply = _Reply()
        async with aclosing(brain.model.stream(request)) as pieces:
            async for piece in pieces:
                self._take_piece(reply, piece)
                await self._output.room(self._limits.output_soft)
        message = reply.message()
        self._text = message.text
        self._conversation.add(message)
        # From here on an abort must answer the calls, and not keep the text once more.
        self._reply = None
        self._calls = CallRunner(
            message.calls,
            tools=brain.tools,
            policy=brain.policy,
            approvals=brain.approvals,
            hooks=brain.hooks,
            journal=self._conversation,
            context_for=brain.context_for,
            say=self._say,
        )
        await self._conversation.sync()
        return message

    def _take_piece(self, reply: _Reply, piece: Piece) -> None:
        match piece:
            case TextPiece(parts):
                reply.text.append("".join(parts))  # one string a batch: a long answer is not a million objects
                self._output.pieces("assistant_message", parts, self._run.run_id)
            case ThinkingPiece(parts):
                reply.thinking.append("".join(parts))
                self._output.pieces("thinking", parts, self._run.run_id)
            case CallPiece():
                reply.calls.append(ToolUseBlock(piece.id, piece.name, piece.input))
            case UsagePiece(more_in, more_out):
                self._usage = TokenUsage(self._usage.input_tokens + more_in, self._usage.output_tokens + more_out)
            case StopPiece(reason):
                reply.stop_reason = reason

    async def _run_calls(self, calls: list[ToolUseBlock]) -> None:
        assert self._calls is not None, calls  # noqa: S101 - made together with the message that holds the calls
        await self._calls.run(self._limits.parallel_tools)
        await self._persist_results()

    async def _persist_results(self) -> None:
        calls, self._calls = self._calls, None
        results = calls.results() if calls is not None else []
        if results:
            self._conversation.add(TranscriptMessage("user", [*results], origin="tool"))
            await self._conversation.sync()

    async def _settle(self, stop: StopReason) -> None:
        """After the end: keep the half answer that the user has seen, and give open calls their results."""
        if self._reply is not None and (self._reply.text or self._reply.thinking):
            self._reply.calls.clear()  # calls of an answer that was cut off were never meant to run
            self._reply.stop_reason = stop
            message = self._reply.message()
            self._text = message.text
            self._conversation.add(message)
            await self._conversation.sync()
        if self._calls is not None:
            self._calls.close()
            await self._persist_results()

    def _say(self, name: str, data: dict[str, Any]) -> None:
        said = self._output.event(name, {**data, "run_id": self._run.run_id})
        if data.get("phase") == "update":
            return
        if len(self._events) < self._limits.recorded_events:
            self._events.append(said)
        else:
            self._unrecorded += 1
