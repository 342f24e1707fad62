"""What needs the conversation to itself, one after the other, each answered when it is through."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from agent.output import Output, RequestId
from agent.requests import Refusal
from wire.transcript import TranscriptError

__all__ = ["LATER", "Lane", "answer_with"]

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
