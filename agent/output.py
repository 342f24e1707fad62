"""Stdout writer, conversation queue, run events.

Everything that goes to stdout: one buffer, one writer task, events numbered in the order they are said.

Saying something never waits; whoever produces much asks for ``room`` now and then, so that a reader who stops reading
stalls the run and not the process.

What needs the conversation to itself, one after the other, each answered when it is through.

What one run tells: every event goes out at once, and a bounded number is kept for the prompt's result.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import trio

from agent.requests import RequestRejected
from wire.transcript_repair import TranscriptError

RequestId = str | int | None


class OutputLost(Exception):
    """Nothing can be said any more, for the reason in ``__cause__``: the end of the process, and not of one run."""


class WorkerOutput:
    """The worker's voice. All methods but ``room``, ``flush`` and ``run`` are immediate."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._blocks: list[bytes] = []
        self._pending = 0
        self._broken = False
        self._has_blocks = trio.Event()
        self._progress = trio.Event()
        self._seq = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that the reader has not taken."""
        return self._pending

    @property
    def last_seq(self) -> int:
        """The number that was taken last."""
        return self._seq

    def next_seq(self) -> int:
        """Take the next number of the one order that events and transcript entries share."""
        self._seq += 1
        return self._seq

    def continue_above(self, seq: int) -> None:
        """Number everything from here on above ``seq``, as a resumed transcript demands."""
        self._seq = max(self._seq, seq)

    def emit(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Say one event; returns it as it was said, with its seq."""
        said = {"event": name, "data": {**data, "seq": self.next_seq()}}
        self.write_raw(self._encoder.encode(said) + b"\n")
        return said

    def emit_ready(self, data: msgspec.Struct) -> None:
        """Say the first line."""
        self.write_raw(self._encoder.encode({"event": "ready", "data": data}) + b"\n")

    def emit_pieces(self, name: Literal["assistant_message", "thinking"], parts: Sequence[str], run_id: str) -> None:
        """Say one event for each piece of text.

        The same bytes as encoding ``wire.messages.AssistantMessage`` one by one, in a third of the time: a model that
        needs no time must not be slower than the fastest reader.
        """
        if not parts:
            return
        texts = self._encoder.encode_lines(parts).decode().split("\n")  # JSON strings hold no LF of their own
        texts.pop()
        head = f'{{"event":"{name}","data":{{"partial":'
        run = f',"run_id":{self._encoder.encode(run_id).decode()},"seq":'
        first = self._seq + 1
        self._seq += len(texts)
        lines = f"}}}}\n{head}".join([f"{text}{run}{seq}" for seq, text in enumerate(texts, first)])
        self.write_raw(f"{head}{lines}}}}}\n".encode())

    def respond(self, request_id: RequestId, result: Any) -> None:
        """Answer a request; one without an id wants no answer."""
        if request_id is not None:
            self.write_raw(self._encoder.encode({"id": request_id, "result": result}) + b"\n")

    def reject(self, request_id: RequestId, code: str, message: str, data: dict[str, Any] | None = None) -> None:
        """Answer a request with an error, also when its id could not be read."""
        error = {"code": code, "message": message, "data": data or {}}
        self.write_raw(self._encoder.encode({"id": request_id, "error": error}) + b"\n")

    def write_raw(self, block: bytes) -> None:
        """Append whole lines as they are."""
        if not self._broken:
            self._blocks.append(block)
            self._pending += len(block)
            self._has_blocks.set()

    async def wait_below(self, limit: int) -> None:
        """Wait until fewer than ``limit`` bytes wait for the reader; always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._pending >= limit:
            await self._progress.wait()

    async def flush(self) -> None:
        """Wait until the reader has taken everything, or is gone."""
        await self.wait_below(1)

    async def run(self, stream: trio.abc.SendStream) -> None:
        """Write what is said, until cancelled. Raises trio.BrokenResourceError once the reader is gone."""
        try:
            while True:
                await self._has_blocks.wait()
                self._has_blocks = trio.Event()
                block = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
                self._blocks.clear()
                await stream.send_all(block)
                self._mark_written(len(block))
        finally:
            self._broken = True
            self._blocks.clear()
            self._mark_written(self._pending)

    def _mark_written(self, size: int) -> None:
        self._pending -= size
        self._progress.set()
        self._progress = trio.Event()


DEFERRED = object()
"""What a method returns whose answer comes later, and from elsewhere."""

Work = Callable[[], Awaitable[Any]]


class _QueuedJob(NamedTuple):
    request_id: RequestId
    work: Work


class ConversationQueue:
    """A bounded queue of jobs; ``run`` does them."""

    def __init__(self, output: WorkerOutput, most: int) -> None:
        self._output = output
        self._max_jobs = most
        self._jobs, self._receiver = trio.open_memory_channel[_QueuedJob](most)

    def put(self, request_id: RequestId, work: Work) -> object:
        """Let it be done after all that wait already; returns LATER. Raises Refusal: too many wait."""
        try:
            self._jobs.send_nowait(_QueuedJob(request_id, work))
        except trio.WouldBlock:
            raise RequestRejected("busy", f"{self._max_jobs} requests wait already") from None
        return DEFERRED

    async def run(self) -> None:
        """Until cancelled."""
        async for job in self._receiver:
            await run_and_respond(self._output, job.request_id, job.work)


async def run_and_respond(output: WorkerOutput, request_id: RequestId, work: Work) -> None:
    """Do it and answer the request; a defect costs one request, and it is told."""
    try:
        result = await work()
    except RequestRejected as exc:
        output.reject(request_id, exc.code, exc.message, exc.data)
    except TranscriptError as exc:
        output.reject(request_id, exc.code, exc.message, exc.details)
    except Exception as exc:  # noqa: BLE001 - a bug costs one request, and it is answered and told
        sys.stderr.write(f"agent: internal error: {type(exc).__name__}: {exc}\n")
        output.reject(request_id, "internal", f"{type(exc).__name__}: {exc}")
    else:
        output.respond(request_id, result)


class RunEvents:
    """Tells events under one run's id."""

    def __init__(self, output: WorkerOutput, run_id: str, most_kept: int) -> None:
        self._output = output
        self._run_id = run_id
        self._max_recorded = most_kept
        self._recorded: list[dict[str, Any]] = []
        self._dropped = 0
        self._closed = False

    def emit(self, name: str, data: dict[str, Any]) -> None:
        """Tell one event; updates of tools are not kept."""
        if self._closed:
            return
        said = self._output.emit(name, {**data, "run_id": self._run_id})
        if data.get("phase") == "update":
            return
        if len(self._recorded) < self._max_recorded:
            self._recorded.append(said)
        else:
            self._dropped += 1

    def close(self) -> None:
        """The run is over: what still comes of it is not told."""
        self._closed = True

    def recorded(self) -> list[dict[str, Any]]:
        """Those that were kept, and how many were not."""
        if not self._dropped:
            return self._recorded
        return [*self._recorded, {"event": "left_out", "data": {"events": self._dropped}}]
