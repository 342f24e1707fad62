"""What the judges know of faults: whom they were done to, for how long they excuse, and that a life's end ends them."""

import pytest

from stress.facts import (
    ALL_WORKERS,
    DAMAGED_TRANSCRIPT,
    FaultInjected,
    RequestStarted,
    SupervisorEnded,
    SupervisorStarted,
)
from tests.stress.story import Story, broken_by

EXPLAINS = frozenset({DAMAGED_TRANSCRIPT, "worker_exited"})


def hit(story: Story, worker: str, seconds: float = 0.0) -> None:
    story.tell(FaultInjected, fault="F1", action="kill", worker=worker, seconds=seconds)


def live_again(story: Story) -> None:
    story.tell(SupervisorEnded, life=1, code=0, signals=(15,))
    story.tell(SupervisorStarted, life=2, supervisor=101)
    story.pass_time(6.0)


def find_damaged(story: Story, number: int, worker: str) -> None:
    """The next request to the session of ada."""
    story.ask(number, "ada")
    story.begin(number, worker)
    story.fail(number, DAMAGED_TRANSCRIPT)


@pytest.mark.parametrize(("is_known", "broken"), [(True, []), (False, ["I1", "I12"])])
def test_the_end_of_a_supervisor_may_have_damaged_what_it_had_and_nothing_else(
    *, is_known: bool, broken: list[str]
) -> None:
    story = Story()
    if is_known:
        story.converse(1, "ada")
    live_again(story)
    find_damaged(story, 2, "w1")
    assert broken_by(story, explains=EXPLAINS) == broken


def test_a_worker_has_none_of_the_faults_of_its_namesake_in_the_life_before() -> None:
    story = Story()
    hit(story, "w1")
    live_again(story)
    story.converse(1, "ada", "w1")
    find_damaged(story, 2, "w1")
    assert broken_by(story, explains=EXPLAINS) == ["I1", "I12"]


@pytest.mark.parametrize(("lasts", "broken"), [(4.0, []), (0.5, ["I1", "I12"])])
def test_what_is_done_to_all_workers_may_damage_also_who_comes_meanwhile(lasts: float, broken: list[str]) -> None:
    story = Story()
    hit(story, ALL_WORKERS, lasts)
    story.pass_time(1.0)
    story.converse(1, "ada")
    find_damaged(story, 2, "w2")
    assert broken_by(story, explains=EXPLAINS) == broken


@pytest.mark.parametrize(("is_read", "broken"), [(False, []), (True, ["I1", "I12"])])
def test_a_transcript_that_was_read_since_is_under_suspicion_no_more(*, is_read: bool, broken: list[str]) -> None:
    story = Story()
    story.converse(1, "ada", "w1")
    hit(story, "w1")
    if is_read:
        story.converse(2, "ada", "w2")
    find_damaged(story, 3, "w3")
    assert broken_by(story, explains=EXPLAINS) == broken


def test_one_that_was_only_written_to_since_is_still() -> None:
    story = Story()
    story.ask(1, "ada")
    story.begin(1)
    hit(story, "w1", 0.1)
    story.pass_time(0.2)
    story.answer(1)
    story.ask(2, "ada")
    story.tell(RequestStarted, number=2, worker="w1")
    story.answer(2)
    story.part(2)
    find_damaged(story, 3, "w2")
    assert broken_by(story, explains=EXPLAINS) == []


def test_nor_do_they_excuse_that_somebody_is_passed_over_in_this_one() -> None:
    story = Story()
    story.converse(0, "ada", "w1")
    live_again(story)
    hit(story, "w1", 20.0)
    story.pass_over(1, "ada")
    assert broken_by(story) == ["I5"]


def test_what_is_heard_late_of_a_life_that_has_ended_says_nothing_of_the_next_one() -> None:
    story = Story()
    story.ask(1, "ada")
    story.tell(SupervisorEnded, life=1, code=-9, signals=(9,))
    story.begin(1)
    story.answer(1)
    story.tell(SupervisorStarted, life=2, supervisor=101)
    find_damaged(story, 2, "w1")
    assert broken_by(story, explains=EXPLAINS) == []
