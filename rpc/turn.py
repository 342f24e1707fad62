"""One turn: a prompt, its events while it runs, and its end, which comes exactly once."""

import math
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import msgspec
import trio

from errors import PoolError, RequestTimeout, UsageError
from rpc.client import RpcClient
from rpc.passthrough import RawRequest
from rpc.requests import RpcRequest
from rpc.subscription import EventBatches, WorkerSubscription
from rpc.transport import MAX_REASON_CHARS
from wire.messages import Message, PromptParams, PromptResult


class RpcTurn:
    """One prompt of a worker that is ready; an async context manager, used once.

    Iterating it (or ``batches()``) gives the events between the prompt and its answer. The end of the events is the
    turn's end: ``result`` is there, or the iteration raises what went wrong (WorkerRefused, WorkerExited,
    RequestTimeout, ProtocolViolation). Leaving the block earlier aborts the run and waits for its end, at most
    ``abort_grace``, so that the worker is not left busy; ``is_unanswered`` says whether that was enough. An error
    of the turn that the block did not see is raised on leaving it.

    The block's own task reads the events: while it does not, and the buffer is full, no answer can arrive. A request
    from inside the block therefore belongs between two reads or into another task.

    ``timeout``: seconds for the whole turn, None for no limit; then it is aborted and fails with RequestTimeout.
    ``raw``: the prompt as a front end has written it, sent in place of ``params``.
    """

    def __init__(
        self,
        client: RpcClient,
        params: PromptParams | dict[str, Any],
        *,
        timeout: float | None = None,
        raw: RawRequest | None = None,
    ) -> None:
        self._raw = raw
        self._client = client
        self._params = params
        self._timeout = timeout
        self._events: WorkerSubscription | None = None
        self._request: RpcRequest | None = None
        self._result: PromptResult | None = None
        self._failure: PoolError | None = None
        self._failure_raised = False
        self._abort_sent = False

    async def __aenter__(self) -> Self:
        if self._request is not None:
            raise UsageError("a turn can be entered only once")
        deadline = math.inf if self._timeout is None else trio.current_time() + self._timeout
        await self._client.wait_room("prompt", deadline)
        events = self._client.subscribe()
        try:
            self._request = self._client.submit(
                "prompt",
                self._params,
                deadline=deadline,
                on_settled=events.finish,
                on_deadline=self._on_deadline,
                raw=self._raw,
            )
        except BaseException:
            events.close()
            raise
        self._events = events
        if self._request.is_settled:
            events.finish()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._require_subscription().close()
        if self._result is None:  # else the turn has come to its good end, and that was seen
            await self._abort_and_wait()
            if error is None and not self._failure_raised:
                self._raise_failure()

    async def receive(self) -> list[Message] | None:
        """The next batch of events; None at the turn's good end. Raises what the turn failed with."""
        events = self._events or self._require_subscription()
        batch = await events.receive()
        if batch is None:
            self._raise_failure()
        return batch

    def batches(self) -> EventBatches:
        """Iterate over lists of events, as they arrived together."""
        return EventBatches(self.receive)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._require_subscription().__anext__()
        except StopAsyncIteration:
            self._raise_failure()
            raise

    async def wait(self) -> PromptResult:
        """Run to the end without looking at the events."""
        while await self.receive() is not None:
            pass
        return self.result

    @property
    def has_ended(self) -> bool:
        """Whether the worker has answered, or never will."""
        return self._request is not None and (self._request.is_settled or self._failure is not None)

    @property
    def is_unanswered(self) -> bool:
        """Whether the prompt was given to the client and got no answer, not even an error: the run may go on."""
        return self._request is not None and not self._request.is_answered

    @property
    def result(self) -> PromptResult:
        """How the turn ended. Raises what it failed with, UsageError while it runs."""
        if self._result is None:
            self._raise_failure()
        if self._result is None:
            raise UsageError("the turn has not ended; read its events to their end, or use wait()")
        return self._result

    def _require_subscription(self) -> WorkerSubscription:
        if self._events is None:
            raise UsageError("use a turn as `async with RpcTurn(...) as turn`")
        return self._events

    def _raise_failure(self) -> None:
        if not (self._result or self._failure) and self._request is not None and self._request.is_answered:
            try:
                self._result = self._read_result(self._request)
            except PoolError as exc:
                self._failure = exc
        if self._failure is not None:
            self._failure_raised = True
            raise self._failure

    def _read_result(self, request: RpcRequest) -> PromptResult:
        """The result; people read its error, and it is kept: it is bounded, and shows no secret."""
        result = self._client.decode_as(PromptResult, "prompt", request.result())
        if result.error is None:
            return result
        return msgspec.structs.replace(result, error=self._client.mask.prefix(result.error, MAX_REASON_CHARS))

    def _on_deadline(self) -> None:
        """At the deadline, wherever the block is: stop the run, and let the events come to their end."""
        self._failure = RequestTimeout(
            f"worker {self._client.name} did not end the turn within {round(self._timeout or 0, 3):g} s",
            worker=self._client.name,
            method="prompt",
            sent=self._request is None or self._request.sent,
        )
        self._require_subscription().finish()
        self._abort()

    async def _abort_and_wait(self) -> None:
        request = self._request
        if request is None or request.is_settled:
            return
        with trio.move_on_after(self._client.settings.abort_grace, shield=True):
            self._abort()
            with suppress(PoolError):  # how an abandoned run ends is of no concern any more
                await request.wait()
        self._client.abandon(request)

    def _abort(self) -> None:
        if not self._abort_sent:
            self._abort_sent = True
            deadline = trio.current_time() + self._client.settings.abort_grace
            with suppress(PoolError):  # the worker is gone: the request says so
                self._client.submit("abort", deadline=deadline)
