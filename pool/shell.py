"""The pool's async shell: it tells the machine what happened and carries out what the machine decides.

No decision is made here. One task per worker lives its life (start, watch, end), one task keeps time, one short task
per reset; callers wait on their own ticket. Every change goes through ``_apply``, which runs to its end without
awaiting, so the machine sees one stimulus after the other.
"""

import contextvars
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self, Unpack, assert_never

import trio

from errors import WorkerError, WorkerExited
from pool import stimuli
from pool.agent_records import AgentRecords
from pool.agent_report import AgentReport
from pool.declared_servers import DeclaredServers
from pool.lease import AcquireOptions, AcquireTicket, Lease
from pool.machine import PoolMachine
from pool.resets import ConversationResets
from pool.settings import PoolSettings, check_memory
from pool.statistics import LatencyRecorder, PoolStatistics, assemble_statistics
from pool.stimuli import Action, FailureKind, Grant, Notify, Reconcile, Reject, Reset, Spawn, Stimulus, Stop
from pool.worker_interface import EventSink, LoadedConversation, PoolWorker, WorkerLauncher, ignore_event
from pool.worker_output import BackgroundEvent, BackgroundEvents, RawListener, RawListeners
from pool.worker_task import BackgroundCallbacks, WorkerTask, rss_by_worker
from profiles import CapabilityProfile
from wire.messages import SessionResult


def is_caller_error(error: BaseException | None) -> bool:
    """Whether an error comes from inside the pool's block; a cancellation may be our nursery's, which must see it."""
    return isinstance(error, Exception) or not isinstance(error, trio.Cancelled | BaseExceptionGroup | None)


class Pool:
    """A bounded set of workers for any number of sessions; see ``lease``.

    Use it as ``async with Pool(settings, launcher=...) as pool``. Leaving the block closes it: waiters end with
    PoolClosed, every worker is stopped by its kill ladder and reaped before the block is left.

    Args:
        settings, launcher: limits and times; where workers come from.
        on_event: called with ``(event, data)`` for everything worth telling; must not block or raise.
        rng: source of jitter; pass a seeded one for repeatable runs.
        memory_bytes: physical memory to check ``max`` against; None asks the machine.
        agent_records: what was learned of agents' programs; None begins with nothing and keeps nothing.
        slots_here: how many of ``max`` this machine has to run, where there are others; None = all.
    """

    def __init__(
        self,
        settings: PoolSettings | None = None,
        *,
        launcher: WorkerLauncher,
        on_event: EventSink = ignore_event,
        rng: random.Random | None = None,
        memory_bytes: int | None = None,
        agent_records: AgentRecords | None = None,
        slots_here: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._initial_settings = settings or PoolSettings()
        check_memory(self._initial_settings, memory_bytes, here=slots_here())
        self._slots_here = slots_here
        self._memory_bytes = memory_bytes
        self._launcher = launcher
        self.known_transcripts = launcher.known_transcripts
        self._on_event = on_event
        self._rng = rng or random.Random()  # noqa: S311  # jitter, not secrets
        self._stack = AsyncExitStack()
        self._workers: dict[str, WorkerTask] = {}
        self._tickets: dict[str, AcquireTicket] = {}
        """By request id; a caller that left has removed its own."""
        self._raw_listeners = RawListeners()
        self.latencies = LatencyRecorder()
        self.agent_records = agent_records or AgentRecords()
        self.declared_servers = DeclaredServers()
        self._request_ids = itertools.count(1)
        self._wake_timer = trio.Event()
        self._armed_for = float("inf")
        self._emptied = trio.Event()

    # --- life -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._now = trio.lowlevel.current_clock().current_time
        machine = self._machine = PoolMachine(self._initial_settings, rng=self._rng, now=self._now())
        self.explain, self.owner_of, self.placement = machine.explain, machine.owner_of, machine.placement
        self.is_quiescent, self.has_session = machine.is_quiescent, machine.has_session
        self.session_of, self.transcript_of = machine.session_of, machine.transcript_of
        self.slot_demand = machine.slot_demand
        self._resets = ConversationResets(
            machine,
            self._raw_listeners,
            self.agent_records,
            self.declared_servers,
            on_event=self._on_event,
            apply=self._apply,
        )
        self._background = BackgroundEvents(machine.session_of, machine.transcript_of)
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._nursery.start_soon(self._run_timer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        with trio.CancelScope(shield=True):
            self._apply(stimuli.Close())
            await self._wait_empty()  # the kill ladders have deadlines of their own
        self._nursery.cancel_scope.cancel()
        if is_caller_error(error):  # it leaves as it is, not wrapped in a group
            await self._stack.__aexit__(None, None, None)
            return None
        return await self._stack.__aexit__(kind, error, traceback)

    async def _wait_empty(self) -> None:
        """For any number of waiters: closing may begin during a drain."""
        while self._workers:
            await self._emptied.wait()

    # --- what callers do --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def lease(
        self,
        session: str,
        profile: CapabilityProfile,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # a deadline of the waiting list, not of this coroutine
        **options: Unpack[AcquireOptions],
    ) -> AsyncIterator[Lease]:
        """Hold the worker of ``session`` for the length of the block.

        Args:
            session: the conversation's key; one key, one conversation.
            profile: what the worker must be able to do.
            timeout: seconds to wait at most; None takes ``waiting_timeout`` of the settings.
            options: how it waits; see AcquireOptions.

        Raises:
            PoolSaturated, AcquireTimeout, PoolClosed, ProfileBroken, ResumeFailed: no worker, and why.
            WorkerRefused: it could not be brought to the profile's model or thinking level.
            WorkerExited: it was granted and ended in the same moment; ask again.
        """
        lease = await self.acquire(session, profile, timeout=timeout, **options)
        try:
            yield lease
        finally:
            with trio.CancelScope(shield=True):
                await self.release(lease)

    async def acquire(
        self,
        session: str,
        profile: CapabilityProfile,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  # a deadline of the waiting list, not of this coroutine
        **options: Unpack[AcquireOptions],
    ) -> Lease:
        """The same without a block; the caller must ``release`` the lease."""
        started = self._now()
        request = f"r{next(self._request_ids)}"
        ticket = self._tickets[request] = AcquireTicket()
        try:
            deadline = None if timeout is None else started + timeout
            self._apply(
                stimuli.Acquire(request=request, session=session, profile=profile, deadline=deadline, **options)
            )
            grant = await ticket.wait()
        except trio.Cancelled:
            self._apply(stimuli.Cancel(request))
            raise
        finally:
            del self._tickets[request]
        return self._make_lease(grant, profile, waited=self._now() - started)

    def acquire_nowait(self, session: str, profile: CapabilityProfile) -> Lease:
        """The warm path: the session's own worker, where it is bound and matches; raises trio.WouldBlock otherwise.

        That is also where something was due this moment; ``acquire`` is never wrong.
        """
        grant = self._machine.take_warm(f"r{next(self._request_ids)}", session, profile, self._now())
        if grant is None:
            raise trio.WouldBlock
        return self._make_lease(grant, profile, waited=0.0)

    async def release(self, lease: Lease) -> None:
        """Give a hold back; a turn still running is aborted, and a worker that goes on regardless is failed."""
        await lease.aclose()
        self.release_now(lease)

    def release_now(self, lease: Lease) -> None:
        """The same for a hold under which no turn runs: there is nothing to wait for."""
        life = self._workers.get(lease.hold.worker)
        if life is not None:
            life.leases.discard(lease)
            transcript = life.transcript
            if transcript is not None and transcript not in life.worker.known_transcripts:
                life.worker.record_transcript(transcript)
        if life is not None and lease.is_tainted:
            error = WorkerError(f"worker {life.id} did not end its turn when it was aborted", worker=life.id)
            life.error = life.error or error
            self._apply(stimuli.WorkerFailed(life.id, FailureKind.STALLED, error))
        elif life is not None and life.worker.client.dialect.retire_reason is not None:
            self._apply(stimuli.RecycleWorker(life.id))
        lost = life is not None and life.worker.client.dialect.has_lost_conversation
        if life is not None and lost:
            life.conversation = None
        if not lease.is_released:
            lease.is_released = True
            for seconds in lease.turn_seconds:
                self.latencies.turn.add_for(lease.profile, seconds)
            self._apply(stimuli.Release(lease.hold, turns=len(lease.turn_seconds), lost=lost))

    def submit(self, stimulus: Stimulus) -> None:
        """Tell the pool a fact or a wish from outside: SessionBusy, Pause, StopWorker, SettingsChanged ...

        Raises UsageError where the machine refuses it (an unknown worker, a session in use).
        """
        if isinstance(stimulus, stimuli.SettingsChanged):
            check_memory(stimulus.settings, self._memory_bytes, here=self._slots_here())
        if isinstance(stimulus, stimuli.ForgetSession):
            self._raw_listeners.release_idle(stimulus.session)
        if isinstance(stimulus, stimuli.WorkerFailed) and (life := self._workers.get(stimulus.worker)) is not None:
            life.error = life.error or stimulus.error
        self._apply(stimulus)

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  # the documented limit of the drain
        """Take nothing new and let turns in flight end; True when the pool is empty within ``timeout`` seconds."""
        self._apply(stimuli.Drain())
        limit = self._machine.settings().drain_timeout if timeout is None else timeout
        with trio.move_on_after(limit):
            await self._wait_empty()
        return not self._workers

    def on_background(self, listener: Callable[[BackgroundEvent], None]) -> None:
        """Set the listener that learns which background commands run, and of their ends; it must not block or raise."""
        self._background.listener = listener

    def listen_raw(self, session: str, port: RawListener | None) -> None:
        """Let a port hear the session's worker, this one and those to come; None removes it."""
        self._raw_listeners.set_listener(session, port)
        for life in self._workers.values():
            if life.has_conversation_of(session) and self._machine.session_of(life.id) == session:
                self._raw_listeners.connect(session, life)

    async def conversation_changed(self, lease: Lease, held: SessionResult) -> None:
        """The session's conversation is another now: its worker was asked to change it, under this lease.

        Its next prompt comes after that. Raises PoolError where the worker cannot keep the new one.
        """
        life = self._workers.get(lease.hold.worker)
        self._resets.check_owner(lease.hold.session, held)
        if life is not None:
            await life.worker.keep(held.session_file)
        if life is not None and life.id in self._workers:
            life.conversation = LoadedConversation(lease.hold.session, held)
            self._apply(stimuli.SessionKnown(lease.hold.session, held.session_file))

    def statistics(self) -> PoolStatistics:
        """A frozen, consistent picture of this moment."""
        now = self._now()
        return assemble_statistics(
            self._machine.snapshot(now),
            self._machine.settings(),
            self._workers,
            self.latencies,
            self._launcher.guarantee(),
            now=now,
        )

    def report_of(self, session: str) -> AgentReport | None:
        """What the program says that has the session's conversation open; None: none has, or its dialect is silent."""
        life = self._workers.get(self.placement(session).worker or "")
        return None if life is None else life.report(session)

    def worker_of(self, session: str) -> PoolWorker | None:
        """The session's worker, where it is ready."""
        life = self._workers.get(self.placement(session).worker or "")
        return None if life is None or not life.has_conversation_of(session) else life.worker

    @property
    def waiting_timeout(self) -> float:
        """Seconds that a request without a deadline of its own waits."""
        return self._machine.settings().waiting_timeout

    def has_room(self, session: str, profile: CapabilityProfile) -> bool:
        """Whether ``lease`` with ``spawn="room"`` would be served now, at an ordinary priority; changes nothing."""
        return self._machine.has_room(session, profile, self._now())

    # --- the machine and its actions --------------------------------------------------------------------------------

    def _apply(self, stimulus: Stimulus) -> None:
        for action in self._machine.handle(stimulus, self._now()):
            self._perform(action)
        due = self._machine.next_wakeup()
        if due is not None and due < self._armed_for:
            self._wake_timer.set()

    def _perform(self, action: Action) -> None:
        match action:
            case Grant() | Reject():
                self._tickets[action.request].settle(action)
            case Reset():
                self._raw_listeners.disconnect(self._workers[action.worker])
                self._nursery.start_soon(self._reset, action, self._workers[action.worker])
            case Reconcile():
                self._nursery.start_soon(self._reconcile, action, self._workers[action.worker])
            case Spawn():
                life = WorkerTask(action, self._launcher, self._machine.settings, self._now())
                self._workers[action.worker] = life
                # in a context of its own: a worker outlives the request that happened to need it
                contextvars.Context().run(self._nursery.start_soon, self._run_worker, life)
            case Stop():
                self._workers[action.worker].request_stop(action.reason, force=action.force)
            case Notify():
                self._on_event(action.event, action.data)
            case _:
                assert_never(action)

    async def _run_timer(self) -> None:
        """Wake at the machine's next deadline, and for maintenance; sleeps without any polling in between."""
        maintenance_due = self._now() + self._machine.settings().maintenance_interval
        while True:
            due = self._machine.next_wakeup()
            self._armed_for = maintenance_due if due is None else min(due, maintenance_due)
            self._wake_timer = trio.Event()
            with trio.move_on_at(self._armed_for):
                await self._wake_timer.wait()
                continue
            if self._now() >= maintenance_due:
                maintenance_due = self._now() + self._machine.settings().maintenance_interval
                if self._machine.settings().max_rss:
                    self._apply(stimuli.MemoryUsage(rss_by_worker(self._workers.values())))
            self._apply(stimuli.ClockTick())

    # --- workers ----------------------------------------------------------------------------------------------------

    async def _run_worker(self, life: WorkerTask) -> None:
        """One worker from spawn to reaped process."""
        try:
            await life.run(
                on_ready=self._on_ready,
                on_fact=self._apply,
                on_exec=BackgroundCallbacks(self._background.running, self._background.exited),
                try_out=self._resets.try_out,
            )
        finally:
            life.report_invalid_lines(self._on_event)
            self.agent_records.note_end(life.profile.agent, life.error)
            self._raw_listeners.worker_lost(life)
            self._background.worker_exited(life)
            try:
                self._apply(stimuli.ProcessExited(life.id, life.error or WorkerError(f"worker {life.id} was stopped")))
            finally:
                del self._workers[life.id]
                if not self._workers:
                    self._emptied.set()
                    self._emptied = trio.Event()

    def _on_ready(self, life: WorkerTask) -> None:
        self.latencies.spawn.add_for(life.profile, self._now() - life.spawned_at)
        self.agent_records.note_ready(life.profile.agent, life.worker.client.ready)
        self._resets.tell_machine(life.profile.agent)
        self._apply(stimuli.WorkerReady(life.id, life.worker.node))

    async def _reset(self, action: Reset, life: WorkerTask) -> None:
        started = self._now()
        outcome = await self._resets.perform(action, life)
        if isinstance(outcome, stimuli.WorkerResetDone):
            self.latencies.reset.add_for(life.profile, self._now() - started)
        self._apply_if_alive(outcome)

    async def _reconcile(self, action: Reconcile, life: WorkerTask) -> None:
        self._apply_if_alive(await self._raw_listeners.reconcile(life, action.soft))

    def _apply_if_alive(self, fact: stimuli.WorkerFailed | stimuli.WorkerResetDone | stimuli.WorkerReconciled) -> None:
        """A worker that ended meanwhile has already been reported, by its own task."""
        if fact.worker in self._workers:
            self._apply(fact)

    def _make_lease(self, grant: Grant, profile: CapabilityProfile, *, waited: float) -> Lease:
        life = self._workers.get(grant.hold.worker)
        if life is None:  # it ended between the grant and this task's turn to run
            self._apply(stimuli.Release(grant.hold, turns=0))
            raise WorkerExited(
                f"worker {grant.hold.worker} ended as it was granted", worker=grant.hold.worker, sent=False
            )
        self.latencies.acquire.add_for(profile, waited)
        lease = Lease(grant, life.worker, waited=waited, cause=lambda: life.error, startup_stderr=life.startup_stderr)
        lease.profile = profile
        life.leases.add(lease)
        return lease
