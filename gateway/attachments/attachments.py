"""All attachments: who speaks with which session's worker directly, and what such a worker must be like."""

import hashlib
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import trio

from errors import PoolError, UsageError, WorkerError
from gateway.attachments.attachment import Attachment, Budget
from gateway.attachments.front_end_rules import Manners, NativeManners, PiManners, raw_object
from gateway.attachments.lookup import Naming
from gateway.attachments.session import AttachedSession
from gateway.caller import Caller
from gateway.runs.intake import Intake
from gateway.runs.requests import AttachRequest, SendRequest
from gateway.runs.run import Run
from gateway.sessions.admin import SessionDesk
from gateway.sessions.agent_profiles import ProfileShelf
from gateway.sessions.sessions import Sessions
from gateway.turns.scheduler import Conductor
from pool import Lease, Pool
from pool.stimuli import Altered, SessionKnown, StopWorker
from profiles import AgentSettings, CapabilityProfile, build_profile
from profiles.command_line import AgentFlags, read_flags, with_arguments
from rpc.passthrough import RawRequest
from wire.messages import SessionResult

_logger = logging.getLogger("pool.attachments")
_REMEMBERED = 1_000
"""Sessions that nobody is attached to any more and that keep their profile and their settings."""
_MOST = 512
_OWN = "attach-"
"""Prefix of session keys that are made for front ends that name none."""
_MANNERS: dict[str, Manners] = {"native": NativeManners(), "pi": PiManners()}


class AttachView(msgspec.Struct, frozen=True, kw_only=True):
    """What ``attach.open`` answers. ``greeting``: the program's first lines; ``words``: its stderr so far."""

    attachment: str
    session: str
    dialect: str
    worker: str
    greeting: list[msgspec.Raw]
    words: str


class Attachments:
    """Implements ``gateway.attachments.pending.AttachmentDesk``."""

    def __init__(
        self,
        *,
        pool: Pool,
        sessions: Sessions,
        session_desk: SessionDesk,
        shelf: ProfileShelf,
        conductor: Conductor,
        intake: Intake,
        data_dir: Path,
        start_soon: Callable[..., None],
    ) -> None:
        self.pool = pool
        self._nursery_start = start_soon
        self._is_closed = False
        self.accept_raw: Callable[[str, str, str, RawRequest], Run] = intake.accept_raw
        self.abort = conductor.abort
        self.lease_of = conductor.lease_of
        self.owner_of = pool.owner_of
        self.running = session_desk.running
        self._conductor = conductor
        self._sessions = sessions
        self._session_desk = session_desk
        self._shelf = shelf
        self._naming = Naming(sessions, self.owner_of, data_dir)
        self._ports: OrderedDict[str, AttachedSession] = OrderedDict()
        self._open: dict[str, Attachment] = {}
        self._budget = Budget(self._open.values)

    def close(self) -> None:
        """The gateway ends: what answers still come, nothing begins any more. The pool ends what is held."""
        self._is_closed = True

    def wind_down(self) -> None:
        """Have front ends with a worker of their own give it back once they are answered: the supervisor stops."""
        for attachment in self._open.values():
            if attachment.pinned:
                self.start_soon(attachment.wind_down)

    def asking(self) -> list[str]:
        """Sessions in which a front end with a worker of its own waits for an answer."""
        return [each.port.session for each in self._open.values() if each.pinned and each.is_asking]

    def start_soon(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """See ``AttachmentDesk.start_soon``."""
        if not self._is_closed:
            self._nursery_start(task, *args)

    def attended(self, session: str) -> bool:
        """Whether somebody is attached who sees what the session's worker asks."""
        port = self._ports.get(session)
        return port is not None and bool(port.attached)

    # --- the methods --------------------------------------------------------------------------------------------------

    async def open(self, request: AttachRequest, caller: Caller) -> AttachView:
        """Attach to a session; answers once its worker is there. Raises what ``Pool.acquire`` raises, UsageError."""
        if len(self._open) >= _MOST:
            raise UsageError(f"{_MOST} front ends are attached, which is the limit")
        port, flags = await self._port_for(request)
        attachment = Attachment(port, caller, self._budget, pinned=flags.no_session)
        begun = _Begun()
        caller.start(lambda: self._keep(attachment, begun))
        await begun.decided.wait()
        if begun.lease is None:
            raise begun.error or UsageError("the front end left before it was attached")
        if flags.name is not None:
            await port.call(raw_object(type="set_session_name", name=flags.name))
        greeting = [msgspec.Raw(line) for line in port.manners.greeting(begun.lease.ready)]
        return AttachView(
            attachment=attachment.id,
            session=port.session,
            dialect=port.profile.dialect,
            worker=begun.lease.worker_id,
            greeting=greeting,
            words=begun.lease.start_words,
        )

    async def send(self, request: SendRequest, caller: Caller) -> None:
        """Take a line of a front end; returns once it was handed on."""
        line = None if request.line is msgspec.UNSET else request.line
        await self._find(request.attachment, caller).take(line, request.text, request.refusal)

    async def finish(self, attachment_id: str, caller: Caller) -> None:
        """Nothing more comes from the front end; returns when it has its answers, and has ended."""
        attachment = self._find(attachment_id, caller)
        await attachment.finish()
        attachment.leave()

    def _find(self, attachment_id: str, caller: Caller) -> Attachment:
        attachment = self._open.get(attachment_id)
        if attachment is None or attachment.principal != caller.principal:
            raise UsageError(f"there is no attachment {attachment_id!r}; its connection has ended")
        return attachment

    # --- one attachment's life ----------------------------------------------------------------------------------------

    async def _keep(self, attachment: Attachment, begun: "_Begun") -> None:
        port = attachment.port
        try:
            lease = await port.lease()
        except PoolError as exc:
            begun.error = exc
            begun.decided.set()
            self._forget_unused(port)
            return
        self._open[attachment.id] = attachment
        port.attached.append(attachment)
        self.pool.attend(port.session, port)
        self._sessions.note_transcript(port.session)
        begun.lease = lease
        begun.decided.set()
        try:
            if attachment.pinned:
                await self._run_pinned(attachment, lease)
            else:
                self.pool.release_now(lease)
                await attachment.run()
        finally:
            attachment.end(WorkerError("the attachment has ended"))
            port.attached.remove(attachment)
            del self._open[attachment.id]
            if attachment.pinned:
                self._ports.pop(port.session, None)
                self._release_port(port)
                self.start_soon(self._discard, port, lease)
            self._trim()

    async def _run_pinned(self, attachment: Attachment, lease: Lease) -> None:
        """A conversation that is not kept ends with its worker."""

        async def watch() -> None:
            attachment.end(await lease.wait_ended())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await attachment.run()
            nursery.cancel_scope.cancel()

    async def _discard(self, port: AttachedSession, lease: Lease) -> None:
        """Nobody can go on with a conversation that was not kept."""
        session = port.session
        port.let_go()
        is_spent = port.profile.dialect == "pi"  # it would keep a second conversation on the disk
        if (is_spent or port.is_asked) and lease.is_in_force:  # an open request would continue without its front end
            self.pool.tell(StopWorker(lease.worker_id))
            await lease.wait_ended()
        self.pool.release_now(lease)
        if self._sessions.get(session) is None:
            return
        try:
            await self._session_desk.delete(session)
        except PoolError as exc:
            _logger.warning("session %s, which was not to be kept, is still there: %s", session, exc)

    def _forget_unused(self, port: AttachedSession) -> None:
        if not port.attached and self._ports.get(port.session) is port:
            del self._ports[port.session]
            self._release_port(port)

    def _trim(self) -> None:
        unused = [port for port in self._ports.values() if not port.attached]
        for port in unused[: max(0, len(unused) - _REMEMBERED)]:
            self._forget_unused(port)

    def _release_port(self, port: AttachedSession) -> None:
        self.pool.attend(port.session, None)
        self._shelf.lend(port.session, None)

    # --- whose session, which worker ----------------------------------------------------------------------------------

    async def _port_for(self, request: AttachRequest) -> tuple[AttachedSession, AgentFlags]:
        parts = self._shelf.parts
        asked = request.agent or parts.router.default_agent
        definition = parts.profiles.agents.get(asked, AgentSettings())
        named = await self._naming.find(request, read_flags(definition, request.arguments), asked, definition)
        name = named.session or f"{_OWN}{_place(request)}-{uuid.uuid4().hex[:12]}"
        session, agent, role = self._sessions.whose(
            name, request.agent, request.role, default=parts.router.default_agent
        )
        self._shelf.check(agent, role)
        flags = read_flags(parts.profiles.agents.get(agent, AgentSettings()), request.arguments)
        _check_name(flags)
        if flags.resume_latest and named.session is None and named.file is None:
            session = self._latest(request) or session
        port = self._ports.get(session)
        if port is None or not (flags.is_plain or port.attached):
            profile = await self._profile(request, session, agent, role, flags)
            if named.file is not None and self.owner_of(named.file) != named.session:
                return await self._port_for(request)  # another session has taken it over meanwhile
            if port is None or not port.attached:
                port = self._make_port(session, profile, agent, role)
        if port.attached and not flags.is_plain:
            self._check_same(port, await self._profile(request, session, agent, role, flags))
        if named.file is not None and named.session is None:
            self.pool.tell(SessionKnown(session, named.file))
        return port, flags

    def _make_port(self, session: str, profile: CapabilityProfile, agent: str, role: str) -> AttachedSession:
        self._sessions.use(session, agent, role, source=None, run=None)
        port = self._ports[session] = AttachedSession(session, profile, _MANNERS[profile.dialect], self)
        self._shelf.lend(session, profile)
        self.pool.attend(session, port)
        return port

    async def _profile(
        self, request: AttachRequest, session: str, agent: str, role: str, flags: AgentFlags
    ) -> CapabilityProfile:
        """A known session's own where nothing else is asked for; else what the command line says, where it was said."""
        entry = self._sessions.get(session)
        if entry is not None and flags.is_plain and not session.startswith(_OWN):
            return await self._shelf.of(entry)
        profiles = self._shelf.parts.profiles
        asked = request.env if flags.definition.dialect == "pi" else {}
        env = {**asked, **flags.definition.env}
        if flags.definition.agent_dir is not None:
            env.pop("PI_CODING_AGENT_DIR", None)
        definition = msgspec.structs.replace(flags.definition, env=env)
        changed = msgspec.structs.replace(profiles, agents={**profiles.agents, agent: definition})
        profile = build_profile(changed, agent, role, request.cwd)
        return with_arguments(profile, flags.arguments) if flags.arguments else profile

    def _check_same(self, port: AttachedSession, wanted: CapabilityProfile) -> None:
        if port.profile.signature != wanted.signature:
            raise UsageError(
                f"session {port.session} is attached with other arguments; leave yours out to share it as it is, or "
                "take another session",
                session=port.session,
            )

    def _latest(self, request: AttachRequest) -> str | None:
        """The session that was last attached to from this directory."""
        prefix = f"{_OWN}{_place(request)}-"
        mine = [entry for entry in self._sessions if entry.key.startswith(prefix) and entry.transcript is not None]
        return max(mine, key=lambda entry: entry.updated_at).key if mine else None

    # --- what sessions ask --------------------------------------------------------------------------------------------

    async def profile_of(self, session: str) -> CapabilityProfile:
        """See ``AttachmentDesk.profile_of``; a session that was deleted meanwhile is made anew."""
        port = self._ports[session]
        entry = self._sessions.get(session)
        if entry is None:
            entry = self._sessions.use(session, port.profile.agent, port.profile.role, source=None, run=None)
        port.profile = await self._shelf.of(entry)
        return port.profile

    async def give_up(self, session: str) -> bool:
        """See ``AttachmentDesk.give_up``."""
        port = self._ports.get(session)
        if not session.startswith(_OWN) or self.attended(session) or self._conductor.is_busy(session):
            return False
        if port is not None:
            port.let_go()
        if not self.pool.is_quiescent(session):
            return False
        await self._session_desk.give_up(session)
        if port is not None:
            self._forget_unused(port)
        return True

    def altered(self, worker: str) -> None:
        """See ``AttachmentDesk.altered``."""
        self.pool.tell(Altered(worker))

    def moved(self, lease: Lease, held: SessionResult) -> None:
        """See ``AttachmentDesk.moved``."""
        self.pool.moved(lease, held)
        self._sessions.note_move(lease.hold.session)
        if held.session_file is None:
            self._sessions.drop_transcript(lease.hold.session)
        self._sessions.note_transcript(lease.hold.session)


class _Begun:
    """How the beginning of an attachment went."""

    def __init__(self) -> None:
        self.decided = trio.Event()
        self.lease: Lease | None = None
        self.error: PoolError | None = None


def _check_name(flags: AgentFlags) -> None:
    if flags.name is not None and flags.definition.dialect != "pi":
        raise UsageError("--name: conversations of this agent have no names; leave it out")


def _place(request: AttachRequest) -> str:
    """Stands for the directory and the agent of conversations that have no name."""
    return hashlib.sha256(f"{request.agent}\0{request.cwd}".encode()).hexdigest()[:8]
