"""Attached session and shared hold.

The hold on a session's worker that its attached front ends share: taken when one asks, kept while any waits.

The front ends that speak with a session's worker directly: their requests out, its lines back to their readers.
"""

import os
from collections.abc import Awaitable, Callable

import trio

from errors import PoolError, ResumeFailed, UsageError, WorkerRefused, error_from_wire
from gateway.attachments.front_end_rules import Kind, Manners, RunSeen
from gateway.attachments.pending import Asker, AttachmentDesk, Pending
from pool import Lease, Pool
from profiles import CapabilityProfile
from rpc.client import RpcClient
from rpc.passthrough import RawLine, RawObject, RawRequest
from rpc.requests import Exchange
from wire.messages import SessionResult

_LINGER = 0.05
"""Seconds that it is kept when nobody waits: who asks question after question needs it again at once."""


class _Held:
    """One hold: how many requests wait on it, since when none does, whether somebody watches that."""

    def __init__(self) -> None:
        self.users = 0
        self.free_since = 0.0
        self.is_watched = False


class Grip:
    """``acquire`` takes a hold from the pool; ``start_soon`` runs what outlives a request.

    There is more than one hold only while requests wait on a worker that serves the session no longer.
    """

    def __init__(self, pool: Pool, acquire: Callable[[], Awaitable[Lease]], start_soon: Callable[..., None]) -> None:
        self._pool = pool
        self._acquire = acquire
        self._start_soon = start_soon
        self._held: dict[Lease, _Held] = {}
        self._latest: Lease | None = None

    async def take(self) -> Lease:
        """A hold, to be given back; waits for nothing where there is one in force. Raises what ``acquire`` raises."""
        lease = self._latest
        if lease is None or not lease.is_in_force:
            lease = await self._acquire()
            self._latest = lease
        self._held.setdefault(lease, _Held()).users += 1
        return lease

    def give_back(self, lease: Lease) -> None:
        """Whoever took it needs it no more."""
        held = self._held[lease]
        held.users -= 1
        if held.users:
            return
        if not lease.is_in_force or lease is not self._latest:
            self._release(lease)
            return
        held.free_since = trio.current_time()
        if not held.is_watched:
            held.is_watched = True
            self._start_soon(self._watch, lease, held)

    @property
    def is_used(self) -> bool:
        """Whether a request waits on it."""
        return any(held.users for held in self._held.values())

    def let_go(self) -> None:
        """Keep nothing that nobody waits on."""
        for lease in [lease for lease, held in self._held.items() if not held.users]:
            self._release(lease)

    async def _watch(self, lease: Lease, held: _Held) -> None:
        """One task while the hold is used now and then, not one for each time."""
        while held.users or trio.current_time() < held.free_since + _LINGER:
            await trio.sleep_until(max(held.free_since, trio.current_time()) + _LINGER)
            if lease not in self._held:
                return
        self._release(lease)

    def _release(self, lease: Lease) -> None:
        if self._held.pop(lease, None) is not None:
            if lease is self._latest:
                self._latest = None
            self._pool.release_now(lease)


_RESTORE_SECONDS = 30.0
_SHOWN_TEXT = 2_000
"""Characters of a prompt that are kept with its run."""


class AttachedSession:
    """Implements ``pool.raw_listeners.SessionPort``.

    Attributes:
        attached: who hears the session's worker.
        profile: what the worker must be able to do.
    """

    def __init__(self, session: str, profile: CapabilityProfile, manners: Manners, desk: AttachmentDesk) -> None:
        self.session = session
        self.profile = profile
        self.manners = manners
        self.attached: list[Asker] = []
        self._desk = desk
        self._settings: dict[str, RawObject] = {}
        self._owners: dict[str, Pending] = {}
        self._prompts: dict[Asker, list[Pending]] = {}
        self._seen = RunSeen()
        self._grip = Grip(desk.pool, self.lease, desk.start_soon)
        self.on_lost: Callable[[PoolError], None] | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    async def lease(self) -> Lease:
        """The session's worker, at once where it has one. Raises what ``Pool.acquire`` raises."""
        pool = self._desk.pool
        try:
            return pool.acquire_nowait(self.session, self.profile)
        except trio.WouldBlock:
            profile = await self._desk.profile_of(self.session)
            return await pool.acquire(self.session, profile, bounded=False)

    def overtake(self, asker: Asker, command: RawObject) -> None:
        """An abort does not wait behind a prompt of the same front end that no worker has been sent yet."""
        if self._prompts and self.manners.kind_of(command) is Kind.ABORT:
            for pending in self._prompts.get(asker, ()):
                if pending.run is not None and not pending.begun.is_set():
                    self._desk.abort(pending.run)

    async def serve(self, pending: Pending) -> None:
        """Hand a request on, or answer it; returns once what follows it may be handed on too."""
        try:
            match pending.kind:
                case Kind.UNKNOWN:
                    pending.refuse(UsageError("there is no such request"))
                case Kind.LEAVING:
                    self._leave(pending)
                case Kind.PROMPT:
                    await self._prompt(pending)
                case _:
                    await self._forward(pending)
        except PoolError as exc:
            pending.refuse(exc)

    def _leave(self, pending: Pending) -> None:
        farewell = self.manners.farewell(pending.command)
        if farewell is not None:
            pending.answer(farewell)
        pending.finish()
        pending.asker.leave()

    async def _forward(self, pending: Pending) -> None:
        if pending.kind in (Kind.MOVING, Kind.RESUMING):
            self._check_running(pending)
        lease = await self._grip.take()
        try:
            if pending.kind is Kind.RESUMING:
                await self._check_file(lease, self.manners.file_of(pending.command))
            await lease.wait_room()
            self._send(pending, lease)
        except BaseException:
            self._grip.give_back(lease)
            raise

    async def call(self, command: RawObject) -> None:
        """Send the worker a command of our own, without an answer to any front end. Raises PoolError."""
        lease = await self._grip.take()
        try:
            raw = RawRequest(command, lambda _request: None)
            await lease.forward(self.manners.name_of(command) or "", raw, lambda: None).wait()
        finally:
            self._grip.give_back(lease)

    def _send(self, pending: Pending, lease: Lease) -> None:
        exchanges: list[Exchange] = []

        def settled() -> None:
            if exchanges:  # else it was settled as it was sent
                self._settled(pending, lease, exchanges[0])

        raw = RawRequest(pending.command, lambda request: self._own(pending, request))
        exchange = lease.forward(pending.name, raw, settled)
        exchanges.append(exchange)
        if exchange.is_settled:
            self._settled(pending, lease, exchange)

    def _own(self, pending: Pending, request: str) -> None:
        if pending.request is not None:
            self._owners.pop(pending.request, None)
        self._owners[request] = pending
        pending.sent(request)

    def _settled(self, pending: Pending, lease: Lease, exchange: Exchange) -> None:
        self._owners.pop(str(pending.request), None)
        try:
            result = exchange.result()
        except PoolError as exc:
            pending.refuse(exc)
        else:
            if pending.kind is Kind.SETTER:
                self._keep(self.manners.settings_of(pending.command, result))
                self._desk.altered(lease.worker_id)
            pending.finish()
            if pending.kind in (Kind.MOVING, Kind.RESUMING):
                self._desk.start_soon(self._note_move, lease)
                return
        self._grip.give_back(lease)

    def _keep(self, settings: dict[str, RawObject]) -> None:
        """The latest last: a new model brings a thinking level of its own."""
        for topic, command in settings.items():
            self._settings.pop(topic, None)
            self._settings[topic] = command

    # --- prompts ------------------------------------------------------------------------------------------------------

    async def _prompt(self, pending: Pending) -> None:
        """A run like any other, in the session's lane; beside one that is on it is the worker's affair."""
        running = self._desk.lease_of(self.session)
        if running is not None and running.is_streaming:
            await self._forward(pending)
            return
        raw = RawRequest(pending.command, lambda request: self._own(pending, request))
        text = self.manners.text_of(pending.command)[:_SHOWN_TEXT]
        pending.run = self._desk.accept_raw(self.session, text, pending.asker.principal, raw)
        self._prompts.setdefault(pending.asker, []).append(pending)
        self._desk.start_soon(self._follow, pending)
        await pending.begun.wait()

    async def _follow(self, pending: Pending) -> None:
        assert pending.run is not None  # noqa: S101 - set before this is started
        outcome = await pending.run.wait()
        mine = self._prompts.get(pending.asker, [])
        mine.remove(pending)
        if not mine:
            self._prompts.pop(pending.asker, None)
        self._owners.pop(str(pending.request), None)
        if outcome.error is not None and not pending.is_answered:
            pending.refuse(error_from_wire(outcome.error.code, outcome.error.message))
        else:
            pending.finish()

    # --- other conversations ------------------------------------------------------------------------------------------

    def _check_running(self, pending: Pending) -> None:
        """Commands in the background would go on out of sight of any conversation. Raises UsageError for these."""
        running = self._desk.running(self.session)
        name = self.manners.file_of(pending.command)
        if not running or (name is not None and self._desk.owner_of(_normal(self.profile.cwd, name)) == self.session):
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
        path = _normal(self.profile.cwd, name)
        for known in (path, _real(path)):
            owner = self._desk.owner_of(known)
            if owner is not None and owner != self.session and not await self._desk.give_up(owner):
                raise UsageError(f"{name} is the conversation of session {owner}; attach to it with --session {owner}")
        await lease.prepare_resume(path)

    async def _note_move(self, lease: Lease) -> None:
        """Learn which conversation the worker has now: the session's next worker goes on with that one."""
        try:
            state = await lease.state()
            self._desk.moved(lease, SessionResult(state.session_id, state.session_file))
        except PoolError:
            return  # the worker is gone, and the conversation is the one that was written down last
        finally:
            self._grip.give_back(lease)

    # --- what the pool tells ------------------------------------------------------------------------------------------

    async def restore(self, worker: str, client: RpcClient) -> None:
        """See ``SessionPort.restore``: what was set at run time is set again, and nobody hears of it."""
        if not self._settings:
            return
        self._desk.altered(worker)
        for command in list(self._settings.values()):
            raw = RawRequest(command, lambda _request: None)
            try:
                with trio.fail_after(_RESTORE_SECONDS):
                    await client.submit(self.manners.name_of(command) or "", raw=raw).wait()
            except WorkerRefused:
                continue  # a model that is no longer there: the worker goes on with its own
            except trio.TooSlowError as exc:
                raise ResumeFailed(f"worker {worker} did not take the settings of the session again") from exc

    def take_raw(self, lines: tuple[RawLine, ...]) -> None:
        """See ``SessionPort.take_raw``."""
        events: list[bytes] = []
        for line in lines:
            if line.request is None:
                self._seen = self.manners.run_after(self._seen, line.line)
                events.append(line.line)
            elif line.others is not None:
                self._tell_all(events)
                events = []
                self._tell_owner(line.request, line.line, line.others)
            elif (pending := self._owners.get(line.request)) is not None:
                self._tell_all(events)
                events = []
                pending.answer(line.line)
        self._tell_all(events)

    def take_words(self, lines: bytes) -> None:
        """See ``SessionPort.take_words``."""
        words = lines.decode(errors="replace")
        for asker in self.attached:
            asker.tell_words(words)

    def let_go(self) -> None:
        """See ``SessionPort.let_go``."""
        self._grip.let_go()

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for the worker's answer."""
        return self._grip.is_used

    def lost(self, error: PoolError) -> None:
        """See ``SessionPort.lost``."""
        if self._seen.is_open:
            self._seen = self._seen._replace(is_open=False)
            self._tell_all(list(self.manners.lost(error)))
        if self.on_lost is not None:
            self.on_lost(error)

    def _tell_owner(self, request: str, line: bytes, others: bytes) -> None:
        """An event of a request: the front end that made it reads its own id there."""
        owner = self._owners.get(request)
        for asker in self.attached.copy():
            asker.tell((line if owner is not None and asker is owner.asker else others,))

    def _tell_all(self, lines: list[bytes]) -> None:
        if lines:
            for asker in self.attached.copy():
                asker.tell(lines)


def _normal(cwd: str, name: str) -> str:
    """The path that a worker in this directory takes the name for."""
    return os.path.normpath(os.path.join(cwd, name))  # noqa: PTH118  # a Path would keep the dots


def _real(path: str) -> str:
    """Where its links lead; itself where it is no path."""
    return path if "\0" in path else os.path.realpath(path)
