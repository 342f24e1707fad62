"""A supervisor whose wall clock is set by an hour is not blamed for the hour, and is blamed for everything else."""

import msgspec
import pytest

from stress.checker.base import CLOCK
from stress.facts import FaultInjected, RequestAccepted, RequestAnswered
from tests.stress.faults.driven import strokes_of
from tests.stress.story import Story, broken_by

HOUR = 3600.0
TIMED_OUT = frozenset({"acquire_timeout"})


def told_late(story: Story, number: int) -> None:
    """By an hour, says the supervisor's clock."""
    story.fail(number, "acquire_timeout")
    answered = story.facts[-1]
    assert isinstance(answered, RequestAnswered)
    story.facts[-1] = msgspec.structs.replace(answered, at=answered.at + HOUR)


def set_clock(story: Story, seconds: float) -> None:
    story.tell(FaultInjected, fault="F7", action="clock_ahead", worker="*", seconds=seconds, hurts=False)


@pytest.mark.parametrize("lasts", [30.0, 0.5])
def test_an_hour_that_was_set_is_no_hour_that_was_waited(lasts: float) -> None:
    story = Story()
    story.ask(1)
    set_clock(story, lasts)
    story.pass_time(5.0)
    told_late(story, 1)
    assert broken_by(story, overload=TIMED_OUT) == []


def test_a_clock_that_was_right_all_the_time_is_believed() -> None:
    story = Story()
    set_clock(story, 0.5)
    story.pass_time(10.0)
    story.ask(1)
    story.pass_time(5.0)
    told_late(story, 1)
    assert broken_by(story, overload=TIMED_OUT) == ["I6"]


def test_a_turn_that_seems_to_go_on_for_an_hour_was_not_cut_off() -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.pass_time(0.1)
    story.part(1)
    set_clock(story, 30.0)
    told_late(story, 1)
    assert broken_by(story, overload=TIMED_OUT) == []


@pytest.mark.parametrize(("is_set", "broken"), [(True, []), (False, ["I5"])])
def test_who_came_first_is_nothing_that_a_clock_tells_that_was_set(*, is_set: bool, broken: list[str]) -> None:
    story = Story()
    story.ask(1, "ada")
    if is_set:
        set_clock(story, 30.0)
    story.ask(2, "ada")
    accepted = story.facts[-1]
    assert isinstance(accepted, RequestAccepted)
    story.facts[-1] = msgspec.structs.replace(accepted, at=accepted.at - HOUR)
    story.begin(1)
    assert broken_by(story) == broken


def test_the_fault_names_what_the_judges_look_for() -> None:
    assert {stroke.kind for stroke in strokes_of("F7") if stroke.kind.startswith(CLOCK)} == {
        "clock_ahead",
        "clock_behind",
    }
