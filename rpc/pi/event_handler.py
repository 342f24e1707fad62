"""Translates pi's events into native events, and reports to the run controller what they mean for its run."""

from collections.abc import Callable

import msgspec

from rpc import run_events
from rpc.pi import events
from rpc.pi.dialogs import DialogHandler
from rpc.pi.link import PiLink
from rpc.pi.messages import AssistantMessageEnd, PiLine, is_present
from rpc.pi.run_state import PiRun
from rpc.pi.runs import PiRunController
from wire.framing import DECODE_ERRORS
from wire.messages import ToolCallView


class PiEventHandler:
    """One event at a time. Events without a use, and those of newer releases, are passed over."""

    def __init__(self, link: PiLink, runs: PiRunController, dialogs: DialogHandler) -> None:
        self._link = link
        self._runs = runs
        self._message_end_decoder = msgspec.json.Decoder(AssistantMessageEnd)
        self._run_handlers: dict[str, Callable[[PiLine, PiRun], None]] = {
            "message_update": self._message_update,
            "message_end": self._message_ended,
            "tool_execution_start": self._tool_started,
            "tool_execution_update": self._tool_updated,
            "tool_execution_end": self._tool_ended,
        }
        self._worker_handlers: dict[str, Callable[[PiLine], None]] = {
            "agent_start": lambda _line: runs.agent_start(),
            "agent_end": lambda line: runs.agent_end(will_retry=line.will_retry),
            "agent_settled": lambda _line: runs.agent_settled(),
            "auto_retry_start": self._retry,
            "auto_retry_end": self._retry,
            "compaction_start": self._compaction,
            "compaction_end": self._compaction,
            "queue_update": self._queue_updated,
            "thinking_level_changed": self._setting_changed,
            "session_info_changed": self._setting_changed,
            "extension_ui_request": dialogs.request,
            "extension_error": self._extension_error,
        }

    def handle(self, line: PiLine) -> None:
        """Work off one event."""
        of_the_run = self._run_handlers.get(line.type)
        if of_the_run is not None:
            # without a run these are the last words of one whose end was published
            if self._runs.run is not None:
                of_the_run(line, self._runs.run)
            return
        of_the_worker = self._worker_handlers.get(line.type)
        if of_the_worker is not None:
            of_the_worker(line)

    def _stamp(self) -> run_events.EventStamp:
        run = self._runs.run
        return self._link.stamp(run.id if run else None)

    # --- messages ---

    def _message_update(self, line: PiLine, run: PiRun) -> None:
        piece = events.message_delta(line, lambda: self._link.stamp(run.id))
        if piece is not None:
            self._link.emit(*piece)

    def _message_ended(self, line: PiLine, run: PiRun) -> None:
        try:
            message = self._message_end_decoder.decode(line.message)
        except DECODE_ERRORS:
            return
        if message.role != "assistant":
            return
        text = run.record_message(message)
        run.record_event(
            "assistant_message",
            run_events.RecordedMessage(text=text[: run_events.MAX_MESSAGE_CHARS], stop_reason=message.stop_reason),
        )
        used, (run_id, seq) = run.usage, self._stamp()
        usage = run_events.TokenUsageEvent(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost=used.cost,
            run_id=run_id,
            seq=seq,
        )
        self._link.emit("token_usage", usage)

    # --- tools ---

    def _tool_started(self, line: PiLine, run: PiRun) -> None:
        call = ToolCallView(line.tool_call_id, line.tool_name, events.preview(line.args), "RUNNING")
        run.tool_started(call, self._link.now)
        self._emit_and_record(run, "tool", run_events.tool_event("start", call, self._stamp()))

    def _tool_updated(self, line: PiLine, run: PiRun) -> None:
        call = run.tool_call(line.tool_call_id, line.tool_name)
        said = events.output_text(line.partial_result)
        self._link.emit("tool", run_events.tool_event("update", call, self._stamp(), said))

    def _tool_ended(self, line: PiLine, run: PiRun) -> None:
        call = run.tool_ended(line.tool_call_id, line.tool_name, self._link.now, failed=line.is_error)
        said = events.output_text(line.result) if is_present(line.result) else None
        if line.is_error:
            self._emit_and_record(run, "tool", run_events.tool_event("error", call, self._stamp(), said))
        run_id, seq = self._stamp()
        self._emit_and_record(run, "tool_executed", run_events.ToolExecuted(call=call, run_id=run_id, seq=seq))
        self._emit_and_record(run, "tool", run_events.tool_event("end", call, self._stamp(), said))

    def _emit_and_record(self, run: PiRun, name: str, data: msgspec.Struct) -> None:
        self._link.emit(name, data)
        run.record_event(name, data)

    # --- the rest ---

    def _retry(self, line: PiLine) -> None:
        self._link.emit("state_changed", events.retry_event(line, self._stamp()))
        if line.type == "auto_retry_start":
            self._runs.retry_starts(line.delay_ms / 1000)
        else:
            self._runs.retry_ends(success=line.success)

    def _compaction(self, line: PiLine) -> None:
        self._link.emit("compaction", events.compaction_event(line, self._stamp()))
        if line.type == "compaction_start":
            self._runs.compaction_starts()
            return
        done = is_present(line.result) and not line.aborted
        self._runs.compaction_ends(goes_on=bool(line.will_retry) or (done and self._runs.queued > 0))

    def _queue_updated(self, line: PiLine) -> None:
        self._runs.queue_changed(len(line.steering) + len(line.follow_up))
        self._link.emit("queue_update", events.queue_update(line, self._stamp()))

    def _setting_changed(self, line: PiLine) -> None:
        run_id, seq = self._stamp()
        changed = run_events.StateChanged(thinking=line.level, session_name=line.name, run_id=run_id, seq=seq)
        self._link.emit("state_changed", changed)

    def _extension_error(self, line: PiLine) -> None:
        self._link.emit("error", events.extension_error(line, self._stamp()))
