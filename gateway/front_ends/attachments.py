"""All attachments of front ends to session workers, and the profiles that those workers need."""

import hashlib
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import trio

from errors import PoolError, UsageError, WorkerError
from gateway.caller import Caller
from gateway.front_ends.attachment import Attachment
from gateway.front_ends.lookup import ConversationLookup
from gateway.front_ends.protocol import FRONT_ENDS, raw_object
from gateway.front_ends.session import AttachedSession, FrontEndServices
from gateway.requests import AttachRequest, SendRequest
from pool import Lease
from pool.stimuli import SessionKnown, StopWorker
from profiles import DIALECTS, AgentSettings, CapabilityProfile, build_profile
from profiles.command_line import AgentFlags, read_flags
from profiles.profile import with_arguments

_logger = logging.getLogger("pool.attachments")
_MAX_UNUSED_SESSIONS = 1_000
"""Sessions without a front end that keep their profile and settings."""
_MAX_ATTACHMENTS = 512
_OWN_KEY_PREFIX = "attach-"
"""Prefix of session keys that are made for front ends that name none."""


class AttachView(msgspec.Struct, frozen=True, kw_only=True):
    """What ``attach.open`` answers. ``greeting``: the program's first lines; ``words``: its stderr so far."""

    attachment: str
    session: str
    dialect: str
    worker: str
    greeting: list[msgspec.Raw]
    words: str


class Attachments:
    """The attachments of all sessions."""

    def __init__(self, services: FrontEndServices, data_dir: Path, start_soon: Callable[..., None]) -> None:
        self._services = services
        self._pool = services.pool
        self._sessions = services.sessions
        self._profile_cache = services.profile_cache
        self._lookup = ConversationLookup(services.sessions, services.pool.owner_of, data_dir)
        self._nursery_start = start_soon
        self._is_closed = False
        self._attached_sessions: OrderedDict[str, AttachedSession] = OrderedDict()
        self._open: dict[str, Attachment] = {}

    def close(self) -> None:
        """The gateway ends: what answers still come, nothing begins any more. The pool ends what is held."""
        self._is_closed = True

    def drain_owners(self) -> None:
        """Have front ends with a worker of their own give it back once they are answered: the supervisor stops."""
        for attachment in self._open.values():
            if attachment.owns_worker:
                self._start_soon(attachment.drain)

    def unanswered_sessions(self) -> list[str]:
        """Sessions in which a front end with a worker of its own waits for an answer."""
        return [each.session for each in self._open.values() if each.owns_worker and each.has_open_request]

    def _start_soon(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a task that outlives the request, as long as the gateway runs."""
        if not self._is_closed:
            self._nursery_start(task, *args)

    def attended(self, session: str) -> bool:
        """Whether a front end is attached to the session, and so receives its worker's questions."""
        port = self._attached_sessions.get(session)
        return port is not None and bool(port.front_ends)

    # --- the methods --------------------------------------------------------------------------------------------------

    async def open(self, request: AttachRequest, caller: Caller) -> AttachView:
        """Attach to a session; answers once its worker is there. Raises what ``Pool.acquire`` raises, UsageError."""
        if len(self._open) >= _MAX_ATTACHMENTS:
            raise UsageError(f"{_MAX_ATTACHMENTS} front ends are attached, which is the limit")
        port, flags = await self._resolve_session(request)
        attachment = Attachment(
            port.session,
            port.protocol,
            caller,
            self._open.values(),
            owns_worker=flags.no_session,
            handle_urgent=port.handle_urgent,
            dispatch=port.dispatch,
        )
        begun = _AttachStart()
        caller.start(lambda: self._serve(attachment, port, begun))
        await begun.decided.wait()
        if begun.lease is None:
            raise begun.error or UsageError("the front end left before it was attached")
        if flags.name is not None:
            await port.call(raw_object(type="set_session_name", name=flags.name))
        greeting = [msgspec.Raw(line) for line in port.protocol.startup_lines(begun.lease.ready)]
        return AttachView(
            attachment=attachment.id,
            session=port.session,
            dialect=port.profile.dialect,
            worker=begun.lease.worker_id,
            greeting=greeting,
            words=begun.lease.startup_stderr,
        )

    async def send(self, request: SendRequest, caller: Caller) -> None:
        """Take a line of a front end; returns once it was handed on."""
        line = None if request.line is msgspec.UNSET else request.line
        await self._find(request.attachment, caller).receive_line(line, request.text, request.refusal)

    async def finish(self, attachment_id: str, caller: Caller) -> None:
        """Nothing more comes from the front end; returns when it has its answers, and has ended."""
        attachment = self._find(attachment_id, caller)
        await attachment.finish()
        attachment.detach()

    def _find(self, attachment_id: str, caller: Caller) -> Attachment:
        attachment = self._open.get(attachment_id)
        if attachment is None or attachment.principal != caller.principal:
            raise UsageError(f"there is no attachment {attachment_id!r}; its connection has ended")
        return attachment

    # --- one attachment's life ----------------------------------------------------------------------------------------

    async def _serve(self, attachment: Attachment, port: AttachedSession, begun: "_AttachStart") -> None:
        try:
            lease = await port.lease()
        except PoolError as exc:
            begun.error = exc
            begun.decided.set()
            self._remove_unused(port)
            return
        self._open[attachment.id] = attachment
        port.front_ends.append(attachment)
        self._pool.listen_raw(port.session, port)
        self._sessions.record_transcript(port.session)
        begun.lease = lease
        begun.decided.set()
        try:
            if attachment.owns_worker:
                await self._run_on_own_worker(attachment, lease)
            else:
                self._pool.release_now(lease)
                await attachment.run()
        finally:
            attachment.end(WorkerError("the attachment has ended"))
            port.front_ends.remove(attachment)
            del self._open[attachment.id]
            if attachment.owns_worker:
                self._attached_sessions.pop(port.session, None)
                self._release_session(port)
                self._start_soon(self._discard, port, lease)
            self._trim()

    async def _run_on_own_worker(self, attachment: Attachment, lease: Lease) -> None:
        """A conversation that is not kept ends with its worker."""

        async def watch() -> None:
            attachment.end(await lease.wait_ended())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await attachment.run()
            nursery.cancel_scope.cancel()

    async def _discard(self, port: AttachedSession, lease: Lease) -> None:
        """Release the worker of a conversation that is not kept, and delete the session."""
        session = port.session
        port.release_idle()
        is_spent = not DIALECTS[port.profile.dialect].reusable_unsaved
        has_open_request = port.hold.is_used  # which would go on without its front end
        if (is_spent or has_open_request) and lease.is_valid:
            self._pool.submit(StopWorker(lease.worker_id))
            await lease.wait_ended()
        self._pool.release_now(lease)
        if self._sessions.get(session) is None:
            return
        try:
            await self._services.session_admin.delete(session)
        except PoolError as exc:
            _logger.warning("session %s, which was not to be kept, is still there: %s", session, exc)

    def _remove_unused(self, port: AttachedSession) -> None:
        if not port.front_ends and self._attached_sessions.get(port.session) is port:
            del self._attached_sessions[port.session]
            self._release_session(port)

    def _trim(self) -> None:
        unused = [port for port in self._attached_sessions.values() if not port.front_ends]
        for port in unused[: max(0, len(unused) - _MAX_UNUSED_SESSIONS)]:
            self._remove_unused(port)

    def _release_session(self, port: AttachedSession) -> None:
        self._pool.listen_raw(port.session, None)
        self._profile_cache.overrides.pop(port.session, None)

    # --- whose session, which worker ----------------------------------------------------------------------------------

    async def _resolve_session(self, request: AttachRequest) -> tuple[AttachedSession, AgentFlags]:
        parts = self._profile_cache.parts
        asked = request.agent or parts.router.default_agent
        definition = parts.profiles.agents.get(asked, AgentSettings())
        named = await self._lookup.find(request, read_flags(definition, request.arguments), asked, definition)
        name = named.session or f"{_OWN_KEY_PREFIX}{_directory_hash(request)}-{uuid.uuid4().hex[:12]}"
        session, agent, role = self._sessions.resolve(
            name, request.agent, request.role, default=parts.router.default_agent
        )
        self._profile_cache.check(agent, role)
        if parts.profiles.dialect_of(agent) not in FRONT_ENDS:
            raise UsageError(f"the agent {agent} has no front end of its own here; use: pool acp --agent {agent}")
        flags = read_flags(parts.profiles.agents.get(agent, AgentSettings()), request.arguments)
        if flags.name is not None and not flags.definition.traits.names_conversations:
            raise UsageError("--name: conversations of this agent have no names; leave it out")
        if flags.resume_latest and named.session is None and named.file is None:
            session = self._latest_session(request) or session
        port = self._attached_sessions.get(session)
        if port is None or not (flags.keeps_profile or port.front_ends):
            profile = await self._profile(request, session, agent, role, flags)
            if named.file is not None and self._pool.owner_of(named.file) != named.session:
                return await self._resolve_session(request)  # another session has taken it over meanwhile
            if port is None or not port.front_ends:
                port = self._create_session(session, profile, agent, role)
        if port.front_ends and not flags.keeps_profile:
            self._check_same_profile(port, await self._profile(request, session, agent, role, flags))
        if named.file is not None and named.session is None:
            self._pool.submit(SessionKnown(session, named.file))
        return port, flags

    def _create_session(self, session: str, profile: CapabilityProfile, agent: str, role: str) -> AttachedSession:
        self._sessions.ensure(session, agent, role, source=None, run=None)
        port = self._attached_sessions[session] = AttachedSession(
            session,
            profile,
            FRONT_ENDS[profile.dialect],
            self._services,
            start_soon=self._start_soon,
            release_transcript=self._release_transcript,
        )
        self._profile_cache.overrides[session] = profile
        self._pool.listen_raw(session, port)
        return port

    async def _profile(
        self, request: AttachRequest, session: str, agent: str, role: str, flags: AgentFlags
    ) -> CapabilityProfile:
        """A known session's own profile if nothing else is asked for; otherwise that of the command line."""
        entry = self._sessions.get(session)
        if entry is not None and flags.keeps_profile and not session.startswith(_OWN_KEY_PREFIX):
            return await self._profile_cache.for_session(entry)
        profiles = self._profile_cache.parts.profiles
        asked = request.env if flags.definition.traits.front_end_env else {}
        env = {**asked, **flags.definition.env}
        if flags.definition.agent_dir is not None:
            env.pop("PI_CODING_AGENT_DIR", None)
        definition = msgspec.structs.replace(flags.definition, env=env)
        changed = msgspec.structs.replace(profiles, agents={**profiles.agents, agent: definition})
        profile = build_profile(changed, agent, role, request.cwd)
        return with_arguments(profile, flags.arguments) if flags.arguments else profile

    def _check_same_profile(self, port: AttachedSession, wanted: CapabilityProfile) -> None:
        if port.profile.signature != wanted.signature:
            raise UsageError(
                f"session {port.session} is attached with other arguments; leave yours out to share it as it is, or "
                "take another session",
                session=port.session,
            )

    def _latest_session(self, request: AttachRequest) -> str | None:
        """The session that was last attached to from this directory."""
        prefix = f"{_OWN_KEY_PREFIX}{_directory_hash(request)}-"
        mine = [entry for entry in self._sessions if entry.key.startswith(prefix) and entry.transcript is not None]
        return max(mine, key=lambda entry: entry.updated_at).key if mine else None

    async def _release_transcript(self, session: str) -> bool:
        """Forget a session made for a front end, so that another one can use its transcript.

        False if it was not made for one, has a front end attached, or is busy. Raises PoolError if its worker does not
        close the transcript.
        """
        port = self._attached_sessions.get(session)
        if (
            not session.startswith(_OWN_KEY_PREFIX)
            or self.attended(session)
            or self._services.scheduler.is_busy(session)
        ):
            return False
        if port is not None:
            port.release_idle()
        if not self._pool.is_quiescent(session):
            return False
        await self._services.session_admin.release_transcript(session)
        if port is not None:
            self._remove_unused(port)
        return True


class _AttachStart:
    """How the beginning of an attachment went."""

    def __init__(self) -> None:
        self.decided = trio.Event()
        self.lease: Lease | None = None
        self.error: PoolError | None = None


def _directory_hash(request: AttachRequest) -> str:
    """Stands for the directory and the agent of conversations that have no name."""
    return hashlib.sha256(f"{request.agent}\0{request.cwd}".encode()).hexdigest()[:8]
