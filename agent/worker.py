"""The parts of a worker, shared by its methods; how it takes up a conversation and closes it.

A call that a former worker left open gets exactly one result. One whose end is on record keeps its result: only the
message with the results was lost. Any other is sealed with an error that says how far it had come.
"""

import time
from collections.abc import Iterable, Mapping

import msgspec

from agent.compactor import Compactor
from agent.context import ProjectContext
from agent.conversation import Conversation, SessionStore
from agent.hooks import SessionInfo
from agent.limits import WorkerLimits
from agent.models.catalogue import ModelCache
from agent.output import WorkerOutput
from agent.results import CallResult, failure
from agent.runs import ActiveRunTracker, InputQueue
from agent.tool_call import is_final, new_record, with_result
from agent.toolbox import Toolbox
from agent.tools.todo import TodoTool, latest_todos
from wire.entries import CallRecord, CallState, ExecRecord, ToolResultBlock, ToolUseBlock, TranscriptMessage
from wire.messages import AgentStatus
from wire.transcript_repair import TranscriptError


class AgentWorker(msgspec.Struct, eq=False, kw_only=True):
    """One worker's state."""

    toolbox: Toolbox
    conversation: Conversation
    store: SessionStore
    project_context: ProjectContext
    models: ModelCache
    todos: TodoTool
    output: WorkerOutput
    limits: WorkerLimits
    input_queue: InputQueue
    runs: ActiveRunTracker
    compactor: Compactor

    async def start(self) -> None:
        """Open the first conversation. Raises TranscriptError."""
        await self._seal_open_calls()
        await self.toolbox.hooks.notify("session_start", self._info("start"))

    async def close(self) -> None:
        """Close the conversation, so that another worker can open it."""
        await self.toolbox.hooks.notify("session_end", self._info("shutdown"))
        self.conversation.close()
        await self.models.aclose()

    async def switch_conversation(self, conversation: Conversation, reason: str) -> list[str]:
        """Make this the worker's conversation; nothing that waited for the former one may reach it.

        Returns the ids of the calls that were sealed.
        """
        sealed: list[str] = []
        if conversation is not self.conversation:
            await self.toolbox.hooks.notify("session_end", self._info(reason))
            self.conversation.close()
            self.conversation = conversation
            self.output.continue_above(conversation.last_seq)
            self.toolbox.sandbox.files.clear()
            sealed = await self._seal_open_calls()
            await self.toolbox.hooks.notify("session_start", self._info(reason))
        self.input_queue.clear()
        return sealed

    def record_command(self, scope_key: str, record: ExecRecord) -> None:
        """Write down the state of a background command of the current conversation; others are ignored."""
        if scope_key != self.conversation.header.id:
            return
        try:
            self.conversation.record_command(record)
        except TranscriptError as exc:
            message = f"the state of command {record.id} could not be written down: {exc}"
            self.output.emit("error", {"severity": "warn", "phase": "tool", "message": message})

    def status(self) -> AgentStatus:
        """The status for ``get_state``."""
        run, pending = self.runs.active, self.toolbox.approvals.pending()
        latest = self.runs.latest
        return AgentStatus(
            state="READY" if run is None else "PAUSED" if pending else "WORKING",
            step_count=0 if latest is None else latest.step_count,
            last_safe_index=self.conversation.safe_index,
            cursor=self.output.last_seq,
            bookmark=self.conversation.bookmark,
            pending_permissions=[call.id for call in pending],
            breakpoint="READY" if run is None else run.breakpoint(),
        )

    async def _seal_open_calls(self) -> list[str]:
        """Seal open tool calls; restore the task list and background commands. Returns the ids of sealed calls."""
        conversation = self.conversation
        plan = plan_sealing(conversation.open_calls.values(), conversation.records, time.time())
        if plan is not None:
            for record in plan.records:
                conversation.record_call(record)
            conversation.add(plan.message)
            await conversation.sync()
            self.toolbox.approvals.mark_sealed(plan.sealed)
            self.output.emit("agent_resumed", {"strategy": "seal", "sealed": plan.sealed})
        self.todos.todos = latest_todos(conversation.messages)
        commands = conversation.commands.values()
        self.toolbox.sandbox.processes.restore(commands, scope_key=conversation.header.id)
        return [] if plan is None else plan.sealed

    def _info(self, reason: str) -> SessionInfo:
        return SessionInfo(self.conversation.header.id, self.conversation.session_file, reason)


class SealingPlan(msgspec.Struct, frozen=True):
    """What to write: ``records``, then ``message`` with all results in call order; ``sealed``: ids of cut calls."""

    records: list[CallRecord]
    message: TranscriptMessage
    sealed: list[str]


def plan_sealing(
    open_calls: Iterable[ToolUseBlock], records: Mapping[str, CallRecord], now: float
) -> SealingPlan | None:
    """What to write when a conversation is resumed; None when there is nothing to seal.

    ``records`` are the last ones by call id; a call without one had not begun. ``now`` is Unix time. The client's calls
    stay open: its next prompt brings their results.
    """
    found = [records.get(call.id) or new_record(call, now) for call in open_calls]
    found = [_normalized(record) for record in found if is_final(record.state) or not record.client]
    if not found:
        return None
    ends = [record if is_final(record.state) else _sealed(record, now) for record in found]
    results = [ToolResultBlock(end.id, end.result, is_error=end.error is not None, images=end.images) for end in ends]
    return SealingPlan(
        records=[end for end, record in zip(ends, found, strict=True) if end is not record],
        message=TranscriptMessage("user", [*results], origin="tool"),
        sealed=[end.id for end in ends if end.state is CallState.SEALED],
    )


def _normalized(record: CallRecord) -> CallRecord:
    """The record; a final one without a result counts as running."""
    if is_final(record.state) and not isinstance(record.result, dict):
        return msgspec.structs.replace(record, state=CallState.RUNNING)
    return record


def _sealed(record: CallRecord, now: float) -> CallRecord:
    return with_result(record, CallState.SEALED, now, _sealed_result(record), note="the session was resumed")


def _sealed_result(record: CallRecord) -> CallResult:
    again = "It had no effects: call it again if it is still needed"
    approval = record.approval
    match record.state, approval and approval.decision:
        case CallState.RUNNING, _:
            advice = "Check for side effects before calling it again: it may have run in part or to its end."
            return _sealed_failure(record, "was running when", advice)
        case CallState.AWAITING_APPROVAL, "allow":
            return _sealed_failure(record, "was approved and had not begun when", f"{again}.")
        case CallState.AWAITING_APPROVAL, "deny":
            return _sealed_failure(record, "was denied by the user, and then", "Do not repeat the call as it is.")
        case CallState.AWAITING_APPROVAL, _:
            return _sealed_failure(record, "was waiting for approval when", f"{again}; a person will be asked again.")
        case _:
            return _sealed_failure(record, "had not begun when", f"{again}.")


def _sealed_failure(record: CallRecord, how: str, advice: str) -> CallResult:
    approval = record.approval
    denied = approval is not None and approval.decision == "deny"
    return failure(
        f"The call of {record.name} {how} the session was interrupted; sealed automatically.",
        "denied" if denied else "aborted",
        retryable=not denied,
        note=approval.note if approval is not None else None,
        recommendations=[advice],
        _autoSealed=True,
    )
