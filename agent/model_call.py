"""One model call of a run: the sanitized conversation out, the answer streamed in and added to the conversation."""

import uuid
from collections.abc import Callable, Sequence

import msgspec

from agent.compactor import CompactionFailed, CompactionReason
from agent.models.base import (
    CallPiece,
    ModelError,
    ModelRequest,
    Piece,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from agent.models.retry import ask_with_retries
from agent.output import RunEvents, WorkerOutput
from agent.runs import AgentRun
from agent.sanitize import estimate_overhead, estimate_tokens
from agent.worker import AgentWorker
from wire.entries import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock, TranscriptMessage
from wire.messages import TokenUsage
from wire.run_text import answer_instructions


class PartialReply:
    """Collects the pieces of an answer and emits them; ``count`` gets the tokens."""

    def __init__(self, output: WorkerOutput, run_id: str, count: Callable[[TokenUsage], None]) -> None:
        self._output = output
        self._run_id = run_id
        self._count = count
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolUseBlock] = []
        self._stop_reason = "stop"

    @property
    def has_output(self) -> bool:
        """Whether a reader has seen something of it."""
        return bool(self._text or self._thinking)

    def feed(self, piece: Piece) -> None:
        """Take the next piece."""
        match piece:
            case TextPiece(parts):
                self._text.append("".join(parts))  # one string a batch: a long answer is not a million objects
                self._output.emit_pieces("assistant_message", parts, self._run_id)
            case ThinkingPiece(parts):
                self._thinking.append("".join(parts))
                self._output.emit_pieces("thinking", parts, self._run_id)
            case CallPiece(name, given):
                # People approve a call by its id: no other call has it, in any conversation.
                self._calls.append(ToolUseBlock(f"c{uuid.uuid4().hex[:12]}", name, given))
            case UsagePiece(tokens_in, tokens_out):
                self._count(TokenUsage(tokens_in, tokens_out))
            case StopPiece(reason):
                self._stop_reason = reason

    def message(self) -> TranscriptMessage:
        """The complete answer."""
        return TranscriptMessage("assistant", [*self._text_blocks(), *self._calls], stop_reason=self._stop_reason)

    def partial_message(self, stop_reason: str) -> TranscriptMessage:
        """The shown part of a cut-off answer, without its calls."""
        return TranscriptMessage("assistant", self._text_blocks(), stop_reason=stop_reason)

    def _text_blocks(self) -> list[ContentBlock]:
        blocks: list[ContentBlock] = []
        if self._thinking:
            blocks.append(ThinkingBlock("".join(self._thinking)))
        if self._text:
            blocks.append(TextBlock("".join(self._text)))
        return blocks


_MAX_COMPACTIONS = 8
"""Before one model call, each leaving half: a conversation for the largest window then fits the smallest."""


class ModelCaller:
    """The model calls of one run, one at a time. ``reply``: the answer that is coming in."""

    def __init__(self, run: AgentRun, worker: AgentWorker, events: RunEvents) -> None:
        self._run = run
        self._conversation = worker.conversation
        self._toolbox = worker.toolbox
        self._compactor = worker.compactor
        self._output = worker.output
        self._limits = worker.limits
        self._events = events
        self.system_prompt = worker.toolbox.system_prompt
        self.usage = TokenUsage()
        self.reply: PartialReply | None = None

    async def call(self) -> TranscriptMessage:
        """The model's next message, added to the conversation. Raises ModelError or TranscriptError.

        A conversation that is too long is compacted: once before it is sent, and as often as the model says so, as long
        as that makes it shorter.
        """
        self._run.step_count += 1
        self._run.breakpoint = lambda: "STREAMING_MODEL" if self.reply and self.reply.has_output else "PRE_MODEL"
        tools, clients = self._toolbox.definitions, self._run.client_tools
        if clients:
            tools = [*(own for own in tools if own.name not in clients), *clients.values()]
        system_prompt = self._whole_system_prompt()
        request = ModelRequest(
            f"{self._run.run_id}.{self._run.step_count - 1}",
            await self._compact_to_fit(estimate_overhead(system_prompt, tools)),
            system_prompt=system_prompt,
            thinking=self._toolbox.thinking,
            tools=tools,
            answer=self._run.answer,
        )
        return await self._ask_with_compaction(request, _MAX_COMPACTIONS)

    def save_partial(self, stop_reason: str) -> TranscriptMessage | None:
        """Add the part of the answer that was shown, if any. Raises TranscriptError."""
        reply, self.reply = self.reply, None
        if reply is None or not reply.has_output:
            return None
        message = reply.partial_message(stop_reason)
        self._conversation.add(message)
        return message

    async def _ask_with_compaction(self, request: ModelRequest, compactions: int) -> TranscriptMessage:
        try:
            return await self._ask(request)
        except ModelError as exc:
            if not exc.overflow or not compactions or (self.reply is not None and self.reply.has_output):
                raise
            keep = min(self._toolbox.context_tokens // 4, estimate_tokens(request.messages) // 2)
            if not await self._compact("overflow", keep):
                raise
        messages, _ = self._sanitized()
        request = msgspec.structs.replace(request, step_id=f"{request.step_id}.compacted", messages=messages)
        return await self._ask_with_compaction(request, compactions - 1)

    async def _ask(self, request: ModelRequest) -> TranscriptMessage:
        reply = self.reply = PartialReply(self._output, self._run.run_id, self._add_usage)

        async def take(piece: Piece) -> None:
            reply.feed(piece)
            await self._output.wait_below(self._limits.output_soft)

        await ask_with_retries(self._toolbox.model, request, take, self._events.emit)
        message = reply.message()
        self._conversation.add(message)
        self.reply = None
        return message

    def _whole_system_prompt(self) -> str:
        """The system prompt, with the answer options that the model does not take as parameters."""
        options = self._run.answer
        if options is None:
            return self.system_prompt
        instructions = answer_instructions(options, passed_on=self._toolbox.model.takes_answer_options)
        return "\n\n".join(filter(None, (self.system_prompt, instructions)))

    def _add_usage(self, more: TokenUsage) -> None:
        self.usage = self.usage.plus(more)

    def _sanitized(self) -> tuple[Sequence[TranscriptMessage], int]:
        """The conversation as it is sent, and its tokens."""
        toolbox, turns = self._toolbox, self._run.history_turns
        rules = (
            toolbox.sanitize_rules if turns is None else msgspec.structs.replace(toolbox.sanitize_rules, turns=turns)
        )
        if toolbox.model.needs_alternation:
            rules = msgspec.structs.replace(rules, alternate=True)
        return toolbox.sanitizer.sanitize(self._conversation.messages, rules)

    async def _compact_to_fit(self, overhead: int) -> Sequence[TranscriptMessage]:
        """The conversation as it is sent, made shorter where the ``overhead`` in tokens leaves too little room."""
        messages, tokens = self._sanitized()
        room = self._toolbox.context_tokens - self._limits.context_reserve - overhead
        if tokens <= room:
            return messages
        try:
            await self._compact("threshold", max(0, room) // 4)
        except ModelError as exc:  # the estimate may be wrong: the model shall say whether it is too long
            self._events.emit("error", {"severity": "warn", "phase": "model", "message": str(exc)})
        messages, _ = self._sanitized()
        return messages

    async def _compact(self, reason: CompactionReason, keep_tokens: int) -> bool:
        """Whether it is shorter now. Raises ModelError."""
        try:
            summary = await self._compactor.compact(
                self._conversation, self._events.emit, reason, keep_tokens=keep_tokens
            )
        except CompactionFailed as exc:
            raise ModelError(str(exc)) from exc
        return summary is not None
