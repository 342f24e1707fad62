"""Of a long history the shortest part is found that shows the same broken promise, for every promise there is."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.checker import Checker, Evidence, reproduces, shrink
from stress.facts import Fact, FaultInjected, RequestAsked
from stress.outcome import INVARIANTS
from stress.plan import StressOptions, make_plan
from stress.recorder import RunRecorder
from tests.stress.story import RULES, Story

BROKEN = {
    "I1": ("ask 500; RequestAccepted number=500 at=0.0; begin 500; end", 4),
    "I2": ("ask 500 ada; ask 501 bob; answer 500 said=500,501", 2),
    "I3": ("processes 1 2; processes 1 2 3", 1),
    "I4": ("SupervisorEnded life=1 code=0 signals=,", 1),
    "I5": ("ask 500; wait 5.0; ask 501; begin 501; wait 2.0", 6),
    "I6": ("ask 500 timeout=0.5; wait 10.0; fail 500 acquire_timeout", 3),
    "I7": ("processes 1 2 zombies=9,; wait 3.0; processes 1 2 zombies=9,", 2),
    "I8": ("ask 500; begin 500; part 500; wait 2.0; answer 500", 4),
    "I9": ("processes 1 2; hit w1; wait 15.0; processes 2", 3),
    "I10": ("status 1 2; status 1 2 grants=9", 1),
    "I11": ("ReusedPid pid=5 signalled=False; ReusedPid pid=5 signalled=True", 1),
    "I12": ("ask 500; begin 500; fail 500 worker_exited", 3),
}
"""For each promise how it is broken, in steps between which much else may be seen, and how few facts show it."""
OTHERS = (
    "converse {0} other{1} w9 profile=main/p1",
    "hit w9 fault=F2 action=garbage pid={0}",
    "MachineDelay seconds=0.00{1}",
)


def evidence_of(facts: Sequence[Fact], invariant: str) -> tuple[Evidence, tuple[Fact, ...]]:
    """The first proof that the promise is broken, and what was seen around it."""
    checker = Checker(RULES)
    for fact in facts:
        checker.observe(fact)
    checker.finish()
    around = next(each.history for each in checker.violations if each.invariant == invariant)
    return checker.evidence[invariant], around


def broken_among_others(invariant: str, others: Sequence[tuple[int, int]]) -> list[Fact]:
    """The history of that promise; ``others``: before which step what else was seen."""
    story = Story()
    steps = BROKEN[invariant][0].split("; ")
    for position, step in enumerate(steps):
        for number, (before, kind) in enumerate(others):
            if before % len(steps) == position:
                story.step(OTHERS[kind].format(1000 + number, number % 3))
        story.step(step)
    return story.facts


def begins_well(facts: Sequence[Fact]) -> bool:
    """Every request that is heard of was asked."""
    asked = {fact.number for fact in facts if isinstance(fact, RequestAsked)}
    return all(getattr(fact, "number", None) in {None, *asked} for fact in facts)


def kinds_of(facts: Sequence[Fact]) -> list[str]:
    return [type(fact).__name__ for fact in facts]


def test_every_promise_has_a_history_that_breaks_it() -> None:
    assert list(BROKEN) == list(INVARIANTS)


@pytest.mark.parametrize("invariant", BROKEN)
@settings(max_examples=10)
@given(others=st.lists(st.tuples(st.integers(0, 9), st.integers(0, len(OTHERS) - 1)), max_size=25))
def test_the_shortest_history_is_found_whatever_else_was_seen(invariant: str, others: list[tuple[int, int]]) -> None:
    facts = broken_among_others(invariant, others)
    evidence, around = evidence_of(facts, invariant)
    for likely in ((), around):
        found = shrink(evidence, RULES, likely=likely)
        assert len(found) == BROKEN[invariant][1]
        assert reproduces(found, RULES, evidence)
        assert all(any(fact is each for each in facts) for fact in found)
        assert found == sorted(found, key=lambda fact: fact.t)
        for index in range(len(found)):
            without = found[:index] + found[index + 1 :]
            assert not (begins_well(without) and reproduces(without, RULES, evidence))


@pytest.mark.parametrize(
    ("invariant", "kinds"),
    [
        ("I1", ["RequestAsked", "RequestAccepted", "RequestStarted", "WaitingEnded"]),
        ("I8", ["RequestAsked", "RequestAccepted", "RequestStarted", "PoolEvent"]),
    ],
)
def test_a_history_shows_who_is_concerned_from_the_beginning(invariant: str, kinds: list[str]) -> None:
    evidence, around = evidence_of(broken_among_others(invariant, [(1, 0), (2, 1)]), invariant)
    assert kinds_of(shrink(evidence, RULES, likely=around)) == kinds


def test_of_two_kills_the_one_is_kept_whose_worker_did_not_come_back() -> None:
    story = Story("processes 1 2; hit w1; processes 2; processes 2 3; hit w2; wait 15.0; processes 3")
    evidence, around = evidence_of(story.facts, "I9")
    found = shrink(evidence, RULES, likely=around)
    assert kinds_of(found) == ["ProcessSample", "FaultInjected", "ProcessSample"]
    assert [fact.pid for fact in found if isinstance(fact, FaultInjected)] == [2]


def test_a_request_that_ended_long_ago_is_left_in_from_its_beginning_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stress.checker.base._MAX_ENDED", 50)
    others = "; ".join(f"ask {number}; begin {number}; answer {number}" for number in range(1000, 1060))
    story = Story(f"converse 1; {others}; answer 1")
    evidence, around = evidence_of(story.facts, "I1")
    assert story.facts[-1] in evidence.facts
    found = shrink(evidence, RULES, likely=around, budget=100_000)
    assert next(fact.number for fact in found if isinstance(fact, RequestAsked)) == 1
    assert reproduces(found, RULES, evidence)


def test_the_search_ends_when_its_budget_is_spent_with_the_best_that_was_found() -> None:
    facts = broken_among_others("I1", [(0, 0)] * 200)
    evidence, _ = evidence_of(facts, "I1")
    spent: list[int] = []
    for budget in (1, 8 * len(facts), 12 * len(facts), 1_000_000):
        found = shrink(evidence, RULES, budget=budget)
        assert reproduces(found, RULES, evidence)
        spent.append(len(found))
    assert spent[0] == len(facts)
    assert len(facts) > spent[1] > spent[2] > spent[3] == 4


def test_there_is_no_shortest_history_where_what_was_kept_does_not_show_it() -> None:
    evidence, _ = evidence_of(broken_among_others("I1", []), "I1")
    assert shrink(evidence._replace(facts=evidence.facts[3:]), RULES) == []


def test_the_result_of_a_run_has_the_shortest_history_for_the_first_of_each_promise() -> None:
    recorder = RunRecorder(make_plan(StressOptions(scale=0.01)), RULES)
    others = "; ".join(OTHERS[0].format(1000 + number, number % 3) for number in range(10))
    for fact in Story(f"ask 500; begin 500; ask 501; begin 501; {others}; end").facts:
        recorder.record(fact)
    recorder.finish()
    result = recorder.result()
    first, second = result.violations
    assert kinds_of(first.shortest) == ["RequestAsked", "RequestAccepted", "RequestStarted", "WaitingEnded"]
    assert second.shortest == ()
    assert result.harms == {"lost": 2}
    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result
