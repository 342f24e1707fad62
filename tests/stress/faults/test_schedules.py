"""What faults are going to do: the same for the same seed, within the run, each kind as often as the others."""

from collections import Counter
from random import Random

import pytest

from errors import UsageError
from stress.faults import faults_of
from stress.plan import FAULTS, LOADS, LoadName, StressOptions, make_plan
from tests.stress.faults.driven import plan_of, strokes_of

WITH_STROKES = ("F1", "F4", "F5", "F6", "F7")
SPREAD = ("F4", "F5", "F6", "F7")


def test_every_fault_that_can_be_asked_for_is_there() -> None:
    assert [fault.name for fault in faults_of(tuple(FAULTS))] == list(FAULTS)


def test_a_fault_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="F9"):
        faults_of(("F9",))


@pytest.mark.parametrize("name", WITH_STROKES)
def test_the_same_seed_makes_the_same_choices_and_another_one_others(name: str) -> None:
    assert strokes_of(name, seed=3) == strokes_of(name, seed=3)
    assert strokes_of(name, seed=3) != strokes_of(name, seed=4)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", WITH_STROKES)
def test_strokes_come_in_order_between_the_calm_and_the_end(name: str, load: LoadName) -> None:
    plan, times = plan_of(name, load=load), [stroke.at for stroke in strokes_of(name, load=load)]
    assert times
    assert times == sorted(times)
    assert plan.calm > 0
    assert plan.calm <= times[0]
    assert times[-1] <= plan.seconds


@pytest.mark.parametrize("name", WITH_STROKES)
def test_a_soak_that_takes_longer_than_planned_is_hurt_all_the_while(name: str) -> None:
    plan = make_plan(StressOptions(load="L5", faults=(name,), workers=4, requests=20_000))
    (fault,) = faults_of(plan.faults)
    *_, last = fault.schedule(plan, Random(plan.seed))
    assert 2 * plan.seconds < last.at <= plan.longest


@pytest.mark.parametrize("name", SPREAD)
def test_each_kind_comes_as_often_as_the_others(name: str) -> None:
    counts = Counter(stroke.kind for stroke in strokes_of(name)).values()
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", SPREAD)
def test_even_a_short_run_sees_each_kind(name: str) -> None:
    kinds = {stroke.kind for stroke in strokes_of(name)}
    assert {stroke.kind for stroke in strokes_of(name, seconds=5.0)} == kinds


@pytest.mark.parametrize("name", ["F2", "F3"])
def test_faulty_prompts_follow_from_the_seed_and_name_every_kind_of_the_fault(name: str) -> None:
    def prompts(seed: int) -> tuple[str, ...]:
        plan = plan_of(name, seed=seed)
        (fault,) = faults_of(plan.faults)
        return fault.prepare(plan).prompts

    assert prompts(3) == prompts(3)
    assert prompts(3) != prompts(4)
    assert sorted(prompts(3)) == sorted(prompts(4))
    assert all(prompt.startswith("FAULT:") and prompt.endswith(" ") for prompt in prompts(3))
