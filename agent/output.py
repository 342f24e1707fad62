"""Everything that goes to stdout: one buffer, events numbered in the order they are emitted.

What is emitted goes out in one write, before the event loop waits. Emitting never waits. Producers of much output call
``wait_below`` now and then, so that a client that stops reading stalls the run and not the process.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec
import trio

from agent.idle import BeforeWaiting
from agent.pipes import PipeWriter
from agent.requests import RequestRejected
from wire.transcript_repair import TranscriptError

RequestId = str | int | None


class OutputLost(Exception):
    """Output is no longer possible (``__cause__`` says why): ends the process, not only a run."""


class WorkerOutput:
    """The output of a worker. Only ``wait_below``, ``flush`` and ``run`` wait."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._blocks: list[bytes] = []
        self.pending_bytes = 0
        """Bytes that the reader has not taken."""
        self._broken = False
        self._wakes_writer = True
        self._writer = trio.lowlevel.ParkingLot()
        """Where the writer waits for something to write."""
        self._progress = trio.lowlevel.ParkingLot()
        self.last_seq = 0

    def next_seq(self) -> int:
        """Take the next number; events and transcript entries share one order."""
        self.last_seq += 1
        return self.last_seq

    def continue_above(self, seq: int) -> None:
        """Number everything from here on above ``seq``, as a resumed transcript demands."""
        self.last_seq = max(self.last_seq, seq)

    def emit(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Emit one event; returns it with its seq."""
        said = {"event": name, "data": {**data, "seq": self.next_seq()}}
        self.write_raw(self._encoder.encode(said) + b"\n")
        return said

    def emit_ready(self, data: msgspec.Struct) -> None:
        """Emit the first line."""
        self.write_raw(self._encoder.encode({"event": "ready", "data": data}) + b"\n")

    def emit_pieces(self, name: Literal["assistant_message", "thinking"], parts: Sequence[str], run_id: str) -> None:
        """Emit one event for each piece of text.

        The same bytes as encoding ``wire.messages.AssistantMessage`` one by one, in a third of the time.
        """
        if not parts:
            return
        texts = self._encoder.encode_lines(parts).decode().split("\n")  # JSON strings hold no LF of their own
        texts.pop()
        head = f'{{"event":"{name}","data":{{"partial":'
        run = f',"run_id":{self._encoder.encode(run_id).decode()},"seq":'
        first = self.last_seq + 1
        self.last_seq += len(texts)
        lines = f"}}}}\n{head}".join([f"{text}{run}{seq}" for seq, text in enumerate(texts, first)])
        self.write_raw(f"{head}{lines}}}}}\n".encode())

    def respond(self, request_id: RequestId, result: Any) -> None:
        """Answer a request, unless it has no id."""
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
            self.pending_bytes += len(block)
            if self._wakes_writer:
                self._writer.unpark()

    async def wait_below(self, limit: int) -> None:
        """Wait until fewer than ``limit`` bytes are pending; a checkpoint only where it has to wait."""
        while self.pending_bytes >= limit:
            await self._progress.park()

    async def flush(self) -> None:
        """Wait until the reader has taken everything, or is gone."""
        await self.wait_below(1)

    async def run(self, stream: trio.abc.SendStream) -> None:
        """Write the output, until cancelled. Raises trio.BrokenResourceError once the reader is gone."""
        hook: BeforeWaiting | None = None
        if isinstance(stream, PipeWriter):
            self._wakes_writer = False
            token = trio.lowlevel.current_trio_token()
            hook = BeforeWaiting(lambda: self._write_now(stream, token))
            trio.lowlevel.add_instrument(hook)
        try:
            while True:
                while not self._blocks:
                    await self._writer.park()
                block = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
                self._blocks.clear()
                await stream.send_all(block)
                self.pending_bytes -= len(block)
                self._progress.unpark_all()
        finally:
            if hook is not None:
                trio.lowlevel.remove_instrument(hook)
            self._broken = True
            self._blocks.clear()
            self.pending_bytes = 0
            self._progress.unpark_all()

    def _write_now(self, pipe: PipeWriter, token: trio.lowlevel.TrioToken) -> None:
        """Write what the pipe takes at once; the writer goes on with the rest."""
        if not self._blocks or not self._writer:  # it is about to write, or waits for room
            return
        block = b"".join(self._blocks)
        sent = pipe.send_nowait(block)
        self._blocks = [block[sent:]] if sent < len(block) else []
        self.pending_bytes -= sent
        if self._blocks or self._progress:
            token.run_sync_soon(self._go_on)

    def _go_on(self) -> None:
        self._progress.unpark_all()
        if self._blocks:
            self._writer.unpark()


DEFERRED = object()
"""Returned by a method that answers its request later."""

Work = Callable[[], Awaitable[Any]]


class ConversationQueue:
    """A bounded queue of jobs that need the conversation to themselves, each answered when it is done."""

    def __init__(self, output: WorkerOutput, most: int) -> None:
        self._output = output
        self._max_jobs = most
        self._jobs, self._receiver = trio.open_memory_channel[tuple[RequestId, Work]](most)

    def put(self, request_id: RequestId, work: Work) -> object:
        """Queue a job; returns DEFERRED. Raises RequestRejected when the queue is full."""
        try:
            self._jobs.send_nowait((request_id, work))
        except trio.WouldBlock:
            raise RequestRejected("busy", f"{self._max_jobs} requests wait already") from None
        return DEFERRED

    async def run(self) -> None:
        """Until cancelled."""
        async for request_id, work in self._receiver:
            await run_and_respond(self._output, request_id, work)


async def run_and_respond(output: WorkerOutput, request_id: RequestId, work: Work) -> None:
    """Do the work and answer the request; a defect fails only this request."""
    try:
        result = await work()
    except (RequestRejected, TranscriptError) as exc:
        output.reject(request_id, exc.code, exc.message, exc.details)
    except Exception as exc:  # noqa: BLE001 - a defect fails one request
        sys.stderr.write(f"agent: internal error: {type(exc).__name__}: {exc}\n")
        output.reject(request_id, "internal", f"{type(exc).__name__}: {exc}")
    else:
        output.respond(request_id, result)


class RunEvents:
    """The events of one run: emitted at once, a bounded number kept for its result."""

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
        """The run is over: drop later events."""
        self._closed = True

    def recorded(self) -> list[dict[str, Any]]:
        """The events that were kept, and how many were not."""
        if not self._dropped:
            return self._recorded
        return [*self._recorded, {"event": "left_out", "data": {"events": self._dropped}}]
