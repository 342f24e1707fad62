"""A worker as the pool's shell sees it, and where one comes from.

The interface names no pid, file or signal as a duty: a worker on another machine fits it as well. What a local process
can tell besides (pid, memory, whether it was stopped by a signal) is optional.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

import msgspec
import trio

from errors import PoolError, ProtocolViolation, ResumeFailed, WorkerRefused
from pool.stimuli import Reset
from profiles.profile import CapabilityProfile, SoftArgs, server_secrets
from rpc.acp.new_id import ID_REUSED
from rpc.cgroup import OrphanGuarantee
from rpc.client import RpcClient
from rpc.transport import MAX_REASON_CHARS, ProcessFacts
from wire.messages import SessionResult, StateResult

EventSink = Callable[[str, dict[str, Any]], None]
"""Called with an event's name and facts; must neither block nor raise."""


def ignore_event(event: str, data: dict[str, Any]) -> None:
    """The default event sink."""


_MAX_SEALED, _MAX_ID = 1_000, 256
"""Limits on the sealed calls that a worker reports: number, and characters of each name."""


class LoadedConversation(NamedTuple):
    """A session's conversation, as the worker holds it."""

    session: str
    result: SessionResult


class PoolWorker(Protocol):
    """One running worker. Its client is the only way to talk to it."""

    @property
    def id(self) -> str:
        """The machine's name for it."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id, on the machine that it runs on."""
        ...

    @property
    def node(self) -> str:
        """The node that it runs on; "" is this machine."""
        ...

    @property
    def client(self) -> RpcClient:
        """Requests and events."""
        ...

    def facts(self) -> ProcessFacts:
        """Measure it now; cheap enough for a status call."""
        ...

    def stderr_tail(self) -> str:
        """The last text that it wrote to stderr, secrets hidden."""
        ...

    def on_stderr(self, listener: Callable[[bytes], None] | None) -> None:
        """Pass the lines that it writes to stderr from now on, without secrets, to one listener; None removes it."""
        ...

    def explain_end(self, reason: str) -> None:
        """Why its end was requested, for its log."""
        ...

    known_transcripts: set[str]
    """The transcripts that exist; none of them may be missing later."""

    def record_transcript(self, transcript: str) -> None:
        """A turn of that conversation has ended: a transcript that exists now must not be missing later."""
        ...

    async def keep(self, transcript: str | None) -> None:
        """The conversation that it has begun is that of this file (None: of no file); comes before its next prompt.

        Raises PoolError where the file cannot be kept as the conversation goes on.
        """
        ...

    async def prepare_resume(self, transcript: str) -> bool:
        """Make a transcript fit to be resumed (repair a torn last line). False: none yet; start a new one.

        Raises ResumeFailed when it is damaged beyond mending, cannot be read, or was there once and is gone.
        """
        ...

    async def resume_params(self, transcript: str, *, honest: bool) -> dict[str, Any]:
        """The parameters of ``switch_session`` for a transcript that is fit to be resumed. Raises ResumeFailed.

        ``honest``: the program was seen to refuse a conversation that it does not have.
        """
        ...

    async def fetch(self, path: str, limit: int) -> bytes:
        """At most the first ``limit`` bytes of a file in its working directory; see ``rpc.transport.NodeProcess``."""
        ...


class WorkerLauncher(Protocol):
    """Where workers come from."""

    @property
    def known_transcripts(self) -> set[str]:
        """The transcripts that exist, of all its workers; none of them may be missing later. May be added to."""
        ...

    def open(
        self, worker_id: str, profile: CapabilityProfile, *, force: trio.Event, near: str = ""
    ) -> AbstractAsyncContextManager[PoolWorker]:
        """Start a worker; on leaving the block it is gone, with all its descendants, and reaped.

        Called in the step that decided the start, so that its place can be kept for it; raises nothing then, and is
        always entered. ``near``: the node to prefer, see ``pool.stimuli.Spawn``. Setting ``force`` skips the polite
        rungs, also of a stop under way. Raises WorkerStartFailed on entering.
        """
        ...

    def guarantee(self) -> OrphanGuarantee:
        """How sure it is that no descendant of a worker survives it."""
        ...


async def load_conversation(
    worker: PoolWorker,
    wanted: Reset,
    is_anothers: Callable[[str, str], bool],
    has_open: str | None = None,
    servers: Sequence[dict[str, Any]] = (),
    *,
    honest: bool = False,
) -> SessionResult:
    """Give the worker the conversation of a transcript, or a new one (None, or there is nothing in it yet).

    ``is_anothers(session, file)`` tells whether it holds another session's: no worker may call that a new one.
    ``has_open``: the transcript of the conversation it was given last. A worker that had no room to begin another one
    still has it open and locked, so it is not repaired then.
    ``servers``: the MCP servers declared for the conversation; nothing may show what of them is secret.
    ``honest``: see ``PoolWorker.resume_params``.
    Returns what it holds now, kept. Raises WorkerError, ResumeFailed.
    """
    transcript = wanted.resume_from
    more = {"mcp_servers": servers} if servers else {}
    worker.client.mask.hide_also(server_secrets(servers))
    if transcript is None or (transcript != has_open and not await worker.prepare_resume(transcript)):
        held = await _initial_conversation(worker.client) if wanted.is_fresh and not servers else None
        if held is None or held.session_file is None or is_anothers(wanted.session, held.session_file):
            held = await _begin_conversation(worker.client, more)
        if held.session_file is not None and is_anothers(wanted.session, held.session_file):
            program = (worker.client.ready and worker.client.ready.agent) or "the worker"
            words = f"{program} calls the conversation of another session a new one; each must have an id of its own"
            raise ProtocolViolation(redacted(worker.client, words), worker_code=ID_REUSED)
        await worker.keep(held.session_file)
        return held
    return await _resume_conversation(worker, transcript, more, honest=honest)


async def _initial_conversation(client: RpcClient) -> SessionResult | None:
    """The one that a worker has begun by itself, where nothing was said in it: extensions may refuse to leave it."""
    state = await client.request_as(StateResult, "get_state", {})
    if not state.session_id or state.message_count or state.is_streaming:
        return None
    return SessionResult(state.session_id, state.session_file)


async def _begin_conversation(client: RpcClient, params: dict[str, Any]) -> SessionResult:
    fresh = await client.request_as(SessionResult, "new_session", params, timeout=None)
    state = await client.request_as(StateResult, "get_state", {})
    if state.session_id != fresh.session_id or state.message_count:
        held = f"session {state.session_id} with {state.message_count} messages"
        raise ProtocolViolation(redacted(client, f"the worker still holds {held} after new_session"))
    return SessionResult(state.session_id, state.session_file)


async def _resume_conversation(
    worker: PoolWorker, transcript: str, more: dict[str, Any], *, honest: bool
) -> SessionResult:
    client, params = worker.client, {**await worker.resume_params(transcript, honest=honest), **more}
    resumed = await client.request_as(SessionResult, "switch_session", params, timeout=None)
    state = await client.request_as(StateResult, "get_state", {})
    if state.session_file != transcript:
        held = state.session_file or "no transcript"
        raise ResumeFailed(redacted(client, f"asked to resume {transcript}, the worker holds {held}"))
    sealed = [call[:_MAX_ID] for call in (resumed.sealed or [])[:_MAX_SEALED]]
    strategy = resumed.strategy[:_MAX_ID] if resumed.strategy else msgspec.UNSET
    error = redacted(client, resumed.error) if resumed.error else msgspec.UNSET
    return SessionResult(state.session_id, transcript, sealed or msgspec.UNSET, strategy, resumed.cause, error)


_FULL_DISK = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)


def is_disk_full(error: PoolError) -> bool:
    """Whether a worker has refused because there is no room; each program has its own words around the system's."""
    return isinstance(error, WorkerRefused) and _FULL_DISK.search(str(error)) is not None


def redacted(client: RpcClient, words: str) -> str:
    """What an error may repeat of a worker's words."""
    return client.mask.prefix(words, MAX_REASON_CHARS)


async def reconcile(client: RpcClient, soft: SoftArgs) -> None:
    """Bring the soft arguments to what a session asks for. Raises WorkerError in the worker's own words.

    A model without a provider is one of the provider that the worker has now.
    """
    if soft.model is not None:
        provider = soft.provider or (await client.request_as(StateResult, "get_state", {})).provider
        await client.request("set_model", {"provider": provider, "model": soft.model})
    if soft.thinking is not None:
        await client.request("set_thinking", {"level": soft.thinking})
    if soft.mode is not None:
        await client.request("set_mode", {"mode": soft.mode})
    for name, value in msgspec.json.decode(soft.options or "{}").items():
        await client.request("set_option", {"id": name, "value": value})
