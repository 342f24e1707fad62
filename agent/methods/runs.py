"""Methods about runs: prompt, steer, follow_up, abort, and the decisions that a run waits for."""

from collections.abc import Callable
from typing import Any

from agent.approvals import NotDecidable
from agent.client_tools import BadClientTools, check_must_call, definitions_of, results_for
from agent.inbox import InboxFull
from agent.lane import Lane
from agent.output import RequestId
from agent.requests import AbortParams, DecideParams, DescribeCallParams, Refusal
from agent.runs import Run
from agent.worker import Worker
from wire.call_parts import CallPage
from wire.entries import TranscriptMessage
from wire.messages import PromptParams, PromptResult, TextParams

__all__ = ["RunMethods"]


class RunMethods:
    """A prompt waits in the lane for an aborted run to end; beside any other run it is refused."""

    def __init__(self, worker: Worker, lane: Lane) -> None:
        self._worker = worker
        self._lane = lane
        self.by_name: dict[str, Callable[[Any, RequestId], Any]] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "abort": self._abort,
            "decide": self._decide,
            "describe_call": self._describe_call,
        }

    def _prompt(self, params: PromptParams, request_id: RequestId) -> Any:
        worker = self._worker
        if worker.runs.busy:
            return self._while_running(params)
        try:
            tools = definitions_of(params.client_tools)
            check_must_call(params.answer.must_call if params.answer else (), tools)
        except BadClientTools as exc:
            raise Refusal("invalid_params", str(exc)) from exc
        run = Run(
            run_id=params.run_id or f"r{worker.output.next_seq()}",
            text=worker.knowledge.expand(params.text),
            images=params.images,
            client_tools=tools,
            results=params.tool_results,
            history_turns=params.history_turns,
            from_session=params.from_session,
            answer=params.answer,
        )
        later = self._lane.put(request_id, lambda: self._execute(run))
        worker.runs.set_active_run(run)
        return later

    def _while_running(self, params: PromptParams) -> Any:
        match params.streaming_behavior:
            case None:
                raise Refusal("busy", "a run is in progress; pass streaming_behavior")
            case "steer":
                return self._steer(TextParams(params.text, params.images), None)
            case "follow_up":
                return self._follow_up(TextParams(params.text, params.images), None)

    async def _execute(self, run: Run) -> PromptResult:
        worker = self._worker
        try:
            from agent.turn import Turn  # noqa: PLC0415 - a worker is ready before it has imported what runs need

            self._answer_client_calls(run)
            return await Turn(run, worker).execute()
        except Refusal:  # it never began: nobody will read what was queued for it
            if not run.aborting:
                worker.inbox.clear()
            raise
        finally:
            worker.runs.clear_active_run(run)

    def _answer_client_calls(self, run: Run) -> None:
        """The calls that the run before left to the client get their results now, those that the prompt brings."""
        conversation = self._worker.conversation
        try:
            results = results_for(conversation.open_calls, run.results)
        except BadClientTools as exc:
            raise Refusal("invalid_params", str(exc)) from exc
        if results:
            conversation.add(TranscriptMessage("user", [*results], origin="tool"))

    def _steer(self, params: TextParams, _request_id: RequestId) -> Any:
        return self._queue("steer", self._worker.inbox.steer, params)

    def _follow_up(self, params: TextParams, _request_id: RequestId) -> Any:
        return self._queue("follow_up", self._worker.inbox.follow_up, params)

    def _queue(self, name: str, put: Callable[[TextParams], None], params: TextParams) -> Any:
        if not self._worker.runs.busy:
            raise Refusal("not_running", f"no run is in progress that could take a {name}; send a prompt")
        try:
            put(params)
        except InboxFull:
            raise Refusal("queue_full", f"{self._worker.limits.queued_inputs} inputs wait already") from None
        return {"queued": name}

    def _abort(self, params: AbortParams, _request_id: RequestId) -> Any:
        runs = self._worker.runs
        running = runs.busy
        cleared = 0 if params.keep_queue else self._worker.inbox.clear()
        if runs.active is not None:
            runs.active.abort()
        return {"aborted": running, "cleared": cleared}

    def _decide(self, params: DecideParams, _request_id: RequestId) -> Any:
        try:
            self._worker.brain.approvals.decide(
                params.call_id, params.decision, params.note, params.by, seen=params.seen
            )
        except NotDecidable as exc:
            raise Refusal(exc.code, str(exc), call_id=params.call_id) from exc
        return {"call_id": params.call_id, "decision": params.decision}

    def _describe_call(self, params: DescribeCallParams, _request_id: RequestId) -> CallPage:
        try:
            return self._worker.brain.approvals.page(params.call_id, params.offset)
        except NotDecidable as exc:
            raise Refusal(exc.code, str(exc), call_id=params.call_id) from exc
