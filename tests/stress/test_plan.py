"""What is asked for becomes a plan, and a plan becomes choices: as stated, and the same ones for the same seed."""

import math
import shlex
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commands.stress import stress
from errors import UsageError
from stress.agents import AGENTS
from stress.arrivals import Arrival, mix_in_faulty, zipf_weights
from stress.attached_target import PoolLimits
from stress.faults import faults_of
from stress.faults.base import FaultSetup
from stress.plan import _BOUNDS, FAULTS, LOADS, LoadName, Plan, StressOptions, make_plan, read_scale
from stress.schedule import all_arrivals, all_fault_events, check_rules

LIMITS = PoolLimits(max=4, spawn_burst=8, spawn_rate=4.0, backoff_max=2.0, age_step=3.0)


def plan_of(**wish: Any) -> Plan:
    return make_plan(StressOptions(**wish))


def arrivals_of(**wish: Any) -> list[Arrival]:
    return list(all_arrivals(plan_of(**wish), []))


def test_the_first_load_is_ten_thousand_sessions_over_64_workers_of_8_profiles_at_utilisation_0_8() -> None:
    plan = plan_of(load="L1")
    assert (plan.sessions, plan.workers, len(plan.roles), plan.requests) == (10_000, 64, 8, 20_000)
    assert plan.rate * plan.turn == pytest.approx(0.8 * 64, rel=0.15)  # the rest is what a turn costs beside its time


def test_an_overload_asks_for_one_and_a_half_times_what_the_workers_can_do() -> None:
    assert plan_of(load="L2").rate * plan_of(load="L2").turn > 1.3 * 64


def test_a_burst_has_3200_waiters_at_one_moment_and_again_when_all_are_served() -> None:
    found = arrivals_of(load="L3")
    assert {arrival.at for arrival in found} == {0.0}
    assert [arrival.number for arrival in found if arrival.alone] == [3200]
    assert len({arrival.session for arrival in found[:3200]}) == 3200


def test_there_are_500_front_ends_where_they_matter_each_with_a_session() -> None:
    for load in ("L4", "L6"):
        assert (plan_of(load=load).front_ends, plan_of(load=load).sessions) == (500, 500)
    assert plan_of(load="L1").front_ends == 0


def test_scale_shrinks_every_load() -> None:
    for load in LOADS:
        whole, small = plan_of(load=load), plan_of(load=load, scale=1 / 20)
        assert small.sessions < whole.sessions
        assert small.workers < whole.workers
        assert small.requests < whole.requests


def test_what_is_named_counts_before_the_scale() -> None:
    plan = plan_of(scale=1 / 20, sessions=77, workers=5, requests=11, rate=3.0)
    assert (plan.sessions, plan.workers, plan.requests, plan.rate) == (77, 5, 11, 3.0)


def test_faults_begin_after_a_calm_to_compare_with() -> None:
    plan = plan_of(faults=("F1",), seconds=100.0)
    assert plan.ramp < plan.calm < 100.0
    assert min(event.at for _, event in all_fault_events(plan, faults_of(("F1",)))) >= plan.calm


def wish_of(command: str) -> StressOptions:
    """What the command line makes of it."""
    words = shlex.split(command)
    assert words[:2] == ["pool", "stress"]
    params = stress.make_context("stress", words[2:]).params
    return StressOptions(**{name: value for name, value in params.items() if name in StressOptions.__struct_fields__})


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


WISHES = st.builds(
    StressOptions,
    load=st.sampled_from(sorted(LOADS)),
    faults=st.lists(st.sampled_from(sorted(FAULTS)), unique=True, max_size=3).map(tuple),
    agents=st.sampled_from(sorted(AGENTS)),
    scale=st.floats(1e-4, 1.0) | st.just(1.0),
    seed=st.integers(-5, 10**12),
    sessions=some(st.integers(1, 20_000)),
    workers=some(st.integers(1, 100)),
    seconds=some(st.floats(0.001, 1e6)),
    requests=some(st.integers(1, 2_000_000)),
    rate=some(st.floats(0.001, 1e6)),
)


@given(WISHES)
@example(StressOptions(seconds=100.0, requests=5))
@example(StressOptions(load="L4", scale=1 / 20, sessions=300))
@example(StressOptions(rate=1 / 3, seconds=1234567.8))
def test_the_command_of_a_plan_makes_the_same_plan(wish: StressOptions) -> None:
    plan = make_plan(wish)
    assert make_plan(wish_of(plan.command)) == plan


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"faults": ("F9",)}, "'F9'"),
        ({"sessions": 0}, "--sessions"),
        ({"rate": -1.0}, "--rate"),
        ({"rate": math.nan}, "--rate"),
        ({"seconds": 0.0}, "--seconds"),
        ({"rate": 1e308, "seconds": 5.0}, r"--rate 1e\+308 is not between 0.001 and 1,000,000"),
        ({"scale": 1e-320}, "--scale"),
        ({"requests": 10**400}, r"--requests 1000+\.\.\. is not between 1 and 1,000,000,000$"),
        ({"seed": -(10**400)}, "--seed"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_the_option_at_fault(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan_of(**wish)


@pytest.mark.parametrize(("text", "scale"), [("1", 1.0), ("1/20", 0.05), ("0.25", 0.25)])
def test_a_scale_is_a_share(text: str, scale: float) -> None:
    assert read_scale(text) == scale


@pytest.mark.parametrize("load", sorted(LOADS))
@pytest.mark.parametrize("pick", [min, max], ids=["least", "most"])
def test_of_the_least_and_the_most_that_may_be_wished_for_there_is_a_plan_that_can_be_written(
    load: LoadName, pick: Callable[[tuple[Any, Any]], Any]
) -> None:
    numbers = {name: pick(bounds) for name, bounds in _BOUNDS.items()}
    for seconds in (None, numbers.pop("seconds")):
        plan = plan_of(load=load, seconds=seconds, **numbers)
        assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
        assert make_plan(wish_of(plan.command)) == plan


ABSURD = ["1e400", "1e-400", "1e999999999", "inf", "nan", "9" * 400, f"1/{'9' * 400}", f"{'9' * 400}/1"]


@pytest.mark.parametrize("text", ["0", "2", "-1/2", "1/0", "half", "", *ABSURD])
def test_what_is_no_share_is_no_scale(text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        read_scale(text)


@pytest.mark.parametrize("load", sorted(LOADS))
def test_the_same_seed_makes_the_same_choices_and_another_one_others(load: str) -> None:
    wish = {"load": load, "scale": 1 / 20, "requests": 300}
    assert arrivals_of(**wish, seed=1) == arrivals_of(**wish, seed=1)
    assert arrivals_of(**wish, seed=1) != arrivals_of(**wish, seed=2)


def test_strokes_follow_from_the_seed_and_not_from_the_other_faults() -> None:
    plan = plan_of(faults=("F1",), seconds=300.0)
    alone = [event for _, event in all_fault_events(plan, faults_of(("F1",)))]
    assert {event.kind for event in alone} == {"kill", "suspend"}
    together = [event for fault, event in all_fault_events(plan, faults_of(("F3", "F1"))) if fault.name == "F1"]
    assert together == alone


def test_profiles_are_asked_for_as_zipf_says() -> None:
    found = arrivals_of(load="L1")
    asked = Counter(arrival.role for arrival in found)
    weights = zipf_weights(8)
    for role, weight in zip(("p0", "p1", "p2", "p3"), weights, strict=False):
        assert asked[role] / len(found) == pytest.approx(weight / sum(weights), rel=0.15)


def test_there_are_three_priorities_and_each_session_keeps_its_profile() -> None:
    found = arrivals_of(load="L1", scale=1 / 20)
    assert {arrival.priority for arrival in found} == {3, 5, 10}
    roles: dict[str, set[str]] = {}
    for arrival in found:
        roles.setdefault(arrival.session, set()).add(arrival.role)
    assert all(len(each) == 1 for each in roles.values())


def test_every_session_speaks_and_some_speak_again_soon() -> None:
    found = arrivals_of(load="L1", scale=1 / 20, requests=1000)
    assert len({arrival.session for arrival in found}) == 500
    gaps = [
        after - before
        for session in {arrival.session for arrival in found}
        for before, after in pairwise([each.number for each in found if each.session == session])
    ]
    assert sum(gap < 30 for gap in gaps) > 100


def test_times_only_go_on_and_come_at_the_planned_rate() -> None:
    plan = plan_of(load="L1", scale=1 / 20, seconds=400.0)
    times = [arrival.at for arrival in all_arrivals(plan, [])]
    assert times == sorted(times)
    steady = [at for at in times if at > plan.ramp]
    assert len(steady) / (400.0 - plan.ramp) == pytest.approx(plan.rate, rel=0.05)


def test_some_requests_go_to_workers_that_misbehave_as_the_faults_want() -> None:
    preparation = FaultSetup(profiles=(("main", "bad"),), share=0.2, prompts=("X ", "Y "))
    mixed = list(mix_in_faulty(iter(arrivals_of(requests=1000)), preparation, Random(1), 4))
    faulty = [arrival for arrival in mixed if arrival.faulty]
    assert len(faulty) / len(mixed) == pytest.approx(0.2, rel=0.2)
    assert {arrival.role for arrival in faulty} == {"bad"}
    assert {arrival.prefix for arrival in faulty} == {"X ", "Y "}
    assert [arrival.number for arrival in mixed] == list(range(len(mixed)))


def test_only_what_load_and_faults_explain_may_happen_to_a_request() -> None:
    calm = check_rules(plan_of(load="L1"), [], LIMITS)
    assert calm.explains == frozenset()
    assert (calm.overload, calm.max_timed_out, calm.min_completed) == (frozenset(), 0.05, 0.9)
    overload = check_rules(plan_of(load="L2"), [], LIMITS)
    assert overload.explains == frozenset()
    assert overload.overload == {"acquire_timeout", "request_timeout"}
    assert overload.min_completed == 0.2
    for fault, seconds, least in (("F5", 60.0, 0.5), ("F5", 7.0, 0.1), ("F7", 60.0, 0.7), ("F7", 7.0, 0.7)):
        ended = plan_of(load="L5", faults=("F1", fault), seconds=seconds)
        assert check_rules(ended, faults_of(ended.faults), LIMITS).min_completed == least
    hurt = plan_of(load="L1", faults=("F1",))
    assert "worker_exited" in check_rules(hurt, faults_of(hurt.faults), LIMITS).explains
    assert msgspec.structs.replace(calm, ramp=hurt.ramp).max_workers == 4
