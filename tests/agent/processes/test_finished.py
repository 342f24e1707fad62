"""How long commands that have ended are remembered."""

from types import SimpleNamespace
from typing import cast

from agent.processes.registry import FinishedLimits, FinishedSessions
from agent.processes.session import ProcessSession


def ended(name: str, size: int = 0, scope: str = "mine") -> ProcessSession:
    return cast("ProcessSession", SimpleNamespace(id=name, scope_key=scope, output=SimpleNamespace(size=size)))


def names(finished: FinishedSessions, now: float) -> list[str]:
    return [session.id for session in finished.all(now)]


def test_they_are_forgotten_after_half_an_hour() -> None:
    finished = FinishedSessions(FinishedLimits())
    finished.add(ended("a"), 0.0)
    finished.add(ended("b"), 60.0)
    assert names(finished, 1799.0) == ["a", "b"]
    assert names(finished, 1800.0) == ["b"]
    assert names(finished, 1860.0) == []


def test_there_are_never_more_than_fifty_and_the_oldest_go() -> None:
    finished = FinishedSessions(FinishedLimits())
    for number in range(60):
        finished.add(ended(str(number)), 0.0)
    assert names(finished, 0.0) == [str(number) for number in range(10, 60)]


def test_their_output_is_bounded_in_all_but_the_last_one_stays_whatever_its_size() -> None:
    finished = FinishedSessions(FinishedLimits(chars=100))
    for name, size in (("a", 60), ("b", 30), ("c", 20), ("d", 80)):
        finished.add(ended(name, size), 0.0)
    assert names(finished, 0.0) == ["c", "d"]
    finished.add(ended("e", 500), 0.0)
    assert names(finished, 0.0) == ["e"]


def test_one_can_be_removed_once() -> None:
    finished = FinishedSessions(FinishedLimits())
    finished.add(ended("a"), 0.0)
    assert finished.remove(ended("a"))
    assert not finished.remove(ended("a"))


def test_one_that_ended_in_another_worker_takes_its_place_among_the_others() -> None:
    finished = FinishedSessions(FinishedLimits())
    finished.add(ended("late"), 1000.0)
    finished.add(ended("early"), 1000.0, ago=900.0)
    finished.add(ended("too early"), 1000.0, ago=1800.0)
    assert names(finished, 1000.0) == ["early", "late"]
    assert names(finished, 1900.0) == ["late"]


def test_two_conversations_may_have_given_the_same_name() -> None:
    finished = FinishedSessions(FinishedLimits())
    finished.add(ended("a"), 0.0)
    finished.add(ended("a", scope="other"), 0.0)
    assert names(finished, 0.0) == ["a", "a"]
