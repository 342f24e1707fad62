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

from agent.requests import Refusal
from wire.transcript_repair import TranscriptError

RequestId = str | int | None


class OutputLost(Exception):
    """Nothing can be said any more, for the reason in ``__cause__``: the end of the process, and not of one run."""


class Output:
    """The worker's voice. All methods but ``room``, ``flush`` and ``run`` are immediate."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._blocks: list[bytes] = []
        self._pending = 0
        self._broken = False
        self._something = trio.Event()
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

    def go_on_above(self, seq: int) -> None:
        """Number everything from here on above ``seq``, as a resumed transcript demands."""
        self._seq = max(self._seq, seq)

    def event(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Say one event; returns it as it was said, with its seq."""
        said = {"event": name, "data": {**data, "seq": self.next_seq()}}
        self.raw(self._encoder.encode(said) + b"\n")
        return said

    def ready(self, data: msgspec.Struct) -> None:
        """Say the first line."""
        self.raw(self._encoder.encode({"event": "ready", "data": data}) + b"\n")

    def pieces(self, name: Literal["assistant_message", "thinking"], parts: Sequence[str], run_id: str) -> None:
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
        self.raw(f"{head}{lines}}}}}\n".encode())

    def answer(self, request_id: RequestId, result: Any) -> None:
        """Answer a request; one without an id wants no answer."""
        if request_id is not None:
            self.raw(self._encoder.encode({"id": request_id, "result": result}) + b"\n")

    def refuse(self, request_id: RequestId, code: str, message: str, data: dict[str, Any] | None = None) -> None:
        """Answer a request with an error, also when its id could not be read."""
        error = {"code": code, "message": message, "data": data or {}}
        self.raw(self._encoder.encode({"id": request_id, "error": error}) + b"\n")

    def raw(self, block: bytes) -> None:
        """Append whole lines as they are."""
        if not self._broken:
            self._blocks.append(block)
            self._pending += len(block)
            self._something.set()

    async def room(self, limit: int) -> None:
        """Wait until fewer than ``limit`` bytes wait for the reader; always a checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._pending >= limit:
            await self._progress.wait()

    async def flush(self) -> None:
        """Wait until the reader has taken everything, or is gone."""
        await self.room(1)

    async def run(self, stream: trio.abc.SendStream) -> None:
        """Write what is said, until cancelled. Raises trio.BrokenResourceError once the reader is gone."""
        try:
            while True:
                await self._something.wait()
                self._something = trio.Event()
                block = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
                self._blocks.clear()
                await stream.send_all(block)
                self._took(len(block))
        finally:
            self._broken = True
            self._blocks.clear()
            self._took(self._pending)

    def _took(self, size: int) -> None:
        self._pending -= size
        self._progress.set()
        self._progress = trio.Event()


LATER = object()
"""What a method returns whose answer comes later, and from elsewhere."""

Work = Callable[[], Awaitable[Any]]


class _Job(NamedTuple):
    request_id: RequestId
    work: Work


class Lane:
    """A bounded queue of jobs; ``run`` does them."""

    def __init__(self, output: Output, most: int) -> None:
        self._output = output
        self._most = most
        self._jobs, self._coming = trio.open_memory_channel[_Job](most)

    def put(self, request_id: RequestId, work: Work) -> object:
        """Let it be done after all that wait already; returns LATER. Raises Refusal: too many wait."""
        try:
            self._jobs.send_nowait(_Job(request_id, work))
        except trio.WouldBlock:
            raise Refusal("busy", f"{self._most} requests wait already") from None
        return LATER

    async def run(self) -> None:
        """Until cancelled."""
        async for job in self._coming:
            await answer_with(self._output, job.request_id, job.work)


async def answer_with(output: Output, request_id: RequestId, work: Work) -> None:
    """Do it and answer the request; a defect costs one request, and it is told."""
    try:
        result = await work()
    except Refusal as exc:
        output.refuse(request_id, exc.code, exc.message, exc.data)
    except TranscriptError as exc:
        output.refuse(request_id, exc.code, exc.message, exc.details)
    except Exception as exc:  # noqa: BLE001 - a bug costs one request, and it is answered and told
        sys.stderr.write(f"agent: internal error: {type(exc).__name__}: {exc}\n")
        output.refuse(request_id, "internal", f"{type(exc).__name__}: {exc}")
    else:
        output.answer(request_id, result)


class RunVoice:
    """Tells events under one run's id."""

    def __init__(self, output: Output, run_id: str, most_kept: int) -> None:
        self._output = output
        self._run_id = run_id
        self._most_kept = most_kept
        self._kept: list[dict[str, Any]] = []
        self._left_out = 0
        self._silent = False

    def say(self, name: str, data: dict[str, Any]) -> None:
        """Tell one event; updates of tools are not kept."""
        if self._silent:
            return
        said = self._output.event(name, {**data, "run_id": self._run_id})
        if data.get("phase") == "update":
            return
        if len(self._kept) < self._most_kept:
            self._kept.append(said)
        else:
            self._left_out += 1

    def fall_silent(self) -> None:
        """The run is over: what still comes of it is not told."""
        self._silent = True

    def events(self) -> list[dict[str, Any]]:
        """Those that were kept, and how many were not."""
        if not self._left_out:
            return self._kept
        return [*self._kept, {"event": "left_out", "data": {"events": self._left_out}}]
