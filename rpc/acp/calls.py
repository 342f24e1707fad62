"""The tool calls of an agent: what was said of each so far, and the native events that a change of it leads to."""

from typing import Any, Literal

import msgspec

from rpc.acp.link import AcpLink
from rpc.acp.run import AcpRun
from rpc.acp.updates import AcpCall, merge_call
from rpc.run_events import StampedEvent, ToolExecuted, tool_event
from wire.messages import ToolCallView, ToolEvent

_MAX_OPEN = 1_000
_MAX_ENDED = 4_096
_MAX_KEPT = 16 * 1024 * 1024
"""Bytes of all open calls; of one that goes beyond little is kept."""
NO_RESULT = "no result"
_CROWDED_OUT = f"no longer followed: {_MAX_OPEN:,} later calls are open"


class FileChanged(StampedEvent, frozen=True):
    """``file_changed``: a call that has ended shows a change of this file."""

    path: str


class _OpenCall(msgspec.Struct):
    call: AcpCall
    started: float


class CallBook:
    """One per dialect. Updates of calls that have ended are passed over, in that turn and after it.

    Ids are unique within a conversation only, and some agents use them again in each turn. They are those of
    ``bounded_id``.
    """

    def __init__(self, link: AcpLink) -> None:
        self._link = link
        self._open: dict[str, _OpenCall] = {}
        self._kept = 0
        self._ended: dict[str, str | None] = {}
        """Each with the run in which it ended."""

    def forget_ended(self) -> None:
        """Another conversation begins a turn, whose calls may have the ids of these."""
        self._ended.clear()

    def find(self, call_id: str) -> AcpCall | None:
        """A call that is open."""
        entry = self._open.get(call_id)
        return entry.call if entry else None

    def update(
        self, call_id: str, update: dict[str, Any], run: AcpRun | None, *, begins: bool = False
    ) -> AcpCall | None:
        """Take an update, which for an unknown id is its start; returns the call, None where it has ended.

        ``begins``: no late word about a call; its id may be that of one which ended in an earlier turn.
        """
        if call_id in self._ended:
            if not begins or run is None or self._ended[call_id] == run.id:
                return None
            del self._ended[call_id]
        entry = self._open.get(call_id)
        before = entry.call if entry else None
        call = self._within_budget(merge_call(before, call_id, update), before)
        if entry is None:
            entry = self._start(call, run)
        elif not call.is_over and before is not None and _shows_change(before, call):
            tail = call.output if call.output != before.output else None
            self._link.emit("tool", tool_event("update", call.view(), self._link.stamp(_id_of(run)), tail))
        self._keep(entry, call)
        if call.is_over:
            self._end(entry, run, call.output or None)
        return call

    def mark_running(self, call_id: str, run: AcpRun | None) -> None:
        """The call was allowed and runs."""
        entry = self._open.get(call_id)
        if entry is not None:
            entry.call = msgspec.structs.replace(entry.call, status="in_progress")
            self._emit("tool", ToolEvent("running", entry.call.view(), *self._link.stamp(_id_of(run))), run)

    def end_all(self, run: AcpRun | None) -> None:
        """The turn is over: no result of what is open will come."""
        for entry in list(self._open.values()):
            self._give_up(entry, run, NO_RESULT)

    def _within_budget(self, call: AcpCall, before: AcpCall | None) -> AcpCall:
        more = call.size - (before.size if before is not None else 0)
        return call if self._kept + more <= _MAX_KEPT else call.without_details()

    def _keep(self, entry: _OpenCall, call: AcpCall) -> None:
        self._kept += call.size - entry.call.size
        entry.call = call

    def _give_up(self, entry: _OpenCall, run: AcpRun | None, why: str) -> None:
        entry.call = msgspec.structs.replace(entry.call, status="failed")
        self._end(entry, run, why)

    def _start(self, call: AcpCall, run: AcpRun | None) -> _OpenCall:
        if len(self._open) >= _MAX_OPEN:  # of an agent that never says how its calls end
            self._give_up(next(iter(self._open.values())), run, _CROWDED_OUT)
        entry = self._open[call.id] = _OpenCall(call, self._link.now)
        self._kept += call.size
        if run is not None:
            run.break_text()
        view = call.view(state="RUNNING" if call.is_over else None)
        self._emit("tool", tool_event("start", view, self._link.stamp(_id_of(run))), run)
        return entry

    def _end(self, entry: _OpenCall, run: AcpRun | None, said: str | None) -> None:
        call = entry.call
        del self._open[call.id]
        self._kept -= call.size
        self._ended[call.id] = _id_of(run)
        if len(self._ended) > _MAX_ENDED:
            self._ended.pop(next(iter(self._ended)))
        view = call.view(round((self._link.now - entry.started) * 1000, 3))
        run_id = _id_of(run)
        if call.status == "failed":
            self._emit_tool("error", view, run, said or "the agent gave no reason")
        else:
            for path in call.paths:
                stamped_run, seq = self._link.stamp(run_id)
                self._emit("file_changed", FileChanged(path=path, run_id=stamped_run, seq=seq), run)
        stamped_run, seq = self._link.stamp(run_id)
        self._emit("tool_executed", ToolExecuted(call=view, run_id=stamped_run, seq=seq), run)
        self._emit_tool("end", view, run, said)

    def _emit_tool(
        self, phase: Literal["end", "error"], view: ToolCallView, run: AcpRun | None, said: str | None
    ) -> None:
        self._emit("tool", tool_event(phase, view, self._link.stamp(_id_of(run)), said), run)

    def _emit(self, name: str, data: msgspec.Struct, run: AcpRun | None) -> None:
        self._link.emit(name, data)
        if run is not None:
            run.record_event(name, data)


def _id_of(run: AcpRun | None) -> str | None:
    return run.id if run else None


def _shows_change(before: AcpCall, after: AcpCall) -> bool:
    return (before.view(), before.output) != (after.view(), after.output)
