"""Of a long history the shortest part is found that shows the same broken promise, for every promise there is."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.checker import Checker, Evidence, reproduces
from stress.facts import (
    Fact,
    FaultInjected,
    MachineDelay,
    PoolEvent,
    ProcessSample,
    RequestAccepted,
    RequestAnswered,
    RequestAsked,
    RequestStarted,
    ReusedPid,
    SupervisorEnded,
)
from stress.outcome import INVARIANTS
from stress.plan import StressOptions, make_plan
from stress.recorder import RunRecorder
from stress.shrink import shrink
from tests.stress.story import RULES, Story

Step = Callable[[Story], None]

TOLD: dict[str, tuple[list[Step], int]] = {
    "I1": (
        [
            lambda story: story.ask(500),
            lambda story: story.tell(RequestAccepted, number=500, at=0.0),  # asked for again
            lambda story: story.begin(500),
            Story.end,
        ],
        4,
    ),
    "I2": (
        [
            lambda story: story.ask(500, "ada"),
            lambda story: story.ask(501, "bob"),
            lambda story: story.answer(500, said=(500, 501)),
        ],
        2,
    ),
    "I3": ([lambda story: story.processes(1, 2), lambda story: story.processes(1, 2, 3)], 1),
    "I4": ([lambda story: story.tell(SupervisorEnded, life=1, code=0, signals=())], 1),
    "I5": (
        [
            lambda story: story.ask(500),
            lambda story: story.pass_time(5.0),
            lambda story: story.ask(501),
            lambda story: story.begin(501),
            lambda story: story.pass_time(2.0),
        ],
        6,
    ),
    "I6": (
        [
            lambda story: story.ask(500, timeout=0.5),
            lambda story: story.pass_time(10.0),
            lambda story: story.fail(500, "acquire_timeout"),
        ],
        3,
    ),
    "I7": (
        [
            lambda story: story.processes(1, 2, zombies=(9,)),
            lambda story: story.pass_time(3.0),
            lambda story: story.processes(1, 2, zombies=(9,)),
        ],
        2,
    ),
    "I8": (
        [
            lambda story: story.ask(500),
            lambda story: story.begin(500),
            lambda story: story.part(500),
            lambda story: story.pass_time(2.0),
            lambda story: story.answer(500),
        ],
        4,
    ),
    "I9": (
        [
            lambda story: story.processes(1, 2),
            lambda story: story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1),
            lambda story: story.pass_time(15.0),
            lambda story: story.processes(2),
        ],
        3,
    ),
    "I10": ([lambda story: story.status(1, 2), lambda story: story.status(1, 2, grants=9)], 1),
    "I11": (
        [
            lambda story: story.tell(ReusedPid, pid=5, signalled=False),
            lambda story: story.tell(ReusedPid, pid=5, signalled=True),
        ],
        1,
    ),
    "I12": (
        [lambda story: story.ask(500), lambda story: story.begin(500), lambda story: story.fail(500, "worker_exited")],
        3,
    ),
}
"""For each promise how it is broken, in steps between which much else may be seen, and how few facts show it."""


def a_conversation_of_others(story: Story, number: int) -> None:
    story.ask(1000 + number, f"other{number % 3}", profile="main/p1")
    story.begin(1000 + number, "w9")
    story.answer(1000 + number)
    story.part(1000 + number, "w9")


def a_fault_of_others(story: Story, number: int) -> None:
    story.tell(FaultInjected, fault="F2", action="garbage", worker="w9", pid=900 + number)


def a_short_delay(story: Story, number: int) -> None:
    story.tell(MachineDelay, seconds=0.001 * (number % 5))


OTHERS = (a_conversation_of_others, a_fault_of_others, a_short_delay)


def evidence_of(facts: Sequence[Fact], invariant: str) -> tuple[Evidence, tuple[Fact, ...]]:
    """The first proof that the promise is broken, and what is told around it."""
    checker = Checker(RULES)
    for fact in facts:
        checker.observe(fact)
    checker.finish()
    around = next(each.history for each in checker.violations if each.invariant == invariant)
    return checker.evidence[invariant], around


def told_among_others(invariant: str, others: Sequence[tuple[int, int]]) -> list[Fact]:
    """The story of that promise; ``others``: before which step what else was seen."""
    story = Story()
    steps, _ = TOLD[invariant]
    for position, step in enumerate(steps):
        for number, (before, kind) in enumerate(others):
            if before % len(steps) == position:
                OTHERS[kind](story, number)
        step(story)
    return story.facts


def begins_well(facts: Sequence[Fact]) -> bool:
    """Every request that is heard of was asked."""
    asked = {fact.number for fact in facts if isinstance(fact, RequestAsked)}
    return all(getattr(fact, "number", None) in {None, *asked} for fact in facts)


def test_every_promise_has_a_story_of_how_it_is_broken() -> None:
    assert list(TOLD) == list(INVARIANTS)


@pytest.mark.parametrize("invariant", TOLD)
@settings(max_examples=25)
@given(others=st.lists(st.tuples(st.integers(0, 9), st.integers(0, len(OTHERS) - 1)), max_size=25))
def test_the_shortest_history_is_found_whatever_else_was_seen(invariant: str, others: list[tuple[int, int]]) -> None:
    facts = told_among_others(invariant, others)
    evidence, around = evidence_of(facts, invariant)
    _, fewest = TOLD[invariant]
    for likely in ((), around):
        found = shrink(evidence, RULES, likely=likely)
        assert len(found) == fewest
        assert reproduces(found, RULES, evidence)
        assert all(any(fact is each for each in facts) for fact in found)
        assert found == sorted(found, key=lambda fact: fact.t)
        for index in range(len(found)):
            without = found[:index] + found[index + 1 :]
            assert not (begins_well(without) and reproduces(without, RULES, evidence))


def test_a_request_without_outcome_is_shown_by_its_beginning_and_the_end() -> None:
    evidence, around = evidence_of(told_among_others("I1", [(1, 0), (2, 1)]), "I1")
    names = [type(fact).__name__ for fact in shrink(evidence, RULES, likely=around)]
    assert names == ["RequestAsked", "RequestAccepted", "RequestStarted", "WaitingEnded"]


def test_a_turn_that_was_cut_off_is_shown_by_who_ran_it_and_what_was_done_to_the_worker() -> None:
    evidence, _ = evidence_of(told_among_others("I8", [(1, 0), (2, 1)]), "I8")
    asked, accepted, begun, parted = shrink(evidence, RULES)
    assert isinstance(asked, RequestAsked)
    assert isinstance(accepted, RequestAccepted)
    assert isinstance(begun, RequestStarted)
    assert isinstance(parted, PoolEvent)
    assert parted.what == "session_parked"


def test_of_two_kills_the_one_is_kept_whose_worker_did_not_come_back() -> None:
    story = Story()
    story.processes(1, 2)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w1", pid=1)
    story.processes(2)
    story.processes(2, 3)
    story.tell(FaultInjected, fault="F1", action="kill", worker="w2", pid=2)
    story.pass_time(15.0)
    story.processes(3)
    evidence, around = evidence_of(story.facts, "I9")
    before, kill, after = shrink(evidence, RULES, likely=around)
    assert isinstance(kill, FaultInjected)
    assert kill.pid == 2
    assert isinstance(before, ProcessSample)
    assert isinstance(after, ProcessSample)


def test_a_request_is_left_in_from_its_beginning_on() -> None:
    """So long after its end it is told as if it had never been asked: that it was is part of the story."""
    story = Story()
    story.converse(1)
    story.facts += [
        fact
        for number in range(1000, 21_001)
        for fact in (
            RequestAsked(t=9.0, number=number, session="s", profile="p", priority=5, timeout=1.0, turn=0.0),
            RequestStarted(t=9.0, number=number, worker="w1"),
            RequestAnswered(t=9.0, number=number, reason="completed", code="", at=9.0, session="s", said=(number,)),
        )
    ]
    story.t = 10.0
    story.answer(1)
    again = story.facts[-1]
    evidence, around = evidence_of(story.facts, "I1")
    assert again in evidence.facts
    found = shrink(evidence, RULES, likely=around, budget=100_000)
    assert next(fact.number for fact in found if isinstance(fact, RequestAsked)) == 1
    assert reproduces(found, RULES, evidence)


def test_the_search_ends_when_its_budget_is_spent_with_the_best_that_was_found() -> None:
    facts = told_among_others("I1", [(0, 0)] * 200)
    evidence, _ = evidence_of(facts, "I1")
    spent: list[int] = []
    for budget in (1, 8 * len(facts), 12 * len(facts), 1_000_000):
        found = shrink(evidence, RULES, budget=budget)
        assert reproduces(found, RULES, evidence)
        spent.append(len(found))
    assert spent[0] == len(facts)
    assert len(facts) > spent[1] > spent[2] > spent[3] == 4


def test_there_is_no_shortest_history_where_what_was_kept_does_not_show_it() -> None:
    evidence, _ = evidence_of(told_among_others("I1", []), "I1")
    cut_off = evidence._replace(facts=evidence.facts[3:])
    assert shrink(cut_off, RULES) == []


def test_the_result_of_a_run_has_the_shortest_history_for_the_first_of_each_promise() -> None:
    recorder = RunRecorder(make_plan(StressOptions(scale=0.01)), RULES)
    story = Story()
    for number in (500, 501):
        story.ask(number)
        story.begin(number)
    for number in range(10):
        a_conversation_of_others(story, number)
    story.end()
    for fact in story.facts:
        recorder.record(fact)
    recorder.finish()
    result = recorder.result()
    first, second = result.violations
    assert [type(fact).__name__ for fact in first.shortest] == [
        "RequestAsked",
        "RequestAccepted",
        "RequestStarted",
        "WaitingEnded",
    ]
    assert second.shortest == ()
    assert result.harms == {"lost": 2}
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result
