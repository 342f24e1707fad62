"""The steps of a run: take queued input, call the model, run its tools, until nothing is left to do."""

import time

import msgspec
import trio

from agent.call_runner import CallRunner
from agent.images import load_images, may_name_images
from agent.model_call import ModelCaller
from agent.runs import AgentRun
from agent.tool_call import Emit, new_record
from agent.worker import AgentWorker
from wire.entries import (
    STEER_PREFIX,
    ContentBlock,
    ImageBlock,
    MessageOrigin,
    TextBlock,
    ToolUseBlock,
    TranscriptMessage,
)
from wire.messages import ImageContent, StopReason


class StepLoop:
    """Used once. ``text``: the model's last; ``client_calls``: calls for the client."""

    def __init__(self, run: AgentRun, worker: AgentWorker, caller: ModelCaller, emit: Emit) -> None:
        self._run = run
        self._conversation = worker.conversation
        self._toolbox = worker.toolbox
        self._input_queue = worker.input_queue
        self._limits = worker.limits
        self._caller = caller
        self._emit = emit
        self._calls: CallRunner | None = None
        self.text = ""
        self.client_calls: list[ToolUseBlock] = []

    async def run(self, prompt: str) -> StopReason:
        """To the end. Raises ModelError or TranscriptError; after that, and after a cancellation, call ``settle``."""
        if prompt or self._run.images or not self._run.results:
            await self._add_input("prompt", prompt, self._run.images)
        for _ in range(self._limits.max_steps):
            for steer in self._input_queue.pop_steers():
                await self._add_input("steer", STEER_PREFIX + steer.text, steer.images)
            for path in await self._toolbox.sandbox.files.find_changed():
                self._emit("file_changed", {"path": path})
            message = await self._caller.call()
            self.text = message.text
            if message.calls:
                await self._run_calls(message.calls)
                if self.client_calls:
                    return "tool_calls"
                continue
            if not self._input_queue.has_steers():
                if message.stop_reason == "length":
                    return "length"
                follow_up = self._input_queue.pop_follow_up()
                if follow_up is None:
                    return "stop"
                await self._add_input("follow_up", follow_up.text, follow_up.images)
        return "max_steps"

    async def settle(self, stop: StopReason) -> None:
        """After the end: keep the partial answer, give open calls their results. Raises TranscriptError."""
        try:
            partial = self._caller.save_partial(stop)
            if partial is not None:
                self.text = partial.text
            if self._calls is not None:
                self._calls.close("timeout" if stop == "timeout" else "aborted")
                self._add_results()
        finally:  # also what was written before one entry that could not be
            await self._conversation.settle()

    async def _add_input(self, origin: MessageOrigin, text: str, images: list[ImageContent]) -> None:
        blocks: list[ContentBlock] = [TextBlock(text)]
        if may_name_images(text):
            loaded = await trio.to_thread.run_sync(load_images, text, self._toolbox.sandbox.cwd)
            text = "\n".join([loaded.text, *(f"[{note}]" for note in loaded.notes)])
            blocks = [TextBlock(text), *loaded.images]
        blocks += [ImageBlock(image.data, image.mime_type) for image in images]
        sender = self._run.from_session if origin == "prompt" else None
        self._conversation.add(TranscriptMessage("user", blocks, origin=origin, from_session=sender))
        self._conversation.begin_sync()

    async def _run_calls(self, calls: list[ToolUseBlock]) -> None:
        """Run the agent's own calls; the client's are recorded before, for a resumed conversation."""
        clients = [call for call in calls if call.name in self._run.client_tools]
        toolbox = self._toolbox
        # From here on an abort must answer the calls.
        self._calls = CallRunner(
            [call for call in calls if call not in clients],
            tools=toolbox.tools,
            policy=toolbox.policy,
            approvals=toolbox.approvals,
            hooks=toolbox.hooks,
            log=self._conversation,
            context_for=lambda call, report: toolbox.context_for(
                self._conversation, call, report, self._run.environment
            ),
            emit=self._emit,
        )
        for call in clients:
            self._conversation.record_call(msgspec.structs.replace(new_record(call, time.time()), client=True))
        self._run.breakpoint = self._calls.breakpoint
        await self._calls.run(self._limits.parallel_tools)
        self._add_results()
        self._conversation.begin_sync()
        self.client_calls = clients

    def _add_results(self) -> None:
        calls, self._calls = self._calls, None
        results = calls.results() if calls is not None else []
        if results:
            self._conversation.add(TranscriptMessage("user", [*results], origin="tool"))
