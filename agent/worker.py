"""What a worker is made of, shared by its methods; and how it takes up a conversation and gives it back."""

import time

import msgspec

from agent.compactor import Compactor
from agent.context import Knowledge
from agent.conversation import Conversation, SessionStore
from agent.hook_types import SessionInfo
from agent.limits import Limits
from agent.models.catalogue import ModelShelf
from agent.output import Output
from agent.runs import Inbox, RunRegistry
from agent.sealing import plan_sealing
from agent.toolbox import Brain
from agent.tools.todo import TodoList
from wire.entries import ExecRecord
from wire.messages import AgentStatus
from wire.transcript_repair import TranscriptError


class Worker(msgspec.Struct, eq=False, kw_only=True):
    """One worker's state."""

    brain: Brain
    conversation: Conversation
    store: SessionStore
    knowledge: Knowledge
    models: ModelShelf
    todos: TodoList
    output: Output
    limits: Limits
    inbox: Inbox
    runs: RunRegistry
    compactor: Compactor

    async def begin(self) -> None:
        """Take up the first conversation. Raises TranscriptError."""
        await self._seal()
        await self.brain.hooks.session_start(self._info("start"))

    async def end(self) -> None:
        """Give the conversation back, for another worker to take up."""
        await self.brain.hooks.session_end(self._info("shutdown"))
        self.conversation.close()
        await self.models.aclose()

    async def hold(self, conversation: Conversation, reason: str) -> list[str]:
        """Make this the worker's conversation; nothing that waited for the former one may reach it.

        Returns the ids of the calls that were sealed.
        """
        sealed: list[str] = []
        if conversation is not self.conversation:
            await self.brain.hooks.session_end(self._info(reason))
            self.conversation.close()
            self.conversation = conversation
            self.output.go_on_above(conversation.last_seq)
            self.brain.files.forget_all()
            sealed = await self._seal()
            await self.brain.hooks.session_start(self._info(reason))
        self.inbox.clear()
        return sealed

    def note_command(self, scope_key: str, record: ExecRecord) -> None:
        """Write down the state of a background command of the current conversation; others are ignored."""
        if scope_key != self.conversation.header.id:
            return
        try:
            self.conversation.note_command(record)
        except TranscriptError as exc:
            message = f"the state of command {record.id} could not be written down: {exc}"
            self.output.event("error", {"severity": "warn", "phase": "tool", "message": message})

    def status(self) -> AgentStatus:
        """Where it stands."""
        run, pending = self.runs.active, self.brain.approvals.pending()
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

    async def _seal(self) -> list[str]:
        """Give every tool call that a former worker left open its one result; go on with its list of things to do.

        Its background commands are restored.
        Returns the ids of those that had no end.
        """
        conversation = self.conversation
        plan = plan_sealing(conversation.messages, conversation.records, time.time())
        if plan is not None:
            for record in plan.records:
                conversation.note(record)
            conversation.add(plan.message)
            await conversation.sync()
            self.brain.approvals.note_sealed(plan.sealed)
            self.output.event("agent_resumed", {"strategy": "seal", "sealed": plan.sealed})
        self.todos.resume(conversation.messages)
        session_id = conversation.header.id
        commands = conversation.commands.values()
        self.brain.processes.restore(commands, scope_key=session_id, session_key=session_id)
        return [] if plan is None else plan.sealed

    def _info(self, reason: str) -> SessionInfo:
        return SessionInfo(self.conversation.header.id, self.conversation.session_file, reason)
