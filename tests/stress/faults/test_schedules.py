"""What faults are going to do: the same for the same seed, within the run, each kind as often as the others."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from errors import UsageError
from stress.checker.base import CLOCK
from stress.faults import Fault, FaultEvent, faults_of
from stress.plan import FAULTS, LOADS, LoadName, Plan, StressOptions, make_plan

WITH_EVENTS = ("F1", "F4", "F5", "F6", "F7")


def fault_and_plan(name: str, **wish: Any) -> tuple[Fault, Plan]:
    """A run of ten minutes on four workers."""
    plan = make_plan(StressOptions(**{"workers": 4, "sessions": 8, "seconds": 600.0, "faults": (name,), **wish}))
    (fault,) = faults_of(plan.faults)
    return fault, plan


def events_of(name: str, **wish: Any) -> list[FaultEvent]:
    fault, plan = fault_and_plan(name, **wish)
    return list(fault.schedule(plan, Random(plan.seed)))


def test_every_fault_that_can_be_asked_for_is_there_and_another_is_refused_by_name() -> None:
    assert [fault.name for fault in faults_of(tuple(FAULTS))] == list(FAULTS)
    with pytest.raises(UsageError, match="F9"):
        faults_of(("F9",))


@pytest.mark.parametrize("name", WITH_EVENTS)
def test_the_same_seed_makes_the_same_choices_and_another_one_others(name: str) -> None:
    assert events_of(name, seed=3) == events_of(name, seed=3) != events_of(name, seed=4)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", WITH_EVENTS)
def test_events_come_in_order_between_the_calm_and_the_end(name: str, load: LoadName) -> None:
    _, plan = fault_and_plan(name, load=load)
    times = [event.at for event in events_of(name, load=load)]
    assert times == sorted(times)
    assert 0 < plan.calm <= times[0] <= times[-1] <= plan.seconds


@pytest.mark.parametrize("name", WITH_EVENTS)
def test_a_soak_that_takes_longer_than_planned_is_hurt_all_the_while(name: str) -> None:
    fault, plan = fault_and_plan(name, load="L5", requests=20_000, seconds=None, sessions=None)
    *_, last = fault.schedule(plan, Random(plan.seed))
    assert 2 * plan.seconds < last.at <= plan.longest


@pytest.mark.parametrize("name", WITH_EVENTS[1:])
def test_each_kind_comes_as_often_as_the_others_and_even_in_a_short_run(name: str) -> None:
    counts = Counter(event.kind for event in events_of(name))
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {event.kind for event in events_of(name, seconds=5.0)} == set(counts)


def test_the_clock_fault_names_what_the_judges_look_for() -> None:
    kinds = {event.kind for event in events_of("F7") if event.kind.startswith(CLOCK)}
    assert kinds == {"clock_ahead", "clock_behind"}


@pytest.mark.parametrize("name", ["F2", "F3"])
def test_faulty_prompts_follow_from_the_seed_and_name_every_kind_of_the_fault(name: str) -> None:
    def prompts(seed: int) -> tuple[str, ...]:
        fault, plan = fault_and_plan(name, seed=seed)
        return fault.prepare(plan).prompts

    assert prompts(3) == prompts(3) != prompts(4)
    assert sorted(prompts(3)) == sorted(prompts(4))
    assert all(prompt.startswith("FAULT:") and prompt.endswith(" ") for prompt in prompts(3))
