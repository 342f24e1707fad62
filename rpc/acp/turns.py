"""The one turn that an ACP agent may be in: prompt, steer, abort and its end, which comes exactly once."""

from typing import Any

import msgspec

from rpc.acp.calls import CallBook
from rpc.acp.conversation import AcpConversation
from rpc.acp.link import AcpLink, AcpRequest, refusal
from rpc.acp.loss import Loss, loss_of
from rpc.acp.messages import AcpAnswer, text_of
from rpc.acp.options import AcpOptions
from rpc.acp.permissions import PermissionDesk
from rpc.acp.prompt import assistant_entry, journal_header, prompt_blocks, text_blocks, user_entry, withdrawal
from rpc.acp.run import AcpPhase, AcpPhaseEvent, AcpRun, next_acp_phase
from rpc.acp.sessions import AcpSessions
from rpc.acp.updates import used_tokens
from rpc.run_events import ContextUsage, Done, ErrorEvent, RunStart, TokenUsageEvent
from rpc.settings import RpcSettings
from wire.messages import PromptParams, PromptResult, TextParams


class AcpTurns:
    """One per dialect. ``run`` is the turn that is on."""

    def __init__(
        self,
        link: AcpLink,
        sessions: AcpSessions,
        calls: CallBook,
        desk: PermissionDesk,
        *,
        options: AcpOptions,
        settings: RpcSettings,
    ) -> None:
        self._link = link
        self._sessions = sessions
        self._calls = calls
        self._desk = desk
        self._options = options
        self._settings = settings
        self._phase = AcpPhase.IDLE
        self._conversation: AcpConversation | None = None
        self._last_session = ""
        self._give_up_at: float | None = None
        self._count = 0
        self.run: AcpRun | None = None

    @property
    def is_running(self) -> bool:
        """Whether a prompt is not answered."""
        return self._phase is not AcpPhase.IDLE

    @property
    def is_cancelling(self) -> bool:
        """Whether the turn is being ended."""
        return self._phase is AcpPhase.CANCELLING

    def start(self, request_id: str, conversation: AcpConversation, params: PromptParams) -> None:
        """Send a prompt, when no turn is on."""
        record = self._sessions.record
        blocks = prompt_blocks(params, conversation, self._options, record, conversation.take_notes())
        header = None if conversation.has_header else journal_header(conversation, self._options, record)
        conversation.has_header, conversation.is_spare = True, False
        self._link.record(
            user_entry(conversation, header, params.text, params.images, from_session=params.from_session)
        )
        self._count += 1
        run = self.run = AcpRun(params.run_id or f"r{self._count}")
        if conversation.session != self._last_session:
            self._calls.forget_ended()
        self._conversation, self._last_session = conversation, conversation.session
        run.is_refed = bool(conversation.earlier)
        run.waiting.append(request_id)
        self._move(AcpPhaseEvent.PROMPT)
        conversation.costs.begin()
        request: dict[str, Any] = {"sessionId": conversation.session, "prompt": blocks}
        if params.traceparent is not None:
            state = {} if params.tracestate is None else {"tracestate": params.tracestate}
            request["_meta"] = {"traceparent": params.traceparent, **state}
        run.wire_id = self._link.send(AcpRequest("session/prompt", request), self._on_answer)
        run_id, seq = self._link.stamp(run.id)
        self._link.emit("run_start", RunStart(run_id=run_id, seq=seq))
        self.report_context(conversation)

    def report_context(self, conversation: AcpConversation) -> None:
        """The conversation's context, where it has changed, in a turn: no others' events are heard."""
        context = conversation.context
        if self.run is None or conversation.is_context_reported or context is None:
            return
        conversation.is_context_reported = True
        run_id, seq = self._link.stamp(self.run.id)
        self._link.emit("context_usage", ContextUsage(used=context.used, size=context.size, run_id=run_id, seq=seq))

    def steer(self, request_id: str, params: TextParams, *, is_prompt: bool = False) -> None:
        """Give the turn that is on another text. A prompt's answer is the end of the turn; a steer's, that it is in."""
        run, conversation = self.run, self._conversation
        if run is None or conversation is None:
            self._link.reject(request_id, "idle", "no run is in progress; send a prompt")
            return
        if not self._sessions.record.steering or self.is_cancelling:
            why = "the run is being aborted" if self.is_cancelling else "the agent takes no text into a running turn"
            self._link.reject(request_id, "busy", why)
            return
        steering: dict[str, Any] = {"steering": {"idleBehavior": "promptRequired"}}
        blocks = text_blocks(params.text, params.images)
        asked = {"sessionId": conversation.session, "prompt": blocks, "_meta": steering}
        request = AcpRequest("_session/steering", asked, seconds=self._settings.request_timeout)

        def answered(answer: AcpAnswer) -> None:
            error = None if answer.error is None else refusal(request.method, answer.error)
            is_late = error is not None and error.details["worker_code"] == "timeout"
            is_in = text_of(answer.result.get("outcome")) in ("injected", "startedNewTurn")
            if is_in or is_late:  # without a text that came in after all, a replay would be another conversation's
                self._link.record(user_entry(conversation, None, params.text, params.images, origin="steer"))
            if error is not None:
                self._link.reject(request_id, "timeout" if is_late else "busy", error.message)
            elif is_in:
                self._join(request_id, run, is_prompt=is_prompt)
            else:
                self._link.reject(request_id, "idle", "the turn has ended before the text reached it")

        self._link.send(request, answered)

    def _join(self, request_id: str, run: AcpRun, *, is_prompt: bool) -> None:
        if not is_prompt:
            self._link.answer(request_id, {})
        elif run.outcome is not None:
            self._link.answer(request_id, run.outcome)
        else:
            run.waiting.append(request_id)

    def abort(self, request_id: str) -> None:
        """End the turn; answered after its end. Without one nothing is sent, which some agents would not survive."""
        run = self.run
        if run is None or self._conversation is None:
            self._link.answer(request_id, {"aborted": False})
            return
        run.aborts.append(request_id)
        if self.is_cancelling:
            return
        self._move(AcpPhaseEvent.CANCEL)
        self._link.notify("session/cancel", {"sessionId": self._conversation.session})
        self._desk.cancel_all()
        self._give_up_at = self._link.now + self._settings.abort_grace

    def next_deadline(self) -> float | None:
        """When an aborted turn is given up."""
        return self._give_up_at

    def expire(self) -> None:
        """Publish the end of an aborted turn whose prompt is not answered; the process is not to be used again."""
        if self._give_up_at is not None and self._give_up_at <= self._link.now and self.run is not None:
            self._link.drop(self.run.wire_id)
            self._sessions.retire_reason = "it did not answer a prompt that was cancelled"
            self._move(AcpPhaseEvent.GIVE_UP)
            self._end(self.run, None, cancelled=True)

    def _on_answer(self, answer: AcpAnswer) -> None:
        if self.run is not None:
            cancelled = self.is_cancelling
            self._move(AcpPhaseEvent.ANSWER)
            self._end(self.run, answer, cancelled=cancelled)

    def _end(self, run: AcpRun, answer: AcpAnswer | None, *, cancelled: bool) -> None:
        conversation = self._conversation
        self._give_up_at = None
        self._desk.end_turn()
        self._calls.end_all(run)
        if conversation is not None:
            run.cost = conversation.costs.charge()
        result = run.outcome = run.result(answer, cancelled=cancelled)
        self.run, self._conversation = None, None
        if conversation is not None:
            self._record_end(run, conversation, result, answer)
        self._publish_end(run, result, answer)
        for request_id in run.waiting:
            self._link.answer(request_id, result)
        for request_id in run.aborts:
            self._link.answer(request_id, {"aborted": True})

    def _record_end(
        self, run: AcpRun, conversation: AcpConversation, result: PromptResult, answer: AcpAnswer | None
    ) -> None:
        error = None if answer is None else answer.error
        loss = None if error is None else loss_of(error.code, error.text)
        if loss is Loss.UNKNOWN and not run.did_something:
            self._link.record(withdrawal(conversation))  # a replay will not have it
        else:
            conversation.turns += 1
            if answer is not None and error is None:
                conversation.is_fresh, conversation.earlier = False, ""
            self._link.record(assistant_entry(conversation, "\n\n".join(run.messages), result.stop_reason))
        if loss is not None:
            self._sessions.lose(conversation)

    def _publish_end(self, run: AcpRun, result: PromptResult, answer: AcpAnswer | None) -> None:
        if run.cost is not msgspec.UNSET or (answer is not None and used_tokens(answer.result) is not None):
            run_id, seq = self._link.stamp(run.id)
            used = result.usage
            usage = TokenUsageEvent(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost=used.cost,
                run_id=run_id,
                seq=seq,
            )
            self._link.emit("token_usage", usage)
        if result.stop_reason == "stop" and not run.did_something:
            run_id, seq = self._link.stamp(run.id)
            words = "the agent has ended its turn and neither said nor did anything"
            event = ErrorEvent(code="empty_turn", message=words, severity="warn", run_id=run_id, seq=seq)
            self._link.emit("error", event)
        run_id, seq = self._link.stamp(run.id)
        self._link.emit("done", Done(stop_reason=result.stop_reason, run_id=run_id, seq=seq))

    def _move(self, event: AcpPhaseEvent) -> None:
        self._phase = next_acp_phase(self._phase, event)
