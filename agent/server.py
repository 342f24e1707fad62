"""The server of the native dialect: every request with an id gets exactly one answer, most of them at once."""

import contextlib
from collections.abc import Callable
from typing import Any

import trio

from agent.methods import WorkerRunMethods, WorkerSessionMethods, WorkerStateMethods
from agent.output import DEFERRED, ConversationQueue, RequestId, run_and_respond
from agent.processes.exec_session import ProcessInput
from agent.requests import RequestRejected, WorkerRequestLine, decode_params, decode_request
from agent.worker import AgentWorker
from wire.transcript_repair import TranscriptError


class WorkerServer:
    """Dispatches request lines to methods; ``end`` is called when ``shutdown`` is done."""

    def __init__(self, worker: AgentWorker, end: Callable[[], None]) -> None:
        self._worker = worker
        self._on_shutdown = end
        self._ending = False
        self._conversation_queue = ConversationQueue(worker.output, worker.limits.queued_jobs)
        self._process_nursery: trio.Nursery | None = None
        self._methods: dict[str, Callable[[Any, RequestId], Any]] = {
            **WorkerRunMethods(worker, self._conversation_queue).by_name,
            **WorkerSessionMethods(worker, self._conversation_queue).by_name,
            **WorkerStateMethods(worker).by_name,
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
        except RequestRejected as exc:
            output.reject(exc.request_id if request_id is None else request_id, exc.code, exc.message, exc.details)
        except TranscriptError as exc:
            output.reject(request_id, exc.code, exc.message, exc.details)
        else:
            if result is not DEFERRED:
                output.respond(request_id, result)

    def _dispatch(self, request: WorkerRequestLine) -> Any:
        params = decode_params(request)
        if self._ending and request.method != "ping":
            raise RequestRejected("shutting_down", "the worker is shutting down")
        return self._methods[request.method](params, request.id)

    async def run(self) -> None:
        """Run queued work and commands until cancelled; then all commands are stopped."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._worker.toolbox.sandbox.processes.run)
            self._process_nursery = nursery
            try:
                await self._worker.start()
                await self._conversation_queue.run()
            finally:
                self._process_nursery = None

    def _process(self, params: ProcessInput, request_id: RequestId) -> Any:
        """May wait for the end of a command, without blocking other requests."""
        worker, nursery = self._worker, self._process_nursery
        registry = worker.toolbox.sandbox.processes
        if nursery is None:
            raise RequestRejected("busy", "the worker is starting or ending")
        if not params.is_for_all and registry.get(params.session_id or "", worker.conversation.header.id) is None:
            raise RequestRejected("not_found", f"there is no background process {params.session_id!r}")
        if len(nursery.child_tasks) > worker.limits.queued_processes:
            raise RequestRejected("busy", f"{worker.limits.queued_processes} requests about processes wait already")

        async def work() -> Any:
            from agent.tools.process import perform_action  # noqa: PLC0415 - first needed here, long after the start

            conversation = worker.conversation
            output = await perform_action(params, registry, conversation.header.id, conversation.outputs, observes=True)
            return {"text": output.text, **output.details}

        nursery.start_soon(run_and_respond, worker.output, request_id, work)
        return DEFERRED

    def _shutdown(self, _params: Any, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            self._on_shutdown()
            return {}

        self._ending = True
        run = self._worker.runs.active
        if run is not None:
            run.abort()
        with contextlib.suppress(RequestRejected):
            return self._conversation_queue.put(request_id, work)
        self._on_shutdown()
        return {}
