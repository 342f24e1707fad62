"""Tells pi's events in native words, and the runs what the events mean for them."""

from collections.abc import Callable

import msgspec

from rpc.pi import events
from rpc.pi.dialogs import Desk
from rpc.pi.events import Stamp
from rpc.pi.link import Link
from rpc.pi.messages import AssistantMessageEnd, PiLine, is_present
from rpc.pi.run_state import Run
from rpc.pi.runs import Runs
from wire.framing import DECODE_ERRORS
from wire.messages import ToolCallView


class Narrator:
    """One event at a time. Events of no use to anybody, and those of newer releases, are passed over."""

    def __init__(self, link: Link, runs: Runs, desk: Desk) -> None:
        self._link = link
        self._runs = runs
        self._message_end = msgspec.json.Decoder(AssistantMessageEnd)
        self._of_the_run: dict[str, Callable[[PiLine, Run], None]] = {
            "message_update": self._message_update,
            "message_end": self._message_ended,
            "tool_execution_start": self._tool_started,
            "tool_execution_update": self._tool_updated,
            "tool_execution_end": self._tool_ended,
        }
        self._of_the_worker: dict[str, Callable[[PiLine], None]] = {
            "agent_start": lambda _line: runs.agent_start(),
            "agent_end": lambda line: runs.agent_end(will_retry=line.will_retry),
            "agent_settled": lambda _line: runs.agent_settled(),
            "auto_retry_start": self._retry,
            "auto_retry_end": self._retry,
            "compaction_start": self._compaction,
            "compaction_end": self._compaction,
            "queue_update": self._queue,
            "thinking_level_changed": self._setting,
            "session_info_changed": self._setting,
            "extension_ui_request": desk.request,
            "extension_error": self._extension_error,
        }

    def tell(self, line: PiLine) -> None:
        """Work off one event."""
        of_the_run = self._of_the_run.get(line.type)
        if of_the_run is not None:
            # without a run these are the last words of one whose end has been told
            if self._runs.run is not None:
                of_the_run(line, self._runs.run)
            return
        of_the_worker = self._of_the_worker.get(line.type)
        if of_the_worker is not None:
            of_the_worker(line)

    def _stamp(self) -> Stamp:
        run = self._runs.run
        return self._link.stamp(run.id if run else None)

    # --- messages ---

    def _message_update(self, line: PiLine, run: Run) -> None:
        told = events.piece(line, lambda: self._link.stamp(run.id))
        if told is not None:
            self._link.event(*told)

    def _message_ended(self, line: PiLine, run: Run) -> None:
        try:
            message = self._message_end.decode(line.message)
        except DECODE_ERRORS:
            return
        if message.role != "assistant":
            return
        text = run.take_message(message)
        run.keep("assistant_message", events.MessageKept.of(text, message.stop_reason))
        used, (run_id, seq) = run.usage, self._stamp()
        usage = events.UsageEvent(
            input_tokens=used.input_tokens, output_tokens=used.output_tokens, run_id=run_id, seq=seq
        )
        self._link.event("token_usage", usage)

    # --- tools ---

    def _tool_started(self, line: PiLine, run: Run) -> None:
        call = ToolCallView(line.tool_call_id, line.tool_name, events.preview(line.args), "RUNNING")
        run.tool_started(call, self._link.now)
        self._tell_and_keep(run, "tool", events.tool_event("start", call, self._stamp()))

    def _tool_updated(self, line: PiLine, run: Run) -> None:
        call = run.tool(line.tool_call_id, line.tool_name)
        said = events.output_of(line.partial_result)
        self._link.event("tool", events.tool_event("update", call, self._stamp(), said))

    def _tool_ended(self, line: PiLine, run: Run) -> None:
        call = run.tool_ended(line.tool_call_id, line.tool_name, self._link.now, failed=line.is_error)
        said = events.output_of(line.result) if is_present(line.result) else None
        if line.is_error:
            self._tell_and_keep(run, "tool", events.tool_event("error", call, self._stamp(), said))
        run_id, seq = self._stamp()
        self._tell_and_keep(run, "tool_executed", events.ToolExecuted(call=call, run_id=run_id, seq=seq))
        self._tell_and_keep(run, "tool", events.tool_event("end", call, self._stamp(), said))

    def _tell_and_keep(self, run: Run, name: str, data: msgspec.Struct) -> None:
        self._link.event(name, data)
        run.keep(name, data)

    # --- the rest ---

    def _retry(self, line: PiLine) -> None:
        self._link.event("state_changed", events.retry(line, self._stamp()))
        if line.type == "auto_retry_start":
            self._runs.retry_starts(line.delay_ms / 1000)
        else:
            self._runs.retry_ends(success=line.success)

    def _compaction(self, line: PiLine) -> None:
        self._link.event("compaction", events.compaction(line, self._stamp()))
        if line.type == "compaction_start":
            self._runs.compaction_starts()
            return
        done = is_present(line.result) and not line.aborted
        self._runs.compaction_ends(goes_on=bool(line.will_retry) or (done and self._runs.queued > 0))

    def _queue(self, line: PiLine) -> None:
        self._runs.queue_is(len(line.steering) + len(line.follow_up))
        self._link.event("queue_update", events.queue_update(line, self._stamp()))

    def _setting(self, line: PiLine) -> None:
        run_id, seq = self._stamp()
        changed = events.StateChanged(thinking=line.level, session_name=line.name, run_id=run_id, seq=seq)
        self._link.event("state_changed", changed)

    def _extension_error(self, line: PiLine) -> None:
        self._link.event("error", events.extension_error(line, self._stamp()))
