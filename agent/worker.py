"""The parts of a worker, shared by its methods; how it takes up a conversation and closes it."""

import time

import msgspec

from agent.compactor import Compactor
from agent.context import ProjectContext
from agent.conversation import Conversation, SessionStore
from agent.hooks import SessionInfo
from agent.limits import WorkerLimits
from agent.models.catalogue import ModelCache
from agent.output import WorkerOutput
from agent.runs import ActiveRunTracker, InputQueue
from agent.sealing import plan_sealing
from agent.toolbox import Toolbox
from agent.tools.todo import TodoTool
from wire.entries import ExecRecord
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
        plan = plan_sealing(conversation.messages, conversation.records, time.time())
        if plan is not None:
            for record in plan.records:
                conversation.record_call(record)
            conversation.add(plan.message)
            await conversation.sync()
            self.toolbox.approvals.mark_sealed(plan.sealed)
            self.output.emit("agent_resumed", {"strategy": "seal", "sealed": plan.sealed})
        self.todos.resume(conversation.messages)
        session_id = conversation.header.id
        commands = conversation.commands.values()
        self.toolbox.sandbox.processes.restore(commands, scope_key=session_id, session_key=session_id)
        return [] if plan is None else plan.sealed

    def _info(self, reason: str) -> SessionInfo:
        return SessionInfo(self.conversation.header.id, self.conversation.session_file, reason)
