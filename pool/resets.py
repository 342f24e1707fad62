"""Puts conversations into workers for the shell, and has what is seen of their programs on the way recorded."""

import secrets
from collections.abc import Callable
from pathlib import Path

import trio

from errors import PoolError, ProtocolViolation, WorkerError, WorkerStartFailed
from pool.agent_records import AgentRecords
from pool.declared_servers import DeclaredServers
from pool.machine import PoolMachine
from pool.stimuli import AgentLearned, FailureKind, Reset, Stimulus, WorkerFailed, WorkerResetDone
from pool.worker_interface import EventSink, LoadedConversation, PoolWorker, is_disk_full
from pool.worker_output import RawListeners
from pool.worker_task import WorkerTask
from profiles import DIALECTS
from rpc.acp.new_id import ID_REUSED
from rpc.acp.requests import AcpProbeResult
from rpc.acp.sessions import LOAD_REFUSED, PROBE_SECONDS
from wire.messages import SessionResult

_SLOWEST = 1024 * 1024  # bytes a second of a transcript that is on its way to a node


class ConversationResets:
    """Performs the machine's Resets; ``apply`` takes what came of them."""

    def __init__(
        self,
        machine: PoolMachine,
        listeners: RawListeners,
        records: AgentRecords,
        servers: DeclaredServers,
        *,
        on_event: EventSink,
        apply: Callable[[Stimulus], None],
    ) -> None:
        self._machine = machine
        self._listeners = listeners
        self._records = records
        self._servers = servers
        self._on_event = on_event
        self._apply = apply

    async def perform(self, action: Reset, life: WorkerTask) -> WorkerFailed | WorkerResetDone:
        """Put the conversation into the worker; what came of that."""
        failure = FailureKind.RESET if action.resume_from is None else FailureKind.RESUME
        limit = max(self._machine.settings().reset_timeout, DIALECTS[life.profile.dialect].reset_seconds)
        if life.worker.node and action.resume_from is not None:
            limit += carrying_seconds(Path(action.resume_from))
        try:
            with trio.fail_after(limit):
                servers = self._servers.of(action.session)
                honest = self._records.is_honest(life.profile.agent, life.worker.client.ready)
                held = await life.load(action, self._machine.belongs_to_other, servers, honest=honest)
                await self._listeners.restore(action.session, life)
        except trio.TooSlowError:
            words = f"worker {life.id} did not finish the reset within {limit:g} s"
            return WorkerFailed(life.id, failure, WorkerError(words, worker=life.id))
        except PoolError as exc:
            if exc.details.get("worker_code") == LOAD_REFUSED:
                self._note(life, "refed", "error")
            return WorkerFailed(life.id, _kind_of(exc, failure, life.profile.dialect), exc)
        life.conversation = LoadedConversation(action.session, held)
        strategy = "seal" if held.sealed else held.strategy
        if strategy:  # no turn runs, in which the worker's own event would be heard
            self._note(life, strategy, held.cause or None)
            facts = {"session": action.session, "worker": life.id, "strategy": strategy}
            more = {"cause": held.cause, "error": held.error, "sealed": held.sealed}
            self._on_event("agent_resumed", facts | {name: value for name, value in more.items() if value})
        self._listeners.connect(action.session, life)
        return WorkerResetDone(life.id, action.session, held.session_file)

    def check_owner(self, session: str, held: SessionResult) -> None:
        """Raises ProtocolViolation where what a worker holds now is the conversation of another session."""
        if held.session_file is not None and self._machine.belongs_to_other(session, held.session_file):
            raise ProtocolViolation("the worker has gone on to the conversation of another session", session=session)

    def _note(self, life: WorkerTask, strategy: str, cause: str | None) -> None:
        self._records.note_resume(life.profile.agent, life.worker.client.ready, strategy, cause)
        self.tell_machine(life.profile.agent)

    def tell_machine(self, agent: str) -> None:
        """What the machine has to know of an agent, after something was learned of it."""
        self._apply(AgentLearned(agent, forgets=self._records.forgets(agent)))

    async def try_out(self, agent: str, worker: PoolWorker) -> None:
        """Ask a new worker for a conversation that it cannot have, where that was never asked of this version.

        It holds no conversation yet that the answer could spoil. Raises WorkerStartFailed where none comes: the first
        user's request would hang as well. No later worker is asked then.
        """
        ready = worker.client.ready
        if not self._records.wants_probe(agent, ready):
            return
        try:
            found = await worker.client.request_as(
                AcpProbeResult, "probe_resume", {"nonce": secrets.token_hex(16)}, timeout=2 * PROBE_SECONDS
            )
        except PoolError as exc:
            words = f"worker {worker.id} did not start: asked to resume a conversation that it cannot have: {exc}"
            raise WorkerStartFailed(words, worker=worker.id) from exc
        if found.honest is not None:
            self._records.note_probe(agent, ready, honest=found.honest)


def carrying_seconds(transcript: Path) -> float:
    """How long a node may need beside its reset until it has a transcript: both sides read it, and it may be sent."""
    try:
        return transcript.stat().st_size / _SLOWEST
    except (OSError, ValueError):
        return 0.0  # its resume says what is wrong with it


def _kind_of(error: PoolError, failure: FailureKind, dialect: str) -> FailureKind:
    """What a reset has failed with; ``failure`` where it was the worker's own fault.

    A program that names its conversations gives another one's name again in each process.
    """
    if is_disk_full(error):
        return FailureKind.DISK_FULL
    is_reused = error.details.get("worker_code") == ID_REUSED and DIALECTS[dialect].keeps_journal
    return FailureKind.UNFIT if is_reused else failure
