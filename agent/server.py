"""The server of the native dialect: every request with an id gets exactly one answer, most of them at once."""

import contextlib
from collections.abc import Callable
from typing import Any

import trio

from agent.methods import RunMethods, SessionMethods, StateMethods
from agent.output import LATER, Lane, RequestId, answer_with
from agent.processes.session import ProcessInput
from agent.requests import Incoming, Refusal, decode_params, decode_request
from agent.worker import Worker
from wire.transcript_repair import TranscriptError


class Server:
    """Takes lines, finds their methods. ``end`` is called when ``shutdown`` is through."""

    def __init__(self, worker: Worker, end: Callable[[], None]) -> None:
        self._worker = worker
        self._end = end
        self._ending = False
        self._lane = Lane(worker.output, worker.limits.queued_jobs)
        self._processes: trio.Nursery | None = None
        self._methods: dict[str, Callable[[Any, RequestId], Any]] = {
            **RunMethods(worker, self._lane).by_name,
            **SessionMethods(worker, self._lane).by_name,
            **StateMethods(worker).by_name,
            "process": self._process,
            "shutdown": self._shutdown,
        }

    def handle(self, line: bytes) -> None:
        """Take one line from stdin; never waits and never raises."""
        output = self._worker.output
        request_id: RequestId = None
        try:
            request = decode_request(line)
            request_id = request.id
            result = self._dispatch(request)
        except Refusal as exc:
            output.refuse(exc.request_id if request_id is None else request_id, exc.code, exc.message, exc.data)
        except TranscriptError as exc:
            output.refuse(request_id, exc.code, exc.message, exc.details)
        else:
            if result is not LATER:
                output.answer(request_id, result)

    def _dispatch(self, request: Incoming) -> Any:
        params = decode_params(request)
        if self._ending and request.method != "ping":
            raise Refusal("shutting_down", "the worker is shutting down")
        return self._methods[request.method](params, request.id)

    async def work(self) -> None:
        """Everything that takes time, until cancelled; then all commands are stopped."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._worker.brain.processes.run)
            self._processes = nursery
            try:
                await self._worker.begin()
                await self._lane.run()
            finally:
                self._processes = None

    def _process(self, params: ProcessInput, request_id: RequestId) -> Any:
        """It may wait for the end of a command, and holds nobody up meanwhile."""
        worker, nursery = self._worker, self._processes
        registry = worker.brain.processes
        if nursery is None:
            raise Refusal("busy", "the worker is only beginning, or ending")
        if not params.is_for_all and registry.get(params.session_id or "", worker.conversation.header.id) is None:
            raise Refusal("not_found", f"there is no background process {params.session_id!r}")
        if len(nursery.child_tasks) > worker.limits.queued_processes:
            raise Refusal("busy", f"{worker.limits.queued_processes} requests about processes wait already")

        async def work() -> Any:
            from agent.tools.process import act  # noqa: PLC0415 - first needed here, long after the start

            conversation = worker.conversation
            output = await act(params, registry, conversation.header.id, conversation.outputs, observes=True)
            return {"text": output.text, **output.details}

        nursery.start_soon(answer_with, worker.output, request_id, work)
        return LATER

    def _shutdown(self, _params: Any, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            self._end()
            return {}

        self._ending = True
        run = self._worker.runs.active
        if run is not None:
            run.abort()
        with contextlib.suppress(Refusal):
            return self._lane.put(request_id, work)
        self._end()
        return {}
