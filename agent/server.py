"""The methods of the native dialect: every request with an id gets exactly one answer, most of them at once.

What needs the conversation to itself (a prompt, another session, a compaction) goes through one lane, in order; while a
run is in progress such a request is refused as ``busy``, but once the run is being aborted it waits for its end.
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import trio

from agent.context import Knowledge
from agent.conversation import Conversation, SessionStore
from agent.history import open_calls, plan_compaction, seal
from agent.inbox import Inbox, InboxFull
from agent.limits import Limits
from agent.models.base import Model
from agent.models.catalogue import UnknownModel
from agent.output import Output, RequestId
from agent.requests import (
    AbortParams,
    CompactParams,
    DecideParams,
    Incoming,
    NewSessionParams,
    ProcessParams,
    Refusal,
    SetModelParams,
    SetThinkingParams,
    SwitchSessionParams,
    decode_params,
    decode_request,
)
from agent.turn import Brain, Run, Turn
from wire.messages import PromptParams, SessionResult, StateResult, TextParams
from wire.transcript import TranscriptError

__all__ = ["Server"]


class _Job(NamedTuple):
    request_id: RequestId
    work: Callable[[], Awaitable[Any]]


_LATER = object()
"""What a method returns whose answer the lane gives."""


class Server:
    """One worker's state and its methods. ``end`` is called when ``shutdown`` is through."""

    def __init__(
        self,
        *,
        brain: Brain,
        conversation: Conversation,
        store: SessionStore,
        knowledge: Knowledge,
        open_model: Callable[[str | None, str | None], Model],
        output: Output,
        limits: Limits,
        end: Callable[[], None],
    ) -> None:
        self._brain = brain
        self._conversation = conversation
        self._store = store
        self._knowledge = knowledge
        self._open_model = open_model
        self._output = output
        self._limits = limits
        self._end = end
        self._inbox = Inbox(output, limits.queued_inputs)
        self._run: Run | None = None
        self._compacting = False
        self._ending = False
        self._jobs, self._lane = trio.open_memory_channel[_Job](limits.queued_jobs)
        self._methods: dict[str, Callable[[Any, RequestId], Any]] = {
            "prompt": self._prompt,
            "steer": self._steer,
            "follow_up": self._follow_up,
            "abort": self._abort,
            "new_session": self._new_session,
            "switch_session": self._switch_session,
            "get_state": self._get_state,
            "get_messages": lambda *_: {"messages": self._conversation.messages},
            "get_commands": self._get_commands,
            "set_model": self._set_model,
            "set_thinking": self._set_thinking,
            "compact": self._compact,
            "decide": self._decide,
            "process": self._process,
            "ping": lambda *_: {},
            "shutdown": self._shutdown,
        }

    def handle(self, line: bytes) -> None:
        """Take one line from stdin; never waits and never raises."""
        request_id: RequestId = None
        try:
            request = decode_request(line)
            request_id = request.id
            result = self._dispatch(request)
        except Refusal as exc:
            self._output.refuse(exc.request_id if request_id is None else request_id, exc.code, exc.message, exc.data)
        else:
            if result is not _LATER:
                self._output.answer(request_id, result)

    def _dispatch(self, request: Incoming) -> Any:
        params = decode_params(request)
        if self._ending and request.method != "ping":
            raise Refusal("shutting_down", "the worker is shutting down")
        return self._methods[request.method](params, request.id)

    async def work(self) -> None:
        """The lane: what must not overlap, one after the other, until cancelled."""
        await self.seal_conversation()
        async for job in self._lane:
            try:
                result = await job.work()
            except Refusal as exc:
                self._output.refuse(job.request_id, exc.code, exc.message, exc.data)
            except TranscriptError as exc:
                self._output.refuse(job.request_id, exc.code, exc.message, exc.details)
            except Exception as exc:  # noqa: BLE001 - a bug costs one request, and it is answered and told
                sys.stderr.write(f"agent: internal error: {type(exc).__name__}: {exc}\n")
                self._output.refuse(job.request_id, "internal", f"{type(exc).__name__}: {exc}")
            else:
                self._output.answer(job.request_id, result)

    def close(self) -> None:
        """Give the conversation free for another worker."""
        self._conversation.close()

    async def seal_conversation(self) -> None:
        """Give every tool call that a former worker left open its one result."""
        calls = open_calls(self._conversation.messages)
        if calls:
            self._conversation.add(seal(calls))
            await self._conversation.sync()
            self._output.event("agent_resumed", {"strategy": "seal", "sealed": [call.id for call in calls]})

    # --- runs -------------------------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._run is not None and not self._run.aborting

    def _prompt(self, params: PromptParams, request_id: RequestId) -> Any:
        if params.client_tools or params.tool_results:
            raise Refusal("unsupported", "this agent takes no client tools yet")
        if self._busy:
            return self._while_running(params)
        text = self._knowledge.expand(params.text)
        run_id = params.run_id or f"r{self._output.next_seq()}"
        run = Run(run_id, text, params.images, trio.CancelScope())
        self._enqueue(request_id, lambda: self._execute(run))
        self._run = run
        return _LATER

    def _while_running(self, params: PromptParams) -> Any:
        match params.streaming_behavior:
            case None:
                raise Refusal("busy", "a run is in progress; pass streaming_behavior")
            case "steer":
                return self._steer(TextParams(params.text, params.images), None)
            case "follow_up":
                return self._follow_up(TextParams(params.text, params.images), None)

    async def _execute(self, run: Run) -> Any:
        turn = Turn(
            run,
            conversation=self._conversation,
            brain=self._brain,
            inbox=self._inbox,
            output=self._output,
            limits=self._limits,
        )
        try:
            return await turn.execute()
        finally:
            if self._run is run:  # else a prompt already waits, and what was queued since is its own
                self._run = None
                if not run.aborting:
                    self._inbox.clear()

    def _steer(self, params: TextParams, _request_id: RequestId) -> Any:
        return self._queue("steer", self._inbox.steer, params)

    def _follow_up(self, params: TextParams, _request_id: RequestId) -> Any:
        return self._queue("follow_up", self._inbox.follow_up, params)

    def _queue(self, name: str, put: Callable[[TextParams], None], params: TextParams) -> Any:
        if not self._busy:
            raise Refusal("not_running", f"no run is in progress that could take a {name}; send a prompt")
        try:
            put(params)
        except InboxFull:
            raise Refusal("queue_full", f"{self._limits.queued_inputs} inputs wait already") from None
        return {"queued": name}

    def _abort(self, params: AbortParams, _request_id: RequestId) -> Any:
        running = self._busy
        cleared = 0 if params.keep_queue else self._inbox.clear()
        if self._run is not None:
            self._run.abort()
        return {"aborted": running, "cleared": cleared}

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _new_session(self, params: NewSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            fresh = self._store.fresh(params.parent_session)
            fresh.make_file()  # a small write that waits for no disk: less work than asking a thread
            return self._hold(fresh)

        return self._exclusively(request_id, work)

    def _switch_session(self, params: SwitchSessionParams, request_id: RequestId) -> Any:
        async def work() -> SessionResult:
            if params.session_file == self._conversation.session_file:
                return self._hold(self._conversation)
            opened = await trio.to_thread.run_sync(self._store.open, params.session_file)
            result = self._hold(opened)
            await self.seal_conversation()
            return result

        return self._exclusively(request_id, work)

    def _hold(self, conversation: Conversation) -> SessionResult:
        """Make this the worker's conversation; nothing that waited for the former one may reach it."""
        if conversation is not self._conversation:
            self._conversation.close()
            self._conversation = conversation
            self._output.go_on_above(conversation.last_seq)
        self._inbox.clear()
        return SessionResult(conversation.header.id, conversation.session_file)

    def _compact(self, params: CompactParams, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            plan = plan_compaction(self._conversation.messages, params.instructions)
            if plan is None:
                return {"compacted": False, "reason": "nothing to compact: there are no old turns"}
            self._compacting = True
            self._output.event("compaction", {"phase": "start"})
            try:
                await self._conversation.compact(plan.summary, plan.kept)
            finally:
                self._compacting = False
                self._output.event("compaction", {"phase": "end"})
            return {"compacted": True, "summary": plan.summary, "messages": len(self._conversation.messages)}

        return self._exclusively(request_id, work)

    def _exclusively(self, request_id: RequestId, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._busy:
            raise Refusal("busy", "a run is in progress; abort it first")
        return self._enqueue(request_id, work)

    def _enqueue(self, request_id: RequestId, work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            self._jobs.send_nowait(_Job(request_id, work))
        except trio.WouldBlock:
            raise Refusal("busy", f"{self._limits.queued_jobs} requests wait already") from None
        return _LATER

    # --- state ------------------------------------------------------------------------------------------------------

    def _get_state(self, _params: Any, _request_id: RequestId) -> StateResult:
        return StateResult(
            session_id=self._conversation.header.id,
            session_file=self._conversation.session_file,
            message_count=len(self._conversation.messages),
            is_streaming=self._run is not None,
            is_compacting=self._compacting,
            provider=self._brain.model.provider,
            model=self._brain.model.name,
            thinking=self._brain.thinking,
            pending=len(self._inbox),
        )

    def _get_commands(self, _params: Any, _request_id: RequestId) -> Any:
        templates = [{"name": name, "source": "prompt_template"} for name in self._knowledge.templates]
        skills = [{**msgspec.to_builtins(skill), "source": "skill"} for skill in self._knowledge.skills]
        return {"commands": [*templates, *skills]}

    def _set_model(self, params: SetModelParams, _request_id: RequestId) -> Any:
        try:
            self._brain.model = self._open_model(params.provider, params.model)
        except UnknownModel as exc:
            raise Refusal("invalid_params", str(exc)) from exc
        self._output.event("state_changed", {"model": self._brain.model.name})
        return {"provider": self._brain.model.provider, "model": self._brain.model.name}

    def _set_thinking(self, params: SetThinkingParams, _request_id: RequestId) -> Any:
        self._brain.thinking = params.level
        self._output.event("state_changed", {"thinking": params.level})
        return {"level": params.level}

    def _decide(self, params: DecideParams, _request_id: RequestId) -> Any:
        raise Refusal("nothing_pending", f"no call {params.call_id!r} waits for a decision", call_id=params.call_id)

    def _process(self, params: ProcessParams, _request_id: RequestId) -> Any:
        if params.action == "list":
            return {"sessions": []}
        raise Refusal("not_found", "there are no background processes", session_id=params.session_id)

    def _shutdown(self, _params: Any, request_id: RequestId) -> Any:
        async def work() -> dict[str, Any]:
            self._end()
            return {}

        self._ending = True
        if self._run is not None:
            self._run.abort()
        with contextlib.suppress(Refusal):
            return self._enqueue(request_id, work)
        self._end()
        return {}
