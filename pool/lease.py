"""A lease: one caller's right to one worker, and the turns it runs there."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import trio

from errors import PoolError
from pool.actions import Grant
from pool.stimuli import Hold
from pool.worker import PoolWorker
from profiles import MatchLevel
from rpc.turn import open_turn
from wire.messages import Message, PromptParams, PromptResult

__all__ = ["Lease", "PromptStream"]


class PromptStream:
    """One turn, as it runs. Iterate it for its events; afterwards ``result`` holds its outcome.

    ``async for event in stream`` gives one ``Message`` at a time, ``async for batch in stream.batches()`` lists of
    them, which is much faster. Leaving the loop early aborts the turn when the lease ends.
    """

    def __init__(self, worker: PoolWorker, params: PromptParams, limit: float | None) -> None:
        self._worker = worker
        self._params = params
        self._limit = limit
        self._source: AsyncGenerator[list[Message], None] | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.result: PromptResult | None = None
        """The outcome, once the events have come to their end."""

    async def batches(self) -> AsyncIterator[list[Message]]:
        """The turn's events in the batches they came in. Starts the turn; can be done once."""
        if self._source is not None:
            msg = "a prompt's events can be read only once"
            raise RuntimeError(msg)
        self._source = self._run()
        async with aclosing(self._source) as source:
            async for batch in source:
                yield batch

    async def __aiter__(self) -> AsyncIterator[Message]:
        async with aclosing(self.batches()) as batches:  # type: ignore[type-var]  # an async generator has aclose
            async for batch in batches:
                for event in batch:
                    yield event

    async def wait(self) -> PromptResult:
        """Run the turn to its end without looking at its events."""
        async with aclosing(self.batches()) as batches:  # type: ignore[type-var]  # an async generator has aclose
            async for _ in batches:
                pass
        if self.result is None:
            msg = "the turn ended without a result"
            raise RuntimeError(msg)
        return self.result

    async def aclose(self) -> None:
        """End the turn if it still runs (it is aborted), whatever became of whoever read it."""
        if self._source is not None:
            await self._source.aclose()

    async def _run(self) -> AsyncGenerator[list[Message], None]:
        self.started_at = trio.current_time()
        try:
            async with open_turn(self._worker.client, self._params, timeout=self._limit) as turn:
                async for batch in turn.batches():
                    yield batch
                self.result = turn.result
        finally:
            self.ended_at = trio.current_time()


class Lease:
    """What ``Pool.lease`` gives. All of it belongs to the worker that was granted; it ends with the block.

    Attributes:
        hold: request, session, worker id and generation.
        level: how well the worker's profile matched.
        waited: seconds between the request and the grant.
    """

    def __init__(self, grant: Grant, worker: PoolWorker, *, waited: float) -> None:
        self.hold: Hold = grant.hold
        self.level: MatchLevel = grant.level
        self.waited = waited
        self._worker = worker
        self._streams: list[PromptStream] = []
        self._released = False

    @property
    def worker_id(self) -> str:
        """The worker's name in status and explanations."""
        return self.hold.worker

    @property
    def pid(self) -> int | None:
        """The worker's process id, where it has one on this machine."""
        return self._worker.pid

    def prompt(self, text: str | PromptParams, *, timeout: float | None = None) -> PromptStream:
        """Run one turn: iterate the stream for its events. ``timeout`` in seconds ends it by an abort.

        Raises, from the iteration: WorkerRefused (``busy``: a turn of this session is running), WorkerExited,
        RequestTimeout, ProtocolViolation.
        """
        params = PromptParams(text) if isinstance(text, str) else text
        stream = PromptStream(self._worker, params, timeout)
        self._streams.append(stream)
        return stream

    async def steer(self, text: str) -> None:
        """Put a message into the running turn. Raises WorkerError."""
        await self._worker.client.request("steer", {"text": text})

    async def follow_up(self, text: str) -> None:
        """Queue a message behind the running turn. Raises WorkerError."""
        await self._worker.client.request("follow_up", {"text": text})

    async def abort(self) -> None:
        """End the running turn; harmless when there is none. Raises WorkerError."""
        await self._worker.client.request("abort", {})

    async def request(self, method: str, params: Any = None) -> Any:
        """Any other request of the native vocabulary, undecoded. Raises WorkerError, UsageError."""
        return await self._worker.client.request(method, params)

    @property
    def turn_seconds(self) -> list[float]:
        """How long each turn of this lease took."""
        return [
            stream.ended_at - stream.started_at
            for stream in self._streams
            if stream.started_at is not None and stream.ended_at is not None
        ]

    @property
    def must_not_be_reused(self) -> bool:
        """Whether a turn of this lease may still be running although it was ended."""
        return any(stream.result is None for stream in self._streams) and self._worker.client.is_running

    async def aclose(self) -> None:
        """End what still runs. Called by ``Pool.release``."""
        for stream in self._streams:
            try:
                await stream.aclose()
            except PoolError:
                continue  # the turn's own reader has been told, or had left before it could be

    def mark_released(self) -> bool:
        """True the first time."""
        first, self._released = not self._released, True
        return first
