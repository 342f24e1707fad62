"""The registry of runs: each step of a run is made durable, published as an event, and only then acted upon."""

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec
import trio

from errors import InternalError, PoolError, UsageError
from gateway.events import EventBus
from gateway.runs.figures import RunFigures
from gateway.runs.index import AcceptedRun, RunIndex, RunRecord, hash_body
from gateway.runs.run import DoneReason, Run, RunOutcome, RunRequest, interrupted_error, outcome_of_error
from gateway.runs.trace import Tracer
from gateway.settings import CurrentSettings
from gateway.turns.client_tools import bounded_calls
from gateway.turns.media import Media
from store.records import RunKey, RunRow, encode_compact
from store.store import Store
from wire.events import EventType
from wire.framing import DECODE_ERRORS
from wire.messages import ErrorBody, TokenUsage
from wire.traceparent import TraceParent

_DONE_TEXT = 256 * 1024
"""Characters."""
_ACCEPTED_TEXT = 2_000
"""Characters of a message in its event; the conversation has all of it."""
_DONE_CALLS = 256 * 1024
"""Bytes."""
_requests = msgspec.json.Decoder(RunRequest)
_outcomes = msgspec.json.Decoder(RunOutcome)


class UnknownRun(UsageError):
    """The principal has no such run, or it is no longer kept."""


class RunRegistry:
    """Every known run, live ones as ``Run`` objects. Wall times, in Unix seconds, come from ``clock``."""

    def __init__(
        self,
        settings: CurrentSettings,
        store: Store,
        bus: EventBus,
        *,
        clock: Callable[[], float] = time.time,
        tracer: Tracer | None = None,
    ) -> None:
        self._index = RunIndex(settings)
        self._settings = settings
        self._store = store
        self._bus = bus
        self._tracer = tracer
        self.clock, self._now = clock, trio.lowlevel.current_clock().current_time
        self.transaction = store.transaction
        """What is written inside outlives a crash as a whole or not at all."""
        self._live: dict[RunKey, Run] = {}
        self._run_count = 0
        self.figures = RunFigures()

    @property
    def live(self) -> int:
        """Runs that have no outcome yet."""
        return len(self._live)

    # --- acceptance -------------------------------------------------------------------------------------------------

    def accept(self, request: RunRequest, body: dict[str, Any]) -> tuple[Run, bool]:
        """The run of a request, and whether it is new; a repeated key gives the run it stands for, live or ended.

        ``body`` is what tells a repeated request from another one under the same key. Raises Conflict, PoolSaturated.
        """
        self._expire()
        known = self._index.accept(
            *request.key,
            hash_body(body),
            self._now(),
            wall_now=self.clock(),
            request=encode_compact(request),
        )
        if isinstance(known, AcceptedRun):
            if known.evicted:
                self._store.delete_runs(known.evicted)
            return self._track(known.run, request), True
        return self._run_of(known.run), False

    def announce(self, run: Run, *, awaits_person: bool = False) -> None:
        """Publish that a new run has its place in a lane.

        ``awaits_person``: the session's running turn waits for a person's answer.
        """
        request = run.request
        facts: dict[str, Any] = {"lane": request.lane, "priority": request.priority, "mode": request.mode}
        if not request.is_quiet:
            facts["text"] = request.text[:_ACCEPTED_TEXT]
            if len(request.text) > _ACCEPTED_TEXT:
                facts["truncated"] = True
        run.accepted_seq = self._record_step(
            run, EventType.RUN_ACCEPTED, {**facts, "awaits_person": True} if awaits_person else facts
        )
        if run.trace is not None:
            trace = run.trace
            self._bus.call_when_visible(run.accepted_seq, lambda: trace.accepted(self.clock()))

    def discard(self, run: Run) -> None:
        """Forget a run that found no place; its key is free again."""
        self._index.discard(run.record)
        del self._live[run.request.key]

    async def wait_durable(self, run: Run) -> None:
        """Wait until the acceptance is durable: only then may the caller have its answer."""
        await self._bus.wait_visible(run.accepted_seq)

    # --- a run's life ---------------------------------------------------------------------------------------------

    def start(self, runs: Collection[Run], *, worker: str, turn: str, leader: Run) -> int:
        """Record that these runs may reach a worker once the returned seq is visible; they are never started again."""
        for run in runs:
            if run.record.started_at is None:  # else steered in vain before, or a worker that never saw it
                self._index.start(run.record, wall_now=self.clock())
                data = {"worker": worker, "turn": turn, "leader": leader.request.run_id}
                run.started_seq = self._record_step(run, EventType.RUN_START, data)
        return max(run.started_seq for run in runs)

    def end(self, run: Run, outcome: RunOutcome) -> int:
        """Keep a run's outcome and publish it; returns the seq of its ``done`` event, for ``settle``."""
        self._index.end(run.record, encode_compact(outcome), self._now(), wall_now=self.clock())
        self.figures.count_run(run.request.agent, outcome)
        if run.trace is not None and self._tracer is not None:
            self._tracer.export(run.trace.spans(run.request, outcome))
        if run.request.is_quiet:  # its answer is not published
            outcome = msgspec.structs.replace(outcome, text="", media=[], silent=True)
        return self._record_step(run, EventType.DONE, _done_data(outcome))

    def announce_ended(self, run: Run, outcome: RunOutcome) -> int:
        """Publish a new run with its outcome at once, so that no crash leaves it to be run; returns as ``end`` does."""
        with self._store.transaction():
            self.announce(run)
            return self.end(run, outcome)

    def settle(self, ended: Iterable[tuple[Run, RunOutcome]], seq: int, *, ends_turn: bool = False) -> None:
        """Once the ``done`` events up to ``seq`` are durable, wake those who wait for the outcomes."""
        self._bus.call_when_visible(seq, partial(self._settle, ended), is_last=ends_turn)

    def fail(self, run: Run, error: PoolError) -> tuple[RunOutcome, int]:
        """End a run that never had a turn."""
        outcome = outcome_of_error(run, error, ended_at=self.clock())
        return outcome, self.end(run, outcome)

    # --- asking -----------------------------------------------------------------------------------------------------

    def find(self, principal: str, run_id: str, session: str | None = None) -> Run:
        """The principal's run of that id. Raises UnknownRun, and UsageError where several sessions have one."""
        self._expire()
        known = self._index.find(principal, run_id, session)
        if known is None:
            raise _unknown_run(run_id)
        if not known.is_live and known.outcome is None:
            raise self._missing_outcome_error(known)
        return self._run_of(known)

    def get(self, principal: str, run_id: str, session: str) -> Run | None:
        """The same without an error, for one session's run."""
        known = self._index.find(principal, run_id, session)
        return None if known is None or (not known.is_live and known.outcome is None) else self._run_of(known)

    # --- recovery -------------------------------------------------------------------------------------------------

    def recover(self, rows: list[RunRow]) -> tuple[list[Run], list[Run]]:
        """Take over what an earlier life left: the runs to be run, in the order of their acceptance, and the others.

        The others may have reached a worker and are ended as interrupted.
        """
        recovered = self._index.load(rows, wall_now=self.clock(), now=self._now())
        if recovered.dropped:
            self._store.delete_runs(recovered.dropped)
        ended = [self._interrupt(known) for known in recovered.interrupted]
        revived = [self._restore(known) for known in recovered.to_run]
        return [run for run in revived if run is not None], ended

    def _interrupt(self, known: RunRecord) -> Run:
        run = self._track(known, _read_request(known) or _bare_request(known))
        self._end_now(run, interrupted_error(run.request))
        return run

    def _restore(self, known: RunRecord) -> Run | None:
        """A run that is to be run now; one whose request cannot be read is ended with that error."""
        request = _read_request(known)
        run = self._track(known, request or _bare_request(known))
        run.accepted_seq = self._bus.head
        if request is None:
            text = f"run {run.request.run_id} was accepted by another version and cannot be read; send it again"
            self._end_now(run, InternalError(text, session=run.request.session))
            return None
        if request.attached:  # its front end ended with the supervisor
            self._end_now(run, interrupted_error(request))
            return None
        return run

    def _end_now(self, run: Run, error: PoolError) -> None:
        """End a run that has no followers yet."""
        outcome, _seq = self.fail(run, error)
        del self._live[run.request.key]
        run.settle(outcome)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _record_step(self, run: Run, type_: EventType, data: Any) -> int:
        """Store the run's state and publish the step: both outlive a crash, or neither does."""
        session, run_id = run.request.session, run.request.run_id
        with self._store.transaction():
            self._store.put_run(msgspec.structs.replace(run.record))
            return self._bus.publish(session, type_, data, run_id=run_id)

    def _settle(self, ended: Iterable[tuple[Run, RunOutcome]]) -> None:
        for run, outcome in ended:
            del self._live[run.request.key]
            run.settle(outcome)

    def _track(self, known: RunRecord, request: RunRequest) -> Run:
        self._run_count += 1
        run = self._live[known.key] = Run(f"r{self._run_count}", request, known)
        if self._tracer is not None:
            run.trace = self._tracer.begin(TraceParent.parse(request.traceparent or ""))
        return run

    def _run_of(self, known: RunRecord) -> Run:
        """The live run itself, or a copy of an ended one, whose outcome may no longer be kept."""
        run = self._live.get(known.key)
        if run is not None:
            return run
        run = Run("", _bare_request(known), known)
        if known.outcome is None:
            run.settle(outcome_of_error(run, self._missing_outcome_error(known), ended_at=known.ended_at or 0.0))
        else:
            run.settle(_outcomes.decode(known.outcome))
        return run

    def _missing_outcome_error(self, known: RunRecord) -> UsageError:
        """Why the outcome of an ended run is no longer kept."""
        if self.clock() - (known.ended_at or 0.0) >= self._settings.value.outcome_age:
            return _unknown_run(known.run_id)
        return UsageError(
            f"run {known.run_id!r} has ended, and its outcome is no longer kept: later outcomes have taken its place "
            "(gateway.outcomes, gateway.outcome_bytes); what it said is in the history of session " + known.session,
            run_id=known.run_id,
            session=known.session,
        )

    def _expire(self) -> None:
        if forgotten := self._index.expire(self._now()):
            self._store.delete_runs(forgotten)


def _read_request(known: RunRecord) -> RunRequest | None:
    """The request; None when another version wrote it in another shape."""
    try:
        return _requests.decode(known.request)
    except DECODE_ERRORS:
        return None


def _bare_request(known: RunRecord) -> RunRequest:
    """A request that only names the run."""
    return RunRequest(principal=known.principal, session=known.session, run_id=known.run_id, text="")


def _unknown_run(run_id: str) -> UnknownRun:
    return UnknownRun(f"there is no run {run_id!r}, or it ended too long ago", run_id=run_id)


class _DoneData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of the ``done`` event: the outcome, with its text.

    Every subscriber gets this event in one piece: a very long text is cut, calls above a size are left out, and the
    event is ``truncated`` then.
    """

    reason: DoneReason
    text: str
    truncated: bool = False
    error: ErrorBody | None = None
    usage: TokenUsage | None = None
    worker: str | None = None
    media: list[Media] = []
    silent: bool = False
    calls: list[dict[str, Any]] = []
    step: int | None = None
    stop_reason: str | None = None
    """Where the reason does not say it: ``max_steps``."""


def _done_data(outcome: RunOutcome) -> _DoneData:
    text = outcome.text
    calls = bounded_calls(outcome.calls, _DONE_CALLS) if outcome.calls else []
    return _DoneData(
        reason=outcome.reason,
        text=text[:_DONE_TEXT],
        truncated=len(text) > _DONE_TEXT or len(calls) < len(outcome.calls),
        error=outcome.error,
        usage=outcome.usage,
        worker=outcome.worker,
        media=outcome.media,
        silent=outcome.silent,
        calls=calls,
        step=outcome.step,
        stop_reason="max_steps" if outcome.stop_reason == "max_steps" else None,
    )
