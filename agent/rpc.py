"""``agent --mode rpc``: the worker on its pipes, requests on stdin, messages on stdout; each id gets one answer.

Exit code: end of stdin or ``shutdown`` 0; SIGTERM 143, SIGINT 130, SIGHUP 129; stdout closed by its reader, or a line
on stdin that is too long, 1. In each case tool processes are stopped first, and pending output is written if the reader
takes it.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import trio

from agent import __version__
from agent.assembly import assemble
from agent.limits import WorkerLimits
from agent.methods import WorkerMethods
from agent.models.scripted import ProcessFaults
from agent.options import Options
from agent.output import DEFERRED, ConversationQueue, RequestId, WorkerOutput, run_and_respond
from agent.pipes import PipeReader, PipeWriter
from agent.processes.exec_session import ProcessInput
from agent.requests import METHODS, RequestRejected, WorkerRequestLine, decode_params, decode_request
from agent.worker import AgentWorker
from errors import ProtocolViolation
from wire.framing import LineFramer
from wire.messages import Ready
from wire.transcript_repair import TranscriptError

_READ_BYTES = 64 * 1024
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class WorkerServer:
    """Dispatches request lines to methods; ``end`` is called when ``shutdown`` is done."""

    def __init__(self, worker: AgentWorker, end: Callable[[], None]) -> None:
        self._worker = worker
        self._on_shutdown = end
        self._ending = False
        self._conversation_queue = ConversationQueue(worker.output, worker.limits.queued_jobs)
        self._process_nursery: trio.Nursery | None = None
        self._methods: dict[str, Callable[[Any, RequestId], Any]] = {
            **WorkerMethods(worker, self._conversation_queue).by_name,
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
        with suppress(RequestRejected):
            return self._conversation_queue.put(request_id, work)
        self._on_shutdown()
        return {}


class _ShutdownState:
    """The first reason to end wins: its exit code, and how long the last output may take."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope
        self.code: int | None = None
        self.flush = 0.0

    def begin(self, code: int, flush: float) -> None:
        """End the work; what is said already may still be written for ``flush`` seconds."""
        if self.code is None:
            self.code, self.flush = code, flush
        self.scope.cancel()


def serve(options: Options) -> int:
    """Run the worker on this process's stdin and stdout; the exit code. Raises StartupError."""
    output = WorkerOutput()
    worker = assemble(options, output, ProcessFaults(output.write_raw))
    # Whatever prints by mistake shall not reach the pipe that carries the protocol.
    protocol = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return trio.run(_serve, worker, protocol)


async def _serve(worker: AgentWorker, protocol: int) -> int:
    async with PipeReader(os.dup(0)) as stdin, PipeWriter(protocol) as stdout:
        return await serve_streams(worker, stdin, stdout)


async def serve_streams(worker: AgentWorker, stdin: trio.abc.ReceiveStream, stdout: trio.abc.SendStream) -> int:
    """Serve requests until the end; the exit code. Signals of the process are taken over meanwhile."""
    output, limits = worker.output, worker.limits
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with trio.open_nursery() as outer:
            ending = _ShutdownState(trio.CancelScope())
            server = WorkerServer(worker, lambda: ending.begin(0, limits.shutdown_flush))
            output.emit_ready(Ready(agent="agent", version=__version__, pid=os.getpid(), methods=list(METHODS)))
            outer.start_soon(_write, output, stdout, ending)
            with ending.scope:
                async with trio.open_nursery() as work:
                    work.start_soon(server.run)
                    work.start_soon(_watch_signals, signals, ending, limits)
                    code = await _read(stdin, server, output, limits)
                    ending.begin(code, limits.end_flush)
            with trio.move_on_after(ending.flush):
                await output.flush()
            outer.cancel_scope.cancel()
        await worker.close()
    return ending.code or 0


async def _read(stdin: trio.abc.ReceiveStream, server: WorkerServer, output: WorkerOutput, limits: WorkerLimits) -> int:
    """To the end of stdin; the exit code."""
    framer = LineFramer(limits.line_bytes)
    while data := await stdin.receive_some(_READ_BYTES):
        try:
            lines = framer.feed(bytes(data))
        except ProtocolViolation:
            sys.stderr.write(f"agent: a line on stdin is longer than {limits.line_bytes} bytes\n")
            return 1
        for line in lines:
            if line and not line.isspace():
                server.handle(line)
        await output.wait_below(limits.output_hard)
    return 0


async def _write(output: WorkerOutput, stdout: trio.abc.SendStream, ending: _ShutdownState) -> None:
    try:
        await output.run(stdout)
    except trio.BrokenResourceError:
        ending.begin(1, 0.0)


async def _watch_signals(signals: AsyncIterator[int], ending: _ShutdownState, limits: WorkerLimits) -> None:
    async for number in signals:
        ending.begin(128 + number, limits.end_flush)
