"""A session with attached front ends: their requests to its worker, its lines back, and the hold that they share."""

import os
from collections.abc import Awaitable, Callable

import msgspec
import trio

from errors import PoolError, ResumeFailed, UsageError, WorkerRefused, error_from_wire
from gateway.front_ends.attachment import Attachment, ForwardedRequest
from gateway.front_ends.hold import SharedHold
from gateway.front_ends.lookup import normalize_path
from gateway.front_ends.protocol import FrontEndProtocol, ObservedRun, RequestKind
from gateway.runs.intake import Intake
from gateway.sessions.admin import SessionAdmin
from gateway.sessions.agent_profiles import ProfileCache
from gateway.sessions.sessions import Sessions
from gateway.turns.scheduler import TurnScheduler
from pool import Lease, Pool
from pool.stimuli import WorkerModified
from profiles import CapabilityProfile
from rpc.client import RpcClient
from rpc.passthrough import RawLine, RawObject, RawRequest
from rpc.requests import RpcRequest
from wire.messages import SessionResult

_RESTORE_SECONDS = 30.0
_MAX_PROMPT_CHARS = 2_000
"""Characters of a prompt that are kept with its run."""


class FrontEndServices(msgspec.Struct, frozen=True, kw_only=True):
    """What attached sessions need of the gateway."""

    pool: Pool
    sessions: Sessions
    session_admin: SessionAdmin
    profile_cache: ProfileCache
    scheduler: TurnScheduler
    intake: Intake


class AttachedSession:
    """Implements ``pool.worker_output.RawListener``.

    Attributes:
        profile: what the worker must be able to do.
        hold: the worker, while a request waits for its answer or has just had one.
    """

    def __init__(
        self,
        session: str,
        profile: CapabilityProfile,
        protocol: FrontEndProtocol,
        services: FrontEndServices,
        *,
        start_soon: Callable[..., None],
        release_transcript: Callable[[str], Awaitable[bool]],
    ) -> None:
        """``release_transcript``: have another session give up its transcript; false where it does not."""
        self.session = session
        self.profile = profile
        self.protocol = protocol
        self.front_ends: list[Attachment] = []
        self._services = services
        self._start_soon = start_soon
        self._release_transcript = release_transcript
        self._settings: dict[str, RawObject] = {}
        self._forwarded: dict[str, ForwardedRequest] = {}
        self._prompts: dict[Attachment, list[ForwardedRequest]] = {}
        self._observed_run = ObservedRun()
        self._moves = 0
        """Conversations that the worker has begun and the pool does not know yet."""
        self._moves_known = trio.Event()
        self.hold = SharedHold(services.pool, self.lease, start_soon)
        self.on_lost: Callable[[PoolError], None] | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    async def lease(self) -> Lease:
        """The session's worker, at once where it has one. Raises what ``Pool.acquire`` raises."""
        pool = self._services.pool
        try:
            return pool.acquire_nowait(self.session, self.profile)
        except trio.WouldBlock:
            await self._update_profile()
            return await pool.acquire(self.session, self.profile, bounded=False)

    async def _update_profile(self) -> None:
        """Take the session's current profile; creates the session again if it was deleted meanwhile."""
        sessions, profile = self._services.sessions, self.profile
        entry = sessions.get(self.session)
        if entry is None:
            entry = sessions.ensure(self.session, profile.agent, profile.role, source=None, run=None)
        self.profile = await self._services.profile_cache.for_session(entry)

    def handle_urgent(self, front_end: Attachment, command: RawObject) -> None:
        """An abort does not wait behind a prompt of the same front end that no worker has been sent yet."""
        if self._prompts and self.protocol.kind_of(command) is RequestKind.ABORT:
            for pending in self._prompts.get(front_end, ()):
                if pending.run is not None and not pending.dispatched.is_set():
                    self._services.scheduler.abort(pending.run)

    async def dispatch(self, pending: ForwardedRequest) -> None:
        """Hand a request on, or answer it; returns once what follows it may be handed on too."""
        try:
            match pending.kind:
                case RequestKind.UNKNOWN:
                    pending.fail(UsageError("there is no such request"))
                case RequestKind.LEAVING:
                    farewell = self.protocol.shutdown_reply(pending.command)
                    if farewell is not None:
                        pending.answer(farewell)
                    pending.finish()
                    pending.front_end.detach()
                case RequestKind.PROMPT:
                    await self._prompt(pending)
                case _:
                    await self._forward(pending)
        except PoolError as exc:
            pending.fail(exc)

    async def _forward(self, pending: ForwardedRequest) -> None:
        if pending.kind in (RequestKind.MOVING, RequestKind.RESUMING):
            self._check_background(pending)
        lease = await self.hold.acquire()
        try:
            if pending.kind is RequestKind.RESUMING:
                await self._check_file(lease, self.protocol.file_of(pending.command))
            await lease.wait_room()
            self._send(pending, lease)
        except BaseException:
            self.hold.release(lease)
            raise

    async def call(self, command: RawObject) -> None:
        """Send the worker a command of our own, without an answer to any front end. Raises PoolError."""
        lease = await self.hold.acquire()
        try:
            raw = RawRequest(command, lambda _request: None)
            await lease.forward(self.protocol.name_of(command) or "", raw, lambda: None).wait()
        finally:
            self.hold.release(lease)

    def _send(self, pending: ForwardedRequest, lease: Lease) -> None:
        exchanges: list[RpcRequest] = []

        def settled() -> None:
            if exchanges:  # else it was settled as it was sent
                self._on_settled(pending, lease, exchanges[0])

        raw = RawRequest(pending.command, lambda request: self._register(pending, request))
        exchange = lease.forward(pending.name, raw, settled)
        exchanges.append(exchange)
        if exchange.is_settled:
            self._on_settled(pending, lease, exchange)

    def _register(self, pending: ForwardedRequest, request: str) -> None:
        if pending.request_id is not None:
            self._forwarded.pop(pending.request_id, None)
        self._forwarded[request] = pending
        pending.mark_sent(request)

    def _on_settled(self, pending: ForwardedRequest, lease: Lease, exchange: RpcRequest) -> None:
        self._forwarded.pop(str(pending.request_id), None)
        try:
            result = exchange.result()
        except PoolError as exc:
            pending.fail(exc)
        else:
            if pending.kind is RequestKind.SETTER:
                self._record_settings(self.protocol.settings_of(pending.command, result))
                self._mark_modified(lease.worker_id)
            if pending.kind in (RequestKind.MOVING, RequestKind.RESUMING):
                self._moves += 1
                self._start_soon(self._record_conversation, lease)
                pending.finish()
                return
            pending.finish()
        self.hold.release(lease)

    def _record_settings(self, settings: dict[str, RawObject]) -> None:
        """The latest last: a new model brings a thinking level of its own."""
        for topic, command in settings.items():
            self._settings.pop(topic, None)
            self._settings[topic] = command

    def _mark_modified(self, worker: str) -> None:
        """The worker was changed at run time: no other session may have it."""
        self._services.pool.submit(WorkerModified(worker))

    # --- prompts ------------------------------------------------------------------------------------------------------

    async def _prompt(self, pending: ForwardedRequest) -> None:
        """A run like any other, in the session's lane; beside one that is on it is the worker's affair."""
        running = self._services.scheduler.lease_of(self.session)
        if running is not None and running.is_streaming:
            await self._forward(pending)
            return
        while self._moves:
            await self._moves_known.wait()
        raw = RawRequest(pending.command, lambda request: self._register(pending, request))
        text = self.protocol.text_of(pending.command)[:_MAX_PROMPT_CHARS]
        pending.run = self._services.intake.accept_passthrough(self.session, text, pending.front_end.principal, raw)
        self._prompts.setdefault(pending.front_end, []).append(pending)
        self._start_soon(self._await_outcome, pending)
        await pending.dispatched.wait()

    async def _await_outcome(self, pending: ForwardedRequest) -> None:
        assert pending.run is not None  # noqa: S101 - set before this is started
        outcome = await pending.run.wait()
        mine = self._prompts.get(pending.front_end, [])
        mine.remove(pending)
        if not mine:
            self._prompts.pop(pending.front_end, None)
        self._forwarded.pop(str(pending.request_id), None)
        if outcome.error is not None and not pending.is_answered:
            pending.fail(error_from_wire(outcome.error.code, outcome.error.message))
        else:
            pending.finish()

    # --- other conversations ------------------------------------------------------------------------------------------

    def _check_background(self, pending: ForwardedRequest) -> None:
        """Commands in the background would go on out of sight of any conversation. Raises UsageError for these."""
        running = self._services.session_admin.background_commands(self.session)
        name = self.protocol.file_of(pending.command)
        if not running or (
            name is not None and self._services.pool.owner_of(normalize_path(self.profile.cwd, name)) == self.session
        ):
            return
        raise UsageError(
            f"{', '.join(running)} of session {self.session!r} still runs in the background; end it with the method "
            f"'process' (action kill), or begin a new conversation with: pool sessions reset {self.session} --force",
            session=self.session,
            running=running,
        )

    async def _check_file(self, lease: Lease, name: str | None) -> None:
        """A transcript is one session's, by whatever link it is named, and whole. Raises UsageError, ResumeFailed."""
        if name is None:
            return
        path = normalize_path(self.profile.cwd, name)
        real = _resolve_links(path)
        self._services.sessions.paths.check_own(real)
        for known in (path, real):
            owner = self._services.pool.owner_of(known)
            if owner is not None and owner != self.session and not await self._release_transcript(owner):
                raise UsageError(f"{name} is the conversation of session {owner}; attach to it with --session {owner}")
        await lease.prepare_resume(path)

    async def _record_conversation(self, lease: Lease) -> None:
        """Learn which conversation the worker has now: the session's next worker goes on with that one."""
        try:
            state = await lease.state()
            sessions = self._services.sessions
            await self._services.pool.conversation_changed(lease, SessionResult(state.session_id, state.session_file))
            sessions.clear_last_run(self.session)
            if state.session_file is None:
                sessions.drop_transcript(self.session)
            sessions.record_transcript(self.session)
        except PoolError:
            return  # the worker is gone, and the conversation is the one that was written down last
        finally:
            self._moves -= 1
            self._moves_known.set()
            self._moves_known = trio.Event()
            self.hold.release(lease)

    # --- what the pool tells ------------------------------------------------------------------------------------------

    async def restore(self, worker: str, client: RpcClient) -> None:
        """Apply the settings made at run time again, without an answer to any front end."""
        if not self._settings:
            return
        self._mark_modified(worker)
        for command in list(self._settings.values()):
            raw = RawRequest(command, lambda _request: None)
            try:
                with trio.fail_after(_RESTORE_SECONDS):
                    await client.submit(self.protocol.name_of(command) or "", raw=raw).wait()
            except WorkerRefused:
                continue  # a model that is no longer there: the worker goes on with its own
            except trio.TooSlowError as exc:
                raise ResumeFailed(f"worker {worker} did not take the settings of the session again") from exc

    def receive_raw(self, lines: tuple[RawLine, ...]) -> None:
        """Take output lines of the worker: answers go to their front end, events to all."""
        events: list[bytes] = []
        for line in lines:
            if line.request is None:
                self._observed_run = self.protocol.next_run_state(self._observed_run, line.line)
                events.append(line.line)
            elif line.line_without_id is not None:
                self._broadcast(events)
                events = []
                self._send_to_owner(line.request, line.line, line.line_without_id)
            elif (pending := self._forwarded.get(line.request)) is not None:
                self._broadcast(events)
                events = []
                pending.answer(line.line)
        self._broadcast(events)

    def receive_stderr(self, lines: bytes) -> None:
        """Take stderr output of the worker."""
        words = lines.decode(errors="replace")
        for front_end in self.front_ends:
            front_end.send_stderr(words)

    def release_idle(self) -> None:
        """Release every worker that no request uses."""
        self.hold.release_idle()

    def worker_lost(self, error: PoolError) -> None:
        """The worker is lost: end the run that front ends observe."""
        if self._observed_run.is_open:
            self._observed_run = self._observed_run._replace(is_open=False)
            self._broadcast(list(self.protocol.worker_lost(error)))
        if self.on_lost is not None:
            self.on_lost(error)

    def _send_to_owner(self, request: str, line: bytes, others: bytes) -> None:
        """An event of a request: the front end that made it reads its own id there."""
        owner = self._forwarded.get(request)
        for front_end in self.front_ends.copy():
            front_end.send_lines((line if owner is not None and front_end is owner.front_end else others,))

    def _broadcast(self, lines: list[bytes]) -> None:
        if lines:
            for front_end in self.front_ends.copy():
                front_end.send_lines(lines)


def _resolve_links(path: str) -> str:
    """Where its links lead; itself where it is no path."""
    return path if "\0" in path else os.path.realpath(path)
