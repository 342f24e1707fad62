"""The methods of the native dialect: runs, the conversation, state and settings.

A prompt waits in the queue for an aborted run to end; during any other run it is refused. A method that needs the
conversation to itself is refused while a run is in progress. Those about the state are answered at once, also during a
run; settings hold from the next model call on.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from agent.approvals import NotDecidable
from agent.client_tools import ClientToolsError, definitions_of, results_for
from agent.compactor import CompactionFailed
from agent.models.catalogue import ModelUnavailable
from agent.output import ConversationQueue, RequestId
from agent.requests import (
    DecideParams,
    DescribeCallParams,
    NewSessionParams,
    RequestRejected,
    SetModelParams,
    SetThinkingParams,
    SwitchSessionParams,
)
from agent.runs import AgentRun, InputKind, InputQueueFull
from agent.worker import AgentWorker
from wire.call_page import CallPage
from wire.entries import TranscriptMessage
from wire.messages import AbortParams, CompactParams, PromptParams, PromptResult, SessionResult, StateResult, TextParams


class WorkerMethods:
    """``by_name``: takes parameters and the request's id; returns the result, or DEFERRED."""

    def __init__(self, worker: AgentWorker, queue: ConversationQueue) -> None:
        self._worker = worker
        self._conversation_queue = queue
        self.by_name: dict[str, Callable[[Any, RequestId], Any]] = {
            "prompt": self._prompt,
            "steer": lambda params, _: self._queue("steer", params),
            "follow_up": lambda params, _: self._queue("follow_up", params),
            "abort": self._abort,
            "decide": self._decide,
            "describe_call": self._describe_call,
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "compact": self._compact,
            "ping": lambda *_: {},
            "get_state": self._get_state,
            "get_messages": lambda *_: {"messages": worker.conversation.messages},
            "get_commands": self._get_commands,
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
        }

    def _prompt(self, params: PromptParams, request_id: RequestId) -> Any:
        worker = self._worker
        if worker.runs.busy:
            if params.streaming_behavior is None:
                raise RequestRejected("busy", "a run is in progress; pass streaming_behavior")
            return self._queue(params.streaming_behavior, TextParams(params.text, params.images))
        try:
            tools = definitions_of(params.client_tools, params.answer.must_call if params.answer else ())
        except ClientToolsError as exc:
            raise RequestRejected("invalid_params", str(exc)) from exc
        run = AgentRun(
            run_id=params.run_id or f"r{worker.output.next_seq()}",
            text=worker.project_context.expand(params.text),
            images=params.images,
            client_tools=tools,
            results=params.tool_results,
            history_turns=params.history_turns,
            from_session=params.from_session,
            answer=params.answer,
            environment=_trace_environment(params),
        )
        later = self._conversation_queue.put(request_id, lambda: self._run_prompt(run))
        worker.runs.set_active_run(run)
        return later

    async def _run_prompt(self, run: AgentRun) -> PromptResult:
        worker = self._worker
        try:
            from agent.run_executor import RunExecutor  # noqa: PLC0415 - a worker is ready before it has imported what runs need

            self._answer_client_calls(run)
            return await RunExecutor(run, worker).execute()
        except RequestRejected:  # it never began, so its queued inputs have no reader
            if not run.aborting:
                worker.input_queue.clear()
            raise
        finally:
            worker.runs.clear_active_run(run)

    def _answer_client_calls(self, run: AgentRun) -> None:
        """Add the results that the prompt brings for the client's open calls."""
        conversation = self._worker.conversation
        try:
            results = results_for(conversation.open_calls, run.results)
        except ClientToolsError as exc:
            raise RequestRejected("invalid_params", str(exc)) from exc
        if results:
            conversation.add(TranscriptMessage("user", [*results], origin="tool"))

    def _queue(self, name: InputKind, params: TextParams) -> Any:
        if not self._worker.runs.busy:
            raise RequestRejected("not_running", f"no run is in progress that could take a {name}; send a prompt")
        try:
            self._worker.input_queue.put(name, params)
        except InputQueueFull:
            raise RequestRejected("queue_full", f"{self._worker.limits.queued_inputs} inputs wait already") from None
        return {"queued": name}

    def _abort(self, params: AbortParams, _request_id: RequestId) -> Any:
        runs = self._worker.runs
        running = runs.busy
        cleared = 0 if params.keep_queue else self._worker.input_queue.clear()
        if runs.active is not None:
            runs.active.abort()
        return {"aborted": running, "cleared": cleared}

    def _decide(self, params: DecideParams, _request_id: RequestId) -> Any:
        try:
            self._worker.toolbox.approvals.decide(
                params.call_id, params.decision, params.note, params.by, seen=params.seen, option_id=params.option_id
            )
        except NotDecidable as exc:
            raise RequestRejected(exc.code, str(exc), call_id=params.call_id) from exc
        return {"call_id": params.call_id, "decision": params.decision}

    def _describe_call(self, params: DescribeCallParams, _request_id: RequestId) -> CallPage:
        try:
            return self._worker.toolbox.approvals.page(params.call_id, params.offset)
        except NotDecidable as exc:
            raise RequestRejected(exc.code, str(exc), call_id=params.call_id) from exc

    def _new_session(self, params: NewSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            fresh = self._worker.store.create(params.parent_session)
            return self._session_result(await self._worker.switch_conversation(fresh, "new"))

        return self._enqueue(request_id, work)

    def _switch_session(self, params: SwitchSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            worker = self._worker
            wanted = worker.conversation
            if params.session_file != wanted.session_file:
                wanted = await trio.to_thread.run_sync(worker.store.open, params.session_file)
            return self._session_result(await worker.switch_conversation(wanted, "switch"))

        return self._enqueue(request_id, work)

    def _compact(self, params: CompactParams, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            worker = self._worker
            conversation = worker.conversation
            try:
                summary = await worker.compactor.compact(
                    conversation, worker.output.emit, "manual", instructions=params.instructions
                )
            except CompactionFailed as exc:
                raise RequestRejected("compaction_failed", str(exc)) from exc
            if summary is None:
                return {"compacted": False, "reason": "nothing to compact: there are no old turns"}
            return {"compacted": True, "summary": summary, "messages": len(conversation.messages)}

        return self._enqueue(request_id, work)

    def _session_result(self, sealed: list[str]) -> SessionResult:
        conversation = self._worker.conversation
        return SessionResult(conversation.header.id, conversation.session_file, sealed or msgspec.UNSET)

    def _enqueue(self, request_id: RequestId, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._worker.runs.busy:
            raise RequestRejected("busy", "a run is in progress; abort it first")
        return self._conversation_queue.put(request_id, work)

    def _get_state(self, _params: Any, _request_id: RequestId) -> StateResult:
        worker = self._worker
        conversation, toolbox = worker.conversation, worker.toolbox
        return StateResult(
            session_id=conversation.header.id,
            session_file=conversation.session_file,
            message_count=len(conversation.messages),
            is_streaming=worker.runs.active is not None,
            is_compacting=worker.compactor.running,
            provider=toolbox.model.provider,
            model=toolbox.model.name,
            thinking=toolbox.thinking,
            pending=len(worker.input_queue),
            background=len(toolbox.sandbox.processes.background_ids()),
            status=worker.status(),
        )

    def _get_commands(self, _params: Any, _request_id: RequestId) -> Any:
        context = self._worker.project_context
        templates = [{"name": name, "source": "prompt_template"} for name in context.templates]
        skills = [
            {"name": skill.name, "description": skill.description, "path": skill.path, "source": "skill"}
            for skill in context.skills
        ]
        return {"commands": [*templates, *skills]}

    def _set_model(self, params: SetModelParams, _request_id: RequestId) -> Any:
        worker = self._worker
        try:
            worker.toolbox.model = worker.models.open(params.provider, params.model)
        except ModelUnavailable as exc:
            raise RequestRejected("invalid_params", str(exc)) from exc
        worker.output.emit("state_changed", {"model": worker.toolbox.model.name})
        return {"provider": worker.toolbox.model.provider, "model": worker.toolbox.model.name}

    def _set_thinking(self, params: SetThinkingParams, _request_id: RequestId) -> Any:
        self._worker.toolbox.thinking = params.level
        self._worker.output.emit("state_changed", {"thinking": params.level})
        return {"level": params.level}


def _trace_environment(params: PromptParams) -> dict[str, str]:
    """What names the run's span to its commands."""
    members = {"TRACEPARENT": params.traceparent, "TRACESTATE": params.tracestate}
    return {name: value for name, value in members.items() if value is not None}
