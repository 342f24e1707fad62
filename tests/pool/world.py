"""A world around the machine: it carries out actions on paper, keeps its own books, and objects to what must not be.

Nothing happens by itself: whoever drives it (a test, a simulation, Hypothesis) says when a worker is ready, a reset is
done, a process exits. After every stimulus the books are compared with what the pool promises, from outside.
"""

import random
from collections.abc import Iterable
from typing import Any

from errors import PoolError, WorkerError, WorkerExited, WorkerRefused, WorkerStartFailed
from pool import stimuli
from pool import stimuli as actions
from pool.machine import PoolMachine
from pool.settings import PoolSettings
from pool.stimuli import Action, FailureKind, StopReason, WorkerHold
from profiles.matching import MatchLevel
from profiles.profile import CapabilityProfile, Resources, SoftArgs

GENTLE = {StopReason.EVICTED, StopReason.IDLE, StopReason.RETIRED}
"""Reasons for which only a worker of a quiescent session may be stopped."""
GENTLE_PARTINGS = {"rebound", "idle", *(reason.value for reason in GENTLE)}
"""Reasons for which only a quiescent session may be parked."""


def make_profile(
    name: str = "a",
    *,
    model: str | None = "m",
    skills: Iterable[str] = (),
    agent: str = "main",
    role: str = "default",
) -> CapabilityProfile:
    """A profile whose hard part is ``name``; equal arguments give equal signatures.

    Workers of the agent ``pin`` keep their conversations, those of ``name@gpu`` belong to the group ``gpu``.
    """
    skills, group = tuple(skills), agent.partition("@")[2]
    declared = (("resume", '"pin"'),) if agent == "pin" else ()
    return CapabilityProfile(
        agent=agent,
        role=role,
        dialect="native",
        command=("agent",),
        cwd=f"/{name}",
        soft=SoftArgs(provider="p", model=model, thinking="low"),
        resources=Resources(skills=skills),
        declared=(("group", f'"{group}"'),) if group else declared,
        signature=f"{name}|{agent}|{role}|{model}|{','.join(skills)}",
        hard_signature=f"{name}|{agent}|{role}",
    )


class PaperWorker:
    """What the world knows of one process."""

    def __init__(self, profile: CapabilityProfile) -> None:
        self.profile = profile
        self.ready = False
        self.stopping = False
        self.open: str | None = None
        """Whose transcript it has open."""
        self.resetting: tuple[str, str | None] | None = None
        self.reconciling: SoftArgs | None = None
        self.soft = profile.soft
        self.background = 0

    @property
    def at_rest(self) -> bool:
        """Ready, and not in the middle of being stopped, reset or reconciled."""
        return self.ready and not self.stopping and self.resetting is None and self.reconciling is None

    def touches(self) -> set[str]:
        """Sessions whose transcript this process may have open now."""
        return {session for session in (self.open, self.resetting and self.resetting[0]) if session is not None}


class World:
    """The machine, its books, and the time."""

    def __init__(self, *, seed: int = 0, now: float = 1000.0, **settings: object) -> None:
        values: dict[str, object] = {"max": 4, "min": 0, "spawn_burst": 100, "spawn_rate": 100.0, **settings}
        self.settings = PoolSettings(**values)  # type: ignore[arg-type]  # tests name fields; PoolSettings checks them
        self.now = now
        self.machine = PoolMachine(self.settings, rng=random.Random(seed), now=now)
        self.workers: dict[str, PaperWorker] = {}
        self.open_requests: dict[str, stimuli.Acquire] = {}
        self.holds: dict[str, WorkerHold] = {}
        self.void: dict[str, WorkerHold] = {}
        """Holds whose worker has died before they were released."""
        self.levels: dict[str, MatchLevel] = {}
        self.errors: dict[str, PoolError] = {}
        self.ended: set[str] = set()
        self.busy: set[str] = set()
        self.bound: dict[str, str] = {}
        """Sessions by the events about them: which worker each is bound to."""
        self.spawn_times: list[float] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.happened: list[Action] = []
        self.request_count = 0
        self.limit = self.settings.max
        self.slots: dict[str, int] | None = None
        """By group, once a capacity was given."""

    # --- telling ----------------------------------------------------------------------------------------------------

    def tell(self, stimulus: stimuli.Stimulus) -> list[Action]:
        """Hand the machine a stimulus, carry out its actions on paper, and return them without the Notifies."""
        decided = self.machine.handle(stimulus, self.now)
        for action in decided:
            self._perform(action)
        happened: list[Action] = [action for action in decided if not isinstance(action, actions.Notify)]
        self.happened += happened
        return happened

    def pass_time(self, seconds: float) -> list[Action]:
        """Let time go by, with a Tick at every wake-up the machine asks for."""
        until = self.now + seconds
        happened: list[Action] = []
        while (due := self.machine.next_wakeup()) is not None and due <= until:
            self.now = max(self.now, due)
            happened += self.tell(stimuli.ClockTick())
        self.now = until
        return happened

    def acquire(
        self,
        session: str,
        profile: CapabilityProfile | None = None,
        *,
        request: str | None = None,
        priority: int = 5,
        timeout: float | None = None,
        spawn: stimuli.SpawnPolicy = True,
        nested: bool = False,
        bounded: bool = True,
    ) -> str:
        """Send an Acquire; returns its request id."""
        self.request_count += 1
        acquire = stimuli.Acquire(
            request=request or f"r{self.request_count}",
            session=session,
            profile=profile or make_profile(),
            priority=priority,
            deadline=None if timeout is None else self.now + timeout,
            spawn=spawn,
            nested=nested,
            bounded=bounded,
        )
        self.open_requests[acquire.request] = acquire
        self.tell(acquire)
        return acquire.request

    def cancel(self, request: str) -> list[Action]:
        if self.open_requests.pop(request, None) is not None:
            self.ended.add(request)
        self.holds.pop(request, None)
        self.void.pop(request, None)
        return self.tell(stimuli.Cancel(request))

    def release(self, request: str, turns: int = 1) -> list[Action]:
        hold = self.holds.pop(request, None) or self.void.pop(request)
        return self.tell(stimuli.Release(hold, turns))

    def run_in_background(self, worker: str, running: int) -> list[Action]:
        """The worker reports that it runs so many commands in the background."""
        self.workers[worker].background = running
        return self.tell(stimuli.BackgroundCount(worker, running))

    def set_capacity(self, slots: dict[str, int], **more: Any) -> list[Action]:
        self.slots = slots
        return self.tell(stimuli.Capacity(slots, **more))

    def set_busy(self, session: str) -> list[Action]:
        self.busy.add(session)
        return self.tell(stimuli.SessionBusy(session))

    def set_quiet(self, session: str) -> list[Action]:
        self.busy.discard(session)
        return self.tell(stimuli.SessionIdle(session))

    def forget(self, session: str) -> list[Action]:
        """End the conversation: what old processes still have open of it is nobody's transcript any more."""
        happened = self.tell(stimuli.ForgetSession(session))
        for paper in self.workers.values():
            if paper.open == session:
                paper.open = None
            if paper.resetting is not None and paper.resetting[0] == session:
                assert paper.stopping
                paper.resetting = None
        return happened

    # --- what processes do ------------------------------------------------------------------------------------------

    def ready(self, worker: str, node: str = "") -> list[Action]:
        self.workers[worker].ready = True
        return self.tell(stimuli.WorkerReady(worker, node))

    def reset_done(self, worker: str, transcript: str | None = "") -> list[Action]:
        """The reset in flight succeeds; the transcript is ``<session>.jsonl`` unless another is given."""
        paper = self.workers[worker]
        assert paper.resetting is not None
        session, _ = paper.resetting
        paper.open, paper.resetting = session, None
        paper.soft = paper.profile.soft
        path = f"{session}.jsonl" if transcript == "" else transcript
        return self.tell(stimuli.WorkerResetDone(worker, session, path))

    def reconciled(self, worker: str) -> list[Action]:
        paper = self.workers[worker]
        assert paper.reconciling is not None
        paper.soft, paper.reconciling = paper.reconciling, None
        return self.tell(stimuli.WorkerReconciled(worker))

    def fail(self, worker: str, kind: FailureKind, *, stderr_tail: str | None = None, **details: Any) -> list[Action]:
        paper = self.workers[worker]
        error: PoolError = WorkerError(f"{worker} failed at {kind}")
        if kind is FailureKind.START:
            error = WorkerStartFailed(f"{worker} did not start", stderr_tail=stderr_tail, **details)
        if kind is FailureKind.RECONCILE:
            paper.reconciling = None
        if kind in (FailureKind.DISK_FULL, FailureKind.UNFIT):
            error, paper.resetting = WorkerRefused(f"{worker} failed at {kind}"), None
        return self.tell(stimuli.WorkerFailed(worker, kind, error))

    def exit(self, worker: str) -> list[Action]:
        del self.workers[worker]
        for request, hold in list(self.holds.items()):
            if hold.worker == worker:
                self.void[request] = self.holds.pop(request)
        return self.tell(stimuli.ProcessExited(worker, WorkerExited(f"{worker} is gone", worker=worker)))

    def run_until_settled(self) -> None:
        """Let every process do at once what it was told, until nothing is left to do."""
        while self._step():
            pass

    def _step(self) -> bool:
        for name, paper in list(self.workers.items()):
            if paper.stopping:
                self.exit(name)
            elif not paper.ready:
                self.ready(name)
            elif paper.resetting is not None:
                self.reset_done(name)
            elif paper.reconciling is not None:
                self.reconciled(name)
            else:
                continue
            return True
        return False

    def held(self, session: str, profile: CapabilityProfile | None = None, **options: object) -> str:
        """A request for ``session`` that has got its worker."""
        request = self.acquire(session, profile, **options)  # type: ignore[arg-type]  # the options of acquire
        self.run_until_settled()
        assert request in self.holds, self.errors.get(request)
        return request

    def worker_of(self, request: str) -> str:
        return self.holds[request].worker

    # --- the books --------------------------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case actions.Spawn():
                self._spawn(action)
            case actions.Reset():
                self._reset(action)
            case actions.Reconcile():
                paper = self.workers[action.worker]
                assert paper.at_rest
                paper.reconciling = action.soft
            case actions.Grant():
                self._grant(action)
            case actions.Reject():
                self._end(action.request)
                self.errors[action.request] = action.error
            case actions.Stop():
                self._stop(action)
            case actions.Notify():
                self._note(action.event, action.data)

    def _spawn(self, action: actions.Spawn) -> None:
        assert action.worker not in self.workers
        self.workers[action.worker] = PaperWorker(action.profile)
        self.spawn_times.append(self.now)
        assert len(self.workers) <= self.limit, f"{len(self.workers)} processes, {self.limit} allowed"
        if self.slots is not None:
            group = action.profile.group
            used = sum(paper.profile.group == group for paper in self.workers.values())
            assert used <= self.slots.get(group, 0), f"{used} processes in group {group!r}, slots are {self.slots}"

    def _reset(self, action: actions.Reset) -> None:
        paper = self.workers[action.worker]
        assert paper.at_rest, f"{action.worker} cannot be reset"
        assert not any(hold.worker == action.worker for hold in self.holds.values()), f"{action.worker} is held"
        assert action.worker not in self.bound.values(), f"{action.worker} is bound elsewhere"
        for name, other in self.workers.items():
            elsewhere = name != action.worker and action.session in other.touches()
            assert not elsewhere, f"{action.session} is opened by {action.worker} and by {name}"
        paper.resetting = (action.session, action.resume_from)

    def _grant(self, action: actions.Grant) -> None:
        hold = action.hold
        acquire = self.open_requests[action.request]
        self._end(action.request)
        paper = self.workers[hold.worker]
        assert paper.at_rest, f"{hold.worker} is not ready to be used"
        assert paper.open == hold.session == acquire.session, f"{hold.worker} has {paper.open} open, not {hold.session}"
        assert paper.soft == acquire.profile.soft, f"{hold.worker} runs {paper.soft}"
        assert paper.profile.hard_signature == acquire.profile.hard_signature
        assert paper.profile.resources.contains(acquire.profile.resources)
        assert acquire.deadline is None or self.now < acquire.deadline, "granted after its deadline"
        self.holds[action.request] = hold
        self.levels[action.request] = action.level

    def _end(self, request: str) -> None:
        assert request not in self.ended, f"{request} has two outcomes"
        del self.open_requests[request]
        self.ended.add(request)

    def _stop(self, action: actions.Stop) -> None:
        paper = self.workers[action.worker]
        assert not paper.stopping, f"{action.worker} is stopped twice"
        if action.reason in GENTLE:
            for session in [session for session, worker in self.bound.items() if worker == action.worker]:
                self._must_be_quiescent(session, paper)
        if action.reason in (StopReason.UNPINNED, StopReason.MISMATCH):
            self._must_be_kept_by_commands_only(action.worker, paper)
        paper.stopping = True

    def _note(self, event: str, data: dict[str, object]) -> None:
        self.events.append((event, data))
        session = str(data.get("session"))
        if event == "session_bound":
            assert session not in self.bound
            self.bound[session] = str(data["worker"])
        elif event == "session_parked":
            paper = self.workers.get(self.bound.pop(session))
            if data["reason"] in GENTLE_PARTINGS:
                assert paper is not None
                self._must_be_quiescent(session, paper)

    def _must_be_kept_by_commands_only(self, worker: str, paper: PaperWorker) -> None:
        assert paper.background, f"{worker} runs nothing in the background"
        assert self.open_requests, f"{worker} is stopped though nobody waits"
        assert not any(hold.worker == worker for hold in self.holds.values()), f"{worker} is held"

    def _must_be_quiescent(self, session: str, paper: PaperWorker) -> None:
        assert session not in self.busy, f"{session} is busy"
        assert paper.background == 0, f"{session} has background processes"
        assert not any(hold.session == session for hold in self.holds.values()), f"{session} is held"
