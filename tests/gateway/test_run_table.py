"""The table of runs: one key is one run, a live one is never lost, an ended one is remembered for its time."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from errors import Conflict, PoolSaturated, UsageError
from gateway.runs.index import AcceptedRun, RepeatedRun, RunIndex, RunRecord, hash_body
from gateway.settings import CurrentSettings, GatewaySettings
from store.records import RunRow, RunState
from wire.states import IllegalTransition
from wire.units import Seconds

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


def ended(runs: RunIndex, run_id: str, now: float = 0.0, **other: Any) -> RunRecord:
    run = accept(runs, run_id, now, **other)
    runs.end(run, b'{"status":"ok"}', now, wall_now=WALL + now)
    return run


# --- keys -------------------------------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_run_while_it_lives_and_for_its_window() -> None:
    runs = table()
    run = accept(runs, "a")
    assert take(runs, "a", 10_000.0) == RepeatedRun(run)
    runs.end(run, b"{}", 100.0, wall_now=WALL)
    assert take(runs, "a", WINDOW - 0.1) == RepeatedRun(run)
    answer = take(runs, "a", WINDOW)
    assert isinstance(answer, AcceptedRun)
    assert answer.run is not run
    assert answer.evicted == [run.key]
    assert len(runs) == 1


def test_the_same_key_with_another_body_is_a_conflict_for_as_long_as_the_key_stands() -> None:
    runs = table()
    ended(runs, "a")
    with pytest.raises(Conflict, match="'a' of session s") as caught:
        take(runs, "a", 1.0, body="other")
    assert caught.value.details == {"session": "s", "run_id": "a"}
    assert accept(runs, "a", WINDOW, body="other").body_hash == "other"


def test_keys_are_scoped_by_principal_and_session() -> None:
    runs = table()
    mine = accept(runs, "a")
    other_session = accept(runs, "a", session="t", body="other")
    theirs = runs.accept("uid:2", "s", "a", "other", 0.0, wall_now=WALL)
    assert len({mine.key, other_session.key, theirs.run.key}) == len(runs) == 3


def test_a_run_is_found_by_its_id_alone_unless_several_sessions_have_one() -> None:
    runs = table()
    first = accept(runs, "a")
    assert runs.find("uid:1", "a") is first
    assert runs.find("uid:2", "a") is None
    second = accept(runs, "a", session="t")
    with pytest.raises(UsageError, match="2 sessions have a run 'a'; give the session"):
        runs.find("uid:1", "a")
    assert runs.find("uid:1", "a", "t") is second
    assert runs.find("uid:1", "a", "u") is None
    runs.discard(second)
    assert runs.find("uid:1", "a") is first


def test_a_run_that_could_not_be_taken_up_frees_its_key_unless_it_has_started() -> None:
    runs = table()
    runs.discard(accept(runs, "a"))
    run = accept(runs, "a", body="other")
    runs.start(run, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.discard(run)
    assert runs.get(run.key) is run


# --- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [["start", "end"], ["end"]])
def test_a_run_is_accepted_then_started_then_ended(path: list[str]) -> None:
    runs = table()
    run = accept(runs, "a", request=b'{"text":"hi"}')
    assert row_of(run).request == b'{"text":"hi"}'
    for step in path:
        if step == "start":
            runs.start(run, wall_now=WALL + 1)
        else:
            runs.end(run, b"out", 2.0, wall_now=WALL + 2)
    row = row_of(run)
    assert (row.principal, row.session, row.run_id, row.state) == ("uid:1", "s", "a", RunState.ENDED)
    assert (row.accepted_at, row.ended_at, row.outcome, row.request) == (WALL, WALL + 2, b"out", b"")


def test_no_run_starts_twice_ends_twice_or_starts_after_its_end() -> None:
    runs = table()
    run = accept(runs, "a")
    runs.start(run, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.start(run, wall_now=WALL)
    runs.end(run, b"{}", 0.0, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.start(run, wall_now=WALL)
    with pytest.raises(IllegalTransition):
        runs.end(run, b"again", 0.0, wall_now=WALL)
    assert run.outcome == b"{}"


# --- forgetting -------------------------------------------------------------------------------------------------------


def test_an_outcome_is_kept_for_its_age_and_then_the_run_is_forgotten() -> None:
    runs = table()
    run = accept(runs, "a")
    runs.end(run, b"{}", 50.0, wall_now=WALL)
    assert runs.expire(50.0 + AGE - 0.1) == []
    assert runs.expire(50.0 + AGE) == [run.key]
    assert (len(runs), runs.find("uid:1", "a")) == (0, None)


def test_a_key_outlives_an_outcome_that_is_kept_for_a_shorter_time() -> None:
    runs = table(outcome_age=Seconds(10))
    run = ended(runs, "a")
    assert runs.expire(10.0) == []
    assert run.outcome is None
    assert take(runs, "a", WINDOW - 1) == RepeatedRun(run)
    assert runs.expire(WINDOW) == [run.key]


def test_only_the_latest_outcomes_are_kept_and_the_keys_of_the_others_still_stand() -> None:
    runs = table(outcomes=2)
    all_runs = [ended(runs, name) for name in "abcd"]
    assert [run.outcome is None for run in all_runs] == [True, True, False, False]
    assert take(runs, "a", 1.0) == RepeatedRun(all_runs[0])
    assert runs.expire(WINDOW) == [], "that they have ended is known for as long as their outcomes would be"
    assert runs.expire(AGE) == [run.key for run in all_runs]


def test_a_full_table_gives_up_the_run_that_ended_first_and_never_a_live_one() -> None:
    runs = table(runs=3)
    live = accept(runs, "live")
    first, second = ended(runs, "a"), ended(runs, "b")
    answers = [take(runs, "c"), take(runs, "d")]
    assert [answer.evicted for answer in answers if isinstance(answer, AcceptedRun)] == [[first.key], [second.key]]
    with pytest.raises(PoolSaturated, match=r"3 runs are live.*gateway\.runs") as caught:
        take(runs, "e")
    assert caught.value.retry_after
    assert take(runs, "live") == RepeatedRun(live)
    assert (len(runs), runs.live) == (3, 3)


def test_a_lower_limit_after_a_reload_makes_room_without_losing_live_runs() -> None:
    runs = table()
    live = [accept(runs, name) for name in "ab"]
    old = [ended(runs, name) for name in "cdef"]
    runs.settings.value = GatewaySettings(runs=3)
    answer = take(runs, "g")
    assert isinstance(answer, AcceptedRun)
    assert answer.evicted == [run.key for run in old]
    assert set(runs) == {*live, answer.run}
    with pytest.raises(PoolSaturated):
        take(runs, "h")


def test_one_name_in_several_sessions_is_forgotten_in_each() -> None:
    runs = table()
    for number in range(3):
        ended(runs, "same", session=f"s{number}")
    assert [run.key[1] for run in runs] == ["s0", "s1", "s2"]
    assert len(runs.expire(AGE)) == 3
    assert list(runs) == []
    assert accept(runs, "same", AGE).key == ("uid:1", "s", "same")


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_wall_clock_that_jumps_drops_nothing_and_keeps_nothing(jump: float) -> None:
    runs = table()
    run = accept(runs, "a", 0.0)
    runs.end(run, b"{}", 2.0, wall_now=WALL + jump)
    assert take(runs, "a", 5.0, wall_now=WALL + jump + 5) == RepeatedRun(run)
    assert runs.expire(5.0) == []
    assert runs.expire(2.0 + AGE) == [run.key]


def row(run_id: str, state: RunState = RunState.ENDED, *, at: float = WALL, took: float = 1.0) -> RunRow:
    is_over = state is RunState.ENDED
    return RunRow(
        principal="uid:1",
        session="s",
        run_id=run_id,
        state=state,
        body_hash="b",
        request=b"",
        accepted_at=at,
        started_at=None if state is RunState.ACCEPTED else at,
        ended_at=at + took if is_over else None,
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
    assert with_outcome(runs) == ["c"]
    assert found.dropped == []
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
    assert with_outcome(other) == ["a"]
    other.expire(5.0 + AGE - 100)
    assert with_outcome(other) == []


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 1e9, -1e9])
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
    assert with_outcome(runs) == ["late"]
    assert len(runs) == 3
    crowded = table(runs=1)
    assert crowded.load(live, wall_now=WALL, now=0.0).dropped == []
    assert crowded.live == 2


# --- any history ------------------------------------------------------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, the table agrees with a plain list of what was accepted and ended when."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table(runs=6, outcomes=3, idempotency_window=Seconds(30), outcome_age=Seconds(60))
        self.now = 0.0
        self.model: dict[str, RunRecord] = {}
        self.accepted: dict[str, float] = {}
        self.ended_at: dict[str, float] = {}

    @rule(name=st.sampled_from("abcdefgh"), body=st.sampled_from("12"), wall=st.floats(0, 2e9))
    def accept(self, name: str, body: str, wall: float) -> None:
        known = self.model.get(name)
        stands = known is not None and (known.is_live or self.now < self.accepted[name] + 30)
        live = sum(run.is_live for run in self.model.values())
        try:
            answer = self.table.accept("p", "s", name, body, self.now, wall_now=wall)
        except Conflict:
            assert known is not None
            assert stands
            assert known.body_hash != body
        except PoolSaturated:
            assert not stands
            assert known is None
            assert live == 6
        else:
            assert isinstance(answer, RepeatedRun) is stands
            if isinstance(answer, RepeatedRun):
                assert answer.run is known
                assert answer.run.body_hash == body
            else:
                for key in answer.evicted:
                    assert not self.model.pop(key[2]).is_live
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
            self.ended_at[name] = self.now

    @rule(seconds=st.sampled_from([0.0, 1.0, 20.0, 45.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key in self.table.expire(self.now):
            name = key[2]
            assert not self.model.pop(name).is_live
            assert self.now >= self.accepted[name] + 30

    @invariant()
    def agree(self) -> None:
        assert {run.key[2]: run for run in self.table} == self.model
        assert len(self.table) == len(self.model) <= 6
        assert self.table.live == sum(run.is_live for run in self.model.values())
        outcomes = [name for name, run in self.model.items() if run.outcome is not None]
        assert len(outcomes) <= 3
        assert all(self.now < self.ended_at[name] + 60 for name in outcomes)

    def teardown(self) -> None:
        """In the end nothing is remembered but what still lives."""
        self.table.expire(self.now + 1000.0)
        assert all(run.is_live for run in self.table)


TestAnyHistory = AnyHistory.TestCase


# --- bodies -----------------------------------------------------------------------------------------------------------

facts = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
bodies = st.dictionaries(st.text(), facts | st.lists(facts) | st.dictionaries(st.text(), facts))


@given(bodies, st.randoms())
def test_a_body_has_one_hash_in_any_order_and_none_is_as_good_as_left_out(body: dict[str, Any], rng: Any) -> None:
    items = list(body.items())
    rng.shuffle(items)
    assert hash_body(dict(items)) == hash_body(body)
    without = {name: value for name, value in body.items() if name != "absent"}
    assert hash_body({**without, "absent": None}) == hash_body(without)


@given(bodies, bodies)
def test_different_bodies_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    def given_facts(body: dict[str, Any]) -> str:
        facts = sorted((name, repr(sort(value))) for name, value in body.items() if value is not None)
        return repr(facts)

    def sort(value: Any) -> Any:
        return dict(sorted(value.items())) if isinstance(value, dict) else value

    assert (hash_body(one) == hash_body(other)) is (given_facts(one) == given_facts(other))


def test_a_struct_and_its_fields_have_the_same_hash() -> None:
    class Body(msgspec.Struct):
        text: str
        timeout: float | None = None

    assert hash_body(Body("hi")) == hash_body({"text": "hi"})
    assert len(hash_body({})) == 64
