"""The judge of outcomes (I1): what is remembered of them, which failures a fault explains, and how many it does."""

from typing import Any

import msgspec
import pytest

from stress.facts import FaultInjected, OutcomeRemembered
from tests.stress.story import Story, broken_by

DIES = frozenset({"worker_exited"})
TIMED_OUT = frozenset({"acquire_timeout"})


def test_an_outcome_that_is_remembered_otherwise_than_it_was_told_is_no_outcome() -> None:
    story = Story()
    story.converse(1)
    story.tell(OutcomeRemembered, number=1, reason="error", code="interrupted")
    assert broken_by(story) == ["I1"]


@pytest.mark.parametrize(("reason", "expected"), [("completed", []), ("live", []), ("error", ["I1"])])
def test_what_was_remembered_before_the_outcome_was_told_is_compared_with_it(reason: str, expected: list[str]) -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.tell(OutcomeRemembered, number=1, reason=reason)
    story.answer(1)
    assert broken_by(story) == expected


def test_who_was_told_that_there_is_no_outcome_yet_may_hear_it_after_the_outcome() -> None:
    story = Story()
    story.converse(1)
    story.tell(OutcomeRemembered, number=1, reason="live")
    assert story.violations() == []


def test_a_failure_that_no_fault_explains_is_a_broken_promise() -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.fail(1, "internal")
    assert broken_by(story, explains=DIES) == ["I1"]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"worker": "w1", "pid": 1}, []),
        ({"worker": "w1", "pid": 1, "seconds": 60.0}, []),
        ({"worker": "*", "seconds": 60.0, "hurts": False}, ["I1"]),
        (None, ["I1"]),
    ],
)
def test_a_fault_explains_what_it_may_do_only_where_it_was_injected(
    fault: dict[str, Any] | None, expected: list[str]
) -> None:
    story = Story()
    if fault is not None:
        story.tell(FaultInjected, fault="F1", action="suspend", **fault)
    story.pass_time(50.0)
    story.ask(1, timeout=1.0)
    story.pass_time(1.0)
    story.fail(1, "acquire_timeout")
    assert broken_by(story, explains=TIMED_OUT) == expected
    story.pass_time(200.0)
    story.ask(2, timeout=1.0)
    story.pass_time(1.0)
    story.fail(2, "acquire_timeout")
    assert broken_by(story, explains=TIMED_OUT) == ["I1"]
    assert broken_by(story, overload=TIMED_OUT) == []


def test_a_transcript_that_a_fault_has_damaged_may_be_found_so_much_later() -> None:
    story = Story()
    story.converse(1, "ada")
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1)
    story.pass_time(500.0)
    story.ask(2, "ada")
    story.fail(2, "resume_failed")
    assert story.violations(explains=frozenset({"resume_failed"})) == []


def test_a_transcript_that_no_fault_was_near_has_no_reason_to_be_damaged() -> None:
    story = Story()
    story.converse(1, "ada", "w1")
    story.converse(2, "grace", "w2")
    story.tell(FaultInjected, fault="F1", action="kill", worker="w2", pid=2)
    story.ask(3, "ada")
    story.fail(3, "resume_failed")
    assert broken_by(story, explains=frozenset({"resume_failed"})) == ["I1", "I12"]


@pytest.mark.parametrize(
    ("in_vain", "late", "expected"), [(5, 0.0, []), (6, 0.0, ["I1"]), (50, 0.6, []), (51, 0.6, ["I1"])]
)
def test_a_pool_that_lets_most_wait_in_vain_is_not_excused_by_its_faults(
    in_vain: int, late: float, expected: list[str]
) -> None:
    story = Story()
    story.tell(FaultInjected, fault="F1", action="suspend", worker="w1", pid=1, seconds=60.0)
    for number in range(100):
        if number < in_vain:
            story.ask(number, timeout=0.5)
            story.pass_time(0.5)
            story.facts[-1] = msgspec.structs.replace(story.facts[-1], seconds=late)
            story.fail(number, "acquire_timeout")
        else:
            story.converse(number)
    story.end()
    assert broken_by(story, explains=TIMED_OUT, max_timed_out=0.05, min_completed=0.4) == expected


def test_also_in_overload_some_are_served() -> None:
    for served, expected in ((20, []), (19, ["I1"])):
        story = Story()
        for number in range(100):
            if number < served:
                story.converse(number)
            else:
                story.ask(number, timeout=0.5)
                story.pass_time(0.5)
                story.fail(number, "acquire_timeout")
        story.ask(100, faulty=True)
        story.begin(100)
        story.answer(100)
        story.end()
        assert broken_by(story, overload=TIMED_OUT, min_completed=0.2) == expected
