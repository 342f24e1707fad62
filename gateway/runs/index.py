"""The index of known runs: idempotency keys, states, outcomes, and how long each is remembered. Pure.

Ages are counted on the monotonic ``now`` of the callers, so a wall clock that jumps neither drops nor keeps anything.
Wall times (``wall_now``, Unix seconds) are for the store; ``load`` translates them once.

There may be 100,000 ended runs, and the garbage collector looks at every object that may be part of a cycle: with six
of them for each run it stopped the supervisor for most of a second. What is kept of an ended run is none of them.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from errors import Conflict, PoolSaturated, UsageError
from gateway.settings import CurrentSettings
from store.records import RunKey, RunRow, RunState
from wire.states import transition
from wire.timers import KeyedTimers

RUN_TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.ACCEPTED: frozenset({RunState.STARTED, RunState.ENDED}),
    RunState.STARTED: frozenset({RunState.ENDED}),
    RunState.ENDED: frozenset(),
}

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_RESTART_GRACE = 60.0
"""Seconds for which a key and an outcome outlive a restart at least, however old the wall clock makes them."""


class RunRecord(RunRow, eq=False, gc=False, kw_only=True):
    """One run, live or ended; a copy of it is its row. Only its index changes it.

    ``request`` is the gateway's own JSON, empty once the run has ended; ``outcome`` is None until then, and again when
    it is no longer kept. ``key_until`` is on the monotonic clock.
    """

    key_until: float
    """Until then, and while it is live, its key stands for it."""

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state is not RunState.ENDED


class AcceptedRun(NamedTuple):
    """The run is new. ``evicted``: ended runs that made room for it, among them an earlier run of this key.

    The store deletes them before the new run is written.
    """

    run: RunRecord
    evicted: list[RunKey]


class RepeatedRun(NamedTuple):
    """The same request came before: its run, live or ended."""

    run: RunRecord


class RecoveredRuns(NamedTuple):
    """What an earlier life left behind, each in the order of acceptance."""

    to_run: list[RunRecord]
    """Accepted and never started."""
    interrupted: list[RunRecord]
    """Started and never ended; live until they are ended."""
    dropped: list[RunKey]
    """Ended ones for which there is no room; the store deletes them."""


class RunIndex:
    """Every run known, by principal, session and run id. Every method costs O(log n) or less.

    After a reload what is remembered keeps its time; numbers hold from the next run on.
    """

    def __init__(self, settings: CurrentSettings) -> None:
        self.settings = settings
        self._by_name: dict[tuple[str, str], RunRecord | dict[str, RunRecord]] = {}
        """By principal and run id; and where several sessions have a run of that name, by session."""
        self._size = 0
        self._live_bytes = 0
        self._outcome_bytes = 0
        self._ended: OrderedDict[RunKey, RunRecord] = OrderedDict()
        """In the order of their ends, as ``_outcomes``: those of them whose outcome is kept."""
        self._outcomes: OrderedDict[RunKey, RunRecord] = OrderedDict()
        self._timers = KeyedTimers[RunKey]()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[RunRecord]:
        return (run for name in self._by_name for run in self._of_name(name))

    @property
    def live(self) -> int:
        """Runs that have not ended."""
        return self._size - len(self._ended)

    def get(self, key: RunKey) -> RunRecord | None:
        """The run of exactly this key."""
        principal, session, run_id = key
        found = self._by_name.get((principal, run_id))
        if isinstance(found, dict):
            return found.get(session)
        return found if found is not None and found.session == session else None

    def find(self, principal: str, run_id: str, session: str | None = None) -> RunRecord | None:
        """The principal's run of this id; None when there is none.

        Raises UsageError when several sessions have one and ``session`` does not say which is meant.
        """
        if session is not None:
            return self.get((principal, session, run_id))
        runs = self._of_name((principal, run_id))
        if len(runs) > 1:
            raise UsageError(f"{len(runs)} sessions have a run {run_id!r}; give the session too", run_id=run_id)
        return next(iter(runs), None)

    # --- a run's life ---------------------------------------------------------------------------------------------

    def accept(
        self,
        principal: str,
        session: str,
        run_id: str,
        body_hash: str,
        now: float,
        *,
        wall_now: float,
        request: bytes = b"{}",
    ) -> AcceptedRun | RepeatedRun:
        """Take a request: as a new run, or as one that is known, for as long as its key stands for it.

        A key stands for its run while that is live, and for ``idempotency_window`` from its acceptance. Raises
        Conflict when it stands for another body, PoolSaturated when the table is full of live runs.
        """
        key = (principal, session, run_id)
        known = self.get(key)
        if known is not None and (known.is_live or now < known.key_until):
            return self._repeat(known, body_hash)
        limit = self.settings.value.pending_bytes
        if self._live_bytes + len(request) > limit:
            raise PoolSaturated(
                f"{self._live_bytes:,} bytes of messages wait or run, the limit is {limit:,} "
                "(gateway.pending_bytes); try again later",
                retry_after=1.0,
            )
        if known is not None:
            self._remove(known)
        evicted = self._make_room() if known is None else [key]
        run = RunRecord(
            principal=principal,
            session=session,
            run_id=run_id,
            state=RunState.ACCEPTED,
            body_hash=body_hash,
            request=request,
            accepted_at=wall_now,
            key_until=now + self.settings.value.idempotency_window,
        )
        self._insert(run)
        return AcceptedRun(run, evicted)

    def start(self, run: RunRecord, *, wall_now: float) -> None:
        """Its turn may reach the worker from now on. Raises IllegalTransition unless it was only accepted."""
        run.state = transition(RUN_TRANSITIONS, run.state, RunState.STARTED)
        run.started_at = wall_now

    def end(self, run: RunRecord, outcome: bytes, now: float, *, wall_now: float) -> None:
        """Keep its outcome. Raises IllegalTransition when it had one already."""
        run.state = transition(RUN_TRANSITIONS, run.state, RunState.ENDED)
        run.ended_at = wall_now
        run.outcome = outcome
        self._live_bytes -= len(run.request)
        run.request = b""
        self._keep_outcome(run, now + self.settings.value.outcome_age)

    def discard(self, run: RunRecord) -> None:
        """Forget a run that could not be taken up after all, so that its key is free again.

        Raises IllegalTransition for one that has started: it may have had effects, and its key must stand for it.
        """
        transition(RUN_TRANSITIONS, run.state, RunState.STARTED)
        self._remove(run)

    # --- forgetting -----------------------------------------------------------------------------------------------

    def expire(self, now: float) -> list[RunKey]:
        """Forget what is due; returns the keys of the runs that are known no longer."""
        forgotten: list[RunKey] = []
        while due := self._timers.pop_due(now):
            for key in due:
                run = self._ended[key]
                if key in self._outcomes or now < run.key_until:
                    self._drop_outcome(run)  # the key stays for as long as it stands for the run
                    self._timers.set(key, run.key_until)
                else:
                    self._remove(run)
                    forgotten.append(key)
        return forgotten

    # --- recovery -------------------------------------------------------------------------------------------------

    def load(self, rows: Iterable[RunRow], *, wall_now: float, now: float) -> RecoveredRuns:
        """Take over what an earlier life left, into an empty table; ``rows`` in the order of acceptance.

        A stored time becomes the monotonic ``now`` minus its age by the wall clock. That clock may have been set
        meanwhile, so an age is never negative, and a key or an outcome is kept for at least a
        minute (less where the settings say less) and at most its whole time from now.
        """
        runs = [self._restored(row, wall_now, now) for row in rows]
        for run in runs:
            self._insert(run)
        ended = [run for run in runs if not run.is_live]
        for run in sorted(ended, key=lambda run: run.ended_at or 0.0):
            age = wall_now - (run.ended_at or 0.0)
            self._keep_outcome(run, now + _time_left(self.settings.value.outcome_age, age))
        over = min(self._size - self.settings.value.runs, len(self._ended))
        dropped = [self._evict() for _ in range(over)]
        return RecoveredRuns(
            to_run=[run for run in runs if run.state is RunState.ACCEPTED],
            interrupted=[run for run in runs if run.state is RunState.STARTED],
            dropped=dropped,
        )

    def _restored(self, row: RunRow, wall_now: float, now: float) -> RunRecord:
        window = _time_left(self.settings.value.idempotency_window, wall_now - row.accepted_at)
        return RunRecord(**{**msgspec.structs.asdict(row), "key_until": now + window})

    # --- inside ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _repeat(known: RunRecord, body_hash: str) -> RepeatedRun:
        if known.body_hash != body_hash:
            raise Conflict(
                f"run {known.run_id!r} of session {known.session} stands for another request; "
                "use a new key for a new one",
                session=known.session,
                run_id=known.run_id,
            )
        return RepeatedRun(known)

    def _make_room(self) -> list[RunKey]:
        if (live := self._size - len(self._ended)) >= self.settings.value.runs:
            raise PoolSaturated(
                f"{live} runs are live, which is the limit (gateway.runs); try again later", retry_after=1.0
            )
        return [self._evict() for _ in range(self._size - self.settings.value.runs + 1)]

    def _evict(self) -> RunKey:
        """Forget the run that ended first."""
        run = next(iter(self._ended.values()))
        self._remove(run)
        return run.key

    def _keep_outcome(self, run: RunRecord, until: float) -> None:
        key = run.key
        self._ended[key] = self._outcomes[key] = run
        self._outcome_bytes += len(run.outcome or b"")
        self._timers.set(key, until)
        limits = self.settings.value
        while (kept := len(self._outcomes)) > limits.outcomes or (
            kept > 1 and self._outcome_bytes > limits.outcome_bytes
        ):
            self._drop_outcome(next(iter(self._outcomes.values())))  # that there was one is known until it is too old

    def _drop_outcome(self, run: RunRecord) -> None:
        if self._outcomes.pop(run.key, None) is not None:
            self._outcome_bytes -= len(run.outcome or b"")
        run.outcome = None

    def _of_name(self, name: tuple[str, str]) -> Collection[RunRecord]:
        found = self._by_name.get(name, {})
        return found.values() if isinstance(found, dict) else (found,)

    def _insert(self, run: RunRecord) -> None:
        found = self._by_name.setdefault((run.principal, run.run_id), run)
        if isinstance(found, dict):
            found[run.session] = run
        elif found is not run:
            self._by_name[run.principal, run.run_id] = {found.session: found, run.session: run}
        self._size += 1
        self._live_bytes += len(run.request) if run.state is not RunState.ENDED else 0

    def _remove(self, run: RunRecord) -> None:
        self._timers.discard(run.key)
        found = self._by_name[run.principal, run.run_id]
        if isinstance(found, dict):
            del found[run.session]
        if not isinstance(found, dict) or not found:
            del self._by_name[run.principal, run.run_id]
        self._size -= 1
        self._live_bytes -= len(run.request) if run.is_live else 0
        self._ended.pop(run.key, None)
        self._drop_outcome(run)


def _time_left(whole: float, age: float) -> float:
    return min(max(whole - age, _RESTART_GRACE), whole)


def hash_body(body: Mapping[str, Any] | msgspec.Struct) -> str:
    """The sha256, in hex, of what makes a request: the same for any order of keys, and for None as for left out.

    Pass what decides what the run does, not how it is followed.
    """
    facts = msgspec.structs.asdict(body) if isinstance(body, msgspec.Struct) else body
    given = {name: value for name, value in facts.items() if value is not None}
    return hashlib.sha256(_encode_sorted(given)).hexdigest()
