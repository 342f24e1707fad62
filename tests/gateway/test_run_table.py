"""The table of runs: one key is one run, a live one is never lost, an ended one is remembered for its time."""

import gc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from errors import Conflict, PoolSaturated, UsageError
from gateway.runs.index import AcceptedRun, RepeatedRun, RunIndex, RunRecord, hash_body
from gateway.settings import CurrentSettings, GatewaySettings
from store.records import RunRow, RunState
from wire.states import IllegalTransition
from wire.units import ByteCount, Seconds

WINDOW, AGE = 300.0, 600.0
WALL = 1_700_000_000.0


def row_of(run: RunRecord) -> RunRow:
    return RunRow(**{name: getattr(run, name) for name in RunRow.__struct_fields__})


def table(**limits: Any) -> RunIndex:
    return RunIndex(CurrentSettings(GatewaySettings(**limits)))


def accept(runs: RunIndex, run_id: str, now: float = 0.0, **other: Any) -> RunRecord:
    """Accept a run that must be new."""
    answer = take(runs, run_id, now, **other)
    assert isinstance(answer, AcceptedRun)
    return answer.run


def take(
    runs: RunIndex, run_id: str, now: float = 0.0, *, session: str = "s", body: str = "b", **other: Any
) -> AcceptedRun | RepeatedRun:
    return runs.accept("uid:1", session, run_id, body, now, **{"wall_now": WALL + now, **other})


def ended(runs: RunIndex, run_id: str, now: float = 0.0, *, outcome: bytes = b"{}", **other: Any) -> RunRecord:
    run = accept(runs, run_id, now, **other)
    runs.end(run, outcome, now, wall_now=WALL + now)
    return run


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_are_scoped_by_principal_and_session_and_another_body_is_a_conflict() -> None:
    runs = table()
    mine = accept(runs, "a")
    other_session = accept(runs, "a", session="t", body="other")
    theirs = runs.accept("uid:2", "s", "a", "other", 0.0, wall_now=WALL)
    assert len({mine.key, other_session.key, theirs.run.key}) == len(runs) == 3
    with pytest.raises(Conflict, match="'a' of session s") as caught:
        take(runs, "a", 1.0, body="other")
    assert caught.value.details == {"session": "s", "run_id": "a"}


def test_a_run_is_found_by_its_id_alone_unless_several_sessions_have_one() -> None:
    runs = table()
    first = accept(runs, "a")
    assert (runs.find("uid:1", "a"), runs.find("uid:2", "a")) == (first, None)
    second, third = accept(runs, "a", session="t"), accept(runs, "a", session="v")
    with pytest.raises(UsageError, match="3 sessions have a run 'a'; give the session"):
        runs.find("uid:1", "a")
    assert (runs.find("uid:1", "a", "t"), runs.find("uid:1", "a", "u")) == (second, None)
    runs.discard(second)
    runs.discard(third)
    assert runs.find("uid:1", "a") is first
    assert list(runs) == [first]


def test_a_run_that_could_not_be_taken_up_frees_its_key_unless_it_has_started() -> None:
    runs = table()
    runs.discard(accept(runs, "a"))
    run = accept(runs, "a", body="other")
    runs.start(run, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.discard(run)
    assert runs.get(run.key) is run


# --- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("starts", [True, False])
def test_a_run_is_accepted_then_perhaps_started_and_then_ended_once(*, starts: bool) -> None:
    runs = table()
    run = accept(runs, "a", request=b'{"text":"hi"}')
    assert row_of(run).request == b'{"text":"hi"}'
    if starts:
        runs.start(run, wall_now=WALL + 1)
        with pytest.raises(IllegalTransition):
            runs.start(run, wall_now=WALL)
    runs.end(run, b"out", 2.0, wall_now=WALL + 2)
    with pytest.raises(IllegalTransition):
        runs.start(run, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.end(run, b"again", 0.0, wall_now=WALL)
    row = row_of(run)
    assert (row.principal, row.session, row.run_id, row.state) == ("uid:1", "s", "a", RunState.ENDED)
    assert (row.accepted_at, row.started_at) == (WALL, WALL + 1 if starts else None)
    assert (row.ended_at, row.outcome, row.request) == (WALL + 2, b"out", b"")


# --- room -------------------------------------------------------------------------------------------------------------


def test_a_full_table_says_so_and_a_lower_limit_makes_room_without_losing_live_runs() -> None:
    runs = table()
    live = [accept(runs, name) for name in "ab"]
    old = [ended(runs, name) for name in "cdef"]
    runs.settings.value = GatewaySettings(runs=3)
    answer = take(runs, "g")
    assert isinstance(answer, AcceptedRun)
    assert answer.evicted == [run.key for run in old]
    assert set(runs) == {*live, answer.run}
    with pytest.raises(PoolSaturated, match=r"3 runs are live.*gateway\.runs") as caught:
        take(runs, "h")
    assert caught.value.retry_after


def test_messages_that_wait_are_bounded_in_bytes_and_make_room_when_they_end() -> None:
    runs = table(pending_bytes=ByteCount(100))
    first = accept(runs, "a", request=b"x" * 60)
    with pytest.raises(PoolSaturated, match="pending_bytes"):
        accept(runs, "b", request=b"x" * 60)
    runs.end(first, b"{}", 0.0, wall_now=WALL)
    runs.discard(accept(runs, "b", request=b"x" * 60))
    accept(runs, "a", WINDOW, request=b"x" * 80)  # the key that stood for an ended run makes no room
    with pytest.raises(PoolSaturated):
        accept(runs, "b", request=b"x" * 30)


def test_outcomes_are_bounded_in_bytes_and_the_latest_is_kept_in_any_case() -> None:
    runs = table(outcome_bytes=ByteCount(100))
    kept = [ended(runs, name, outcome=b"x" * size) for name, size in (("a", 60), ("b", 60), ("c", 500))]
    assert [len(run.outcome or b"") for run in kept] == [0, 0, 500]
    runs.expire(AGE)
    kept = [ended(runs, name, AGE, outcome=b"x" * 50) for name in "de"]
    assert [len(run.outcome or b"") for run in kept] == [50, 50]


def test_ended_runs_leave_no_pile_of_timers_and_nothing_that_the_garbage_collector_has_to_look_at() -> None:
    runs, few = table(), table(runs=10)
    for number in range(100):
        ended(runs, str(number))
    gc.collect()
    before = len(gc.get_objects())
    for number in range(100, 1_100):
        ended(runs, str(number))
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    for number in range(2_000):
        ended(few, str(number), now=number / 1000)
    assert len(few._timers._heap) < 200


# --- the next life ----------------------------------------------------------------------------------------------------


def row(run_id: str, state: RunState = RunState.ENDED, *, took: float = 1.0) -> RunRow:
    is_over = state is RunState.ENDED
    return RunRow(
        principal="uid:1",
        session="s",
        run_id=run_id,
        state=state,
        body_hash="b",
        request=b"",
        accepted_at=WALL,
        started_at=None if state is RunState.ACCEPTED else WALL,
        ended_at=WALL + took if is_over else None,
        outcome=b"{}" if is_over else None,
    )


def with_outcome(runs: RunIndex) -> list[str]:
    """Those whose outcomes can be asked for."""
    return [run.key[2] for run in runs if run.outcome is not None]


def test_a_new_life_learns_what_to_run_what_was_interrupted_and_what_has_ended() -> None:
    runs = table()
    rows = [row("a", RunState.STARTED), row("b", RunState.ACCEPTED), row("c"), row("d", RunState.ACCEPTED)]
    found = runs.load(rows, wall_now=WALL + 100, now=5.0)
    assert [run.key[2] for run in found.to_run] == ["b", "d"]
    assert [run.key[2] for run in found.interrupted] == ["a"]
    assert (with_outcome(runs), found.dropped) == (["c"], [])
    assert [row_of(run) for run in runs] == rows
    assert take(runs, "a", 10_000.0) == RepeatedRun(found.interrupted[0])
    runs.end(found.interrupted[0], b"interrupted", 5.0, wall_now=WALL + 100)
    runs.start(found.to_run[0], wall_now=WALL + 100)


def test_the_time_a_restart_took_counts() -> None:
    runs = table()
    runs.load([row("a")], wall_now=WALL + 101, now=5.0)
    assert isinstance(take(runs, "a", 5.0 + WINDOW - 102), RepeatedRun)
    assert isinstance(take(runs, "a", 5.0 + WINDOW - 101), AcceptedRun)
    other = table()
    other.load([row("a")], wall_now=WALL + 101, now=5.0)
    other.expire(5.0 + AGE - 101)
    assert with_outcome(other) == ["a"]
    other.expire(5.0 + AGE - 100)
    assert with_outcome(other) == []


@pytest.mark.parametrize("jump", [1e9, -1e9])
def test_a_clock_set_between_two_lives_drops_nothing_at_once_and_keeps_nothing_for_ever(jump: float) -> None:
    runs = table()
    live = row("live", RunState.STARTED)
    runs.load([live, *map(row, "abc")], wall_now=WALL + jump, now=5.0)
    assert runs.expire(5.0 + 59) == []
    assert isinstance(take(runs, "a", 5.0 + 59), RepeatedRun)
    assert len(runs.expire(5.0 + AGE)) == 3
    assert [row_of(run) for run in runs] == [live]


def test_a_load_keeps_within_the_limits_and_every_live_run() -> None:
    runs = table(runs=3, outcomes=1)
    live = [row(name, RunState.ACCEPTED) for name in "xy"]
    found = runs.load([*live, row("late", took=3), row("early", took=1), row("mid", took=2)], wall_now=WALL, now=0.0)
    assert [key[2] for key in found.dropped] == ["early", "mid"]
    assert (with_outcome(runs), len(runs)) == (["late"], 3)
    crowded = table(runs=1)
    assert (crowded.load(live, wall_now=WALL, now=0.0).dropped, crowded.live) == ([], 2)


# --- any history ------------------------------------------------------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, the table agrees with a plain list of what was accepted and ended when."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table(runs=6, outcomes=3, idempotency_window=Seconds(30), outcome_age=Seconds(20))
        self.now = 0.0
        self.model: dict[str, RunRecord] = {}
        self.accepted: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        """Of those that are known, in the order of their ends; ``outcomes``: those whose outcome is kept."""
        self.outcomes: list[str] = []

    def forget(self, name: str) -> None:
        del self.model[name], self.ended[name]
        self.outcomes = [each for each in self.outcomes if each != name]

    @rule(name=st.sampled_from("abcdefgh"), body=st.sampled_from("12"), wall=st.floats(0, 2e9))
    def accept(self, name: str, body: str, wall: float) -> None:
        known = self.model.get(name)
        stands = known is not None and (known.is_live or self.now < self.accepted[name] + 30)
        try:
            answer = self.table.accept("p", "s", name, body, self.now, wall_now=wall)
        except Conflict:
            assert known is not None
            assert stands
            assert known.body_hash != body
        except PoolSaturated:
            assert known is None
            assert len(self.model) - len(self.ended) == 6
        else:
            if isinstance(answer, RepeatedRun):
                assert stands
                assert answer.run is known
                assert answer.run.body_hash == body
                return
            assert not stands
            evicted = [name] if known else [next(iter(self.ended))] if len(self.model) == 6 else []
            assert [key[2] for key in answer.evicted] == evicted
            for each in evicted:
                self.forget(each)
            self.model[name], self.accepted[name] = answer.run, self.now

    @rule(name=st.sampled_from("abcdefgh"), wall=st.floats(0, 2e9))
    def advance_run(self, name: str, wall: float) -> None:
        run = self.model.get(name)
        if run is None or not run.is_live:
            return
        if run.state is RunState.ACCEPTED:
            self.table.start(run, wall_now=wall)
        else:
            self.table.end(run, b"{}", self.now, wall_now=wall)
            self.ended[name] = self.now
            self.outcomes = [*self.outcomes, name][-3:]

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 15.0, 25.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        old = [name for name, at in self.ended.items() if self.now >= at + 20]
        self.outcomes = [name for name in self.outcomes if name not in old]
        forgotten = {name for name in old if self.now >= self.accepted[name] + 30}
        for name in forgotten:
            self.forget(name)
        assert {key[2] for key in self.table.expire(self.now)} == forgotten

    @invariant()
    def agree(self) -> None:
        assert {run.key[2]: run for run in self.table} == self.model
        assert (len(self.table), self.table.live) == (len(self.model), len(self.model) - len(self.ended))
        assert sorted(with_outcome(self.table)) == sorted(self.outcomes)


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestAnyHistory = AnyHistory.TestCase


# --- bodies -----------------------------------------------------------------------------------------------------------

facts = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
bodies = st.dictionaries(st.text(max_size=5), facts | st.lists(facts, max_size=3), max_size=5)


@given(bodies, bodies, st.randoms())
@settings(max_examples=60)
def test_bodies_have_one_hash_exactly_where_they_are_alike_in_any_order_and_none_is_as_good_as_left_out(
    one: dict[str, Any], other: dict[str, Any], rng: Any
) -> None:
    items = [(name, value) for name, value in one.items() if value is not None]
    rng.shuffle(items)
    assert hash_body(dict(items)) == hash_body({**one, "absent": None} if "absent" not in one else one)
    given_facts = [repr(sorted((n, v) for n, v in b.items() if v is not None)) for b in (one, other)]
    assert (hash_body(one) == hash_body(other)) is (given_facts[0] == given_facts[1])


def test_a_struct_and_its_fields_have_the_same_hash() -> None:
    class Body(msgspec.Struct):
        text: str
        timeout: float | None = None

    assert hash_body(Body("hi")) == hash_body({"text": "hi"})
    assert len(hash_body({})) == 64
