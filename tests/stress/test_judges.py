"""Judges of requests (I1, I2, I5, I6): each finds what it is for in a made-up history, and nothing in a good one."""

from typing import Any

import msgspec
import pytest

from stress.facts import (
    DirectViolation,
    FaultInjected,
    LeftoverProcesses,
    OutcomeRemembered,
    PoolEvent,
    PromptOccurrences,
    RequestAccepted,
    RequestForgotten,
    RequestRefused,
    RequestStarted,
    SupervisorEnded,
    SupervisorStarted,
    WorkerRow,
)
from tests.stress.story import Story, broken_by

DIES = frozenset({"worker_exited"})
TIMED_OUT = frozenset({"acquire_timeout"})


def a_good_run() -> Story:
    story = Story()
    story.processes(1, 2, rss=50_000_000, fds=20)
    for number in range(12):
        story.converse(number, session=f"s{number % 3}", worker=f"w{number % 2 + 1}")
    story.status(1, 2)
    story.status(1, 2)
    story.end()
    for number in range(12):
        story.tell(PromptOccurrences, number=number, own=1, foreign=0)
    story.empty()
    story.tell(SupervisorEnded, life=1, code=0, signals=(15,))
    story.tell(LeftoverProcesses, life=1, seconds=2.0, pids=())
    return story


def test_a_run_as_it_should_be_breaks_nothing() -> None:
    assert a_good_run().violations() == []


# --- I1 ---------------------------------------------------------------------------------------------------------------


def test_a_request_without_an_outcome_is_lost() -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.end()
    (violation,) = story.violations()
    assert violation.invariant == "I1"
    assert "begun by w1" in violation.what
    assert [type(fact).__name__ for fact in violation.history if getattr(fact, "number", None) == 1] == [
        *("RequestAsked", "RequestAccepted", "RequestStarted")
    ]


def test_an_outcome_that_is_told_twice_is_one_too_many() -> None:
    story = Story()
    story.converse(1)
    story.answer(1)
    assert broken_by(story) == ["I1"]


def test_an_outcome_of_what_was_refused_or_never_asked_for_is_one_too_many() -> None:
    refused = Story()
    refused.ask(1, accept=False)
    refused.tell(RequestRefused, number=1, code="saturated")
    refused.fail(1, "saturated")
    assert broken_by(refused, overload=frozenset({"saturated"})) == ["I1"]
    unasked = Story()
    unasked.sessions[9] = "s9"
    unasked.answer(9, said=())
    assert "I1" in broken_by(unasked)


def test_a_turn_that_begins_twice_was_sent_again() -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.tell(RequestStarted, number=1, worker="w2")
    story.answer(1)
    assert broken_by(story) == ["I1"]


def test_a_promise_that_nobody_knows_of_any_more_is_broken() -> None:
    story = Story()
    story.ask(1)
    story.tell(RequestForgotten, number=1)
    assert broken_by(story) == ["I1"]


def test_a_request_that_is_never_answered_is_lost() -> None:
    story = Story()
    story.ask(1, accept=False)
    story.tell(RequestForgotten, number=1)
    story.end()
    assert broken_by(story) == ["I1"]


def test_a_request_that_is_completed_has_begun() -> None:
    story = Story()
    story.ask(1)
    story.answer(1)
    assert broken_by(story) == ["I1"]


def test_an_answer_that_was_lost_may_be_given_again_also_after_the_outcome() -> None:
    story = Story()
    story.converse(1)
    story.tell(RequestAccepted, number=1, at=0.0)
    story.tell(OutcomeRemembered, number=1, reason="completed")
    assert story.violations() == []


def test_a_request_to_a_worker_that_misbehaves_may_fail_in_any_way_but_once() -> None:
    story = Story()
    story.ask(1, faulty=True)
    story.begin(1)
    story.fail(1, "protocol_violation")
    assert story.violations() == []
    story.fail(1, "protocol_violation")
    assert broken_by(story) == ["I1"]


@pytest.mark.parametrize("own", [0, 2])
def test_a_prompt_stands_in_its_transcript_exactly_once(own: int) -> None:
    story = Story()
    story.converse(1)
    story.tell(PromptOccurrences, number=1, own=own, foreign=0)
    assert broken_by(story) == ["I1"]


def test_what_was_completed_long_ago_stands_in_its_transcript_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stress.checker.base._MAX_ENDED", 50)
    story = Story()
    for number in range(150):
        story.ask(number)
        story.begin(number)
        story.answer(number)
    for number in (0, 1):
        story.tell(PromptOccurrences, number=number, own=number, foreign=0)
    (violation,) = story.violations()
    assert violation.what == "request 0 was completed and stands in no transcript"


def test_events_out_of_their_order_are_no_stream() -> None:
    story = Story()
    story.tell(DirectViolation, what="event 3 came after 5")
    assert broken_by(story) == ["I1"]


# --- I2 ---------------------------------------------------------------------------------------------------------------


def test_a_word_of_another_session_is_found_in_an_answer() -> None:
    story = Story()
    story.converse(1, "ada")
    story.ask(2, "bob")
    story.begin(2)
    story.answer(2, said=(2, 1))
    assert broken_by(story) == ["I2"]


@pytest.mark.parametrize(
    "wrong",
    [{"session": "bob"}, {"strange": ("n0000001xffffffff",)}, {"said": ()}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_answer_is_given_to_its_own_session_with_its_own_word_and_none_that_nobody_said(
    wrong: dict[str, Any],
) -> None:
    story = Story()
    story.ask(1, "ada")
    story.begin(1)
    story.answer(1, **wrong)
    assert broken_by(story) == ["I2"]


def test_a_session_that_has_forgotten_its_last_turn_is_noticed() -> None:
    story = Story()
    story.converse(1, "ada")
    story.ask(2, "ada")
    story.begin(2)
    story.answer(2, said=(2,))
    assert broken_by(story) == ["I2"]


def test_what_only_more_turns_ago_was_said_need_not_be_repeated() -> None:
    story = Story()
    story.converse(1, "ada")
    for number in (2, 3, 4):
        story.ask(number, "ada")
        story.begin(number)
        story.tell(FaultInjected, fault="F1", action="kill", worker="w1")
        story.fail(number, "worker_exited")
    story.ask(5, "ada")
    story.begin(5)
    story.answer(5, said=(5,))
    assert story.violations(explains=DIES) == []


def test_a_prompt_in_the_transcript_of_another_session_has_strayed() -> None:
    story = Story()
    story.converse(1)
    story.tell(PromptOccurrences, number=1, own=1, foreign=1)
    assert broken_by(story) == ["I2"]


# --- I5, I6 -----------------------------------------------------------------------------------------------------------


def test_who_came_later_is_not_served_first() -> None:
    story = Story()
    story.ask(1)
    story.pass_time(2.0)
    story.ask(2)
    story.begin(2)
    story.pass_time(2.0)
    (violation,) = story.violations()
    assert violation.invariant == "I5"
    assert violation.what == "request 2 was served before 1, whose turn it was"


def test_a_higher_priority_goes_first_until_waiting_has_made_up_for_it() -> None:
    for waited, expected in ((10.0, []), (18.0, ["I5"])):
        story = Story()
        story.ask(1, priority=5)
        story.pass_time(waited)
        story.ask(2, priority=10)
        story.begin(2)
        story.pass_time(2.0)
        assert broken_by(story) == expected


@pytest.mark.parametrize(
    "excuse",
    [
        "another profile",
        "its session has a worker",
        "its session is busy",
        "its transcript is held",
        "its worker is suspended",
    ],
)
def test_nobody_is_overtaken_by_who_waits_for_something_else(excuse: str) -> None:
    story = Story()
    if excuse == "its session has a worker":
        story.sessions[1] = "ada"
        story.tell(PoolEvent, what="session_bound", worker="w1", session="ada")
    if excuse == "its session is busy":
        story.ask(0, "ada")
        story.begin(0)
    if excuse == "its worker is suspended":
        story.converse(0, "ada")
        story.tell(FaultInjected, fault="F1", action="suspend", worker="w1", pid=1, seconds=20.0)
    story.ask(1, "ada")
    story.pass_time(2.0)
    story.ask(2, profile="main/p1" if excuse == "another profile" else "main/p0")
    story.begin(2, "w2")
    if excuse == "its transcript is held":  # by its former worker, which is being stopped
        story.status(waiting=story.waiting("r1", story.sessions[1], state="blocked"), workers=())
    story.pass_time(2.0)
    assert story.violations() == []


def test_a_worker_that_was_suspended_long_ago_is_no_excuse() -> None:
    story = Story()
    story.converse(0, "ada")
    story.tell(FaultInjected, fault="F1", action="suspend", worker="w1", pid=1, seconds=20.0)
    story.pass_time(20.0 + 91.0)
    story.pass_over(1, "ada")
    assert broken_by(story) == ["I5"]


def test_turns_of_a_session_are_one_after_the_other_in_the_order_of_their_requests() -> None:
    orderly, hasty, overtaking = Story(), Story(), Story()
    for story in (orderly, hasty, overtaking):
        for number in (1, 2, 3):
            story.ask(number, "ada", priority=8 if number == 3 else 5)
    orderly.begin(3)
    orderly.answer(3)
    orderly.begin(1)
    assert orderly.violations() == []
    hasty.begin(1)
    hasty.begin(2, "w2")
    assert broken_by(hasty) == ["I5"]
    overtaking.begin(2)
    assert broken_by(overtaking) == ["I5"]


def test_a_waiter_that_is_told_too_late_was_forgotten_for_a_while() -> None:
    story = Story()
    story.ask(1, timeout=1.0)
    story.pass_time(1.0)
    story.answer(1, reason="timeout", code="acquire_timeout", said=())
    assert story.violations(overload=TIMED_OUT) == []
    story.ask(2, timeout=1.0)
    story.pass_time(1.1)
    story.answer(2, reason="timeout", code="acquire_timeout", said=())
    assert broken_by(story, overload=TIMED_OUT) == ["I6"]


@pytest.mark.parametrize(("waited", "late", "expected"), [(1.2, 0.0, []), (1.5, 0.0, ["I6"]), (1.5, 0.4, [])])
def test_a_waiter_that_is_served_long_after_its_deadline_was_kept_too_long(
    waited: float, late: float, expected: list[str]
) -> None:
    story = Story()
    story.ask(1, timeout=1.0)
    story.pass_time(waited)
    story.facts[-1] = msgspec.structs.replace(story.facts[-1], seconds=late)
    story.begin(1)
    story.answer(1)
    assert broken_by(story) == expected


def test_a_waiter_that_another_life_serves_is_served_by_its_own_time() -> None:
    story = Story()
    story.ask(1, timeout=1.0)
    story.tell(SupervisorEnded, life=1, code=-9, signals=(9,))
    story.tell(SupervisorStarted, life=2, supervisor=101)
    story.pass_time(3.0)
    story.begin(1)
    story.answer(1)
    assert story.violations() == []


def test_a_waiter_beside_an_idle_worker_that_fits_was_passed_over() -> None:
    story = Story()
    story.status(1, waiting=story.waiting("r1"))
    assert story.violations() == []
    story.pass_time(1.0)
    story.status(1, waiting=story.waiting("r1"))
    assert broken_by(story) == ["I6"]


@pytest.mark.parametrize("state", ["blocked", "preparing"])
def test_a_waiter_that_waits_for_a_certain_worker_was_not_passed_over(state: str) -> None:
    story = Story()
    for _ in range(2):
        story.status(1, waiting=story.waiting("r1", state=state))
        story.pass_time(1.0)
    assert story.violations() == []


def test_a_worker_that_has_served_in_between_was_not_idle_all_the_time() -> None:
    story = Story()
    story.status(1, waiting=story.waiting("r1"))
    story.status(1, waiting=story.waiting("r1"), workers=(WorkerRow("w1", 1, "p0", "idle", None, 2),))
    assert story.violations() == []


# --- in all -----------------------------------------------------------------------------------------------------------


def test_what_the_machine_was_late_by_is_not_blamed_on_the_pool() -> None:
    story = Story()
    story.ask(1, timeout=1.0)
    story.pass_time(1.2)
    story.facts[-1] = msgspec.structs.replace(story.facts[-1], seconds=0.3)
    story.answer(1, reason="timeout", code="acquire_timeout", said=())
    assert story.violations(overload=TIMED_OUT) == []


def test_what_was_interrupted_by_the_end_of_a_life_is_explained_by_it() -> None:
    story = Story()
    story.ask(1)
    story.begin(1)
    story.tell(SupervisorEnded, life=1, code=-9, signals=(9,))
    story.tell(SupervisorStarted, life=2, supervisor=101)
    story.fail(1, "interrupted")
    assert story.violations(explains=frozenset({"interrupted"})) == []


def test_a_history_that_is_written_down_and_read_again_is_judged_alike() -> None:
    story = Story()
    story.converse(1)
    story.answer(1)
    (violation,) = story.violations()
    again = msgspec.json.decode(msgspec.json.encode(violation), type=type(violation))
    assert again == violation
