"""What the machine makes late is told of when it is over: until then nobody is blamed for it, and then who is to be."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from stress.connection import ReconnectingClient
from stress.facts import Fact, MachineDelay, PoolEvent, RequestAccepted
from stress.sampler import ProcessTree, SupervisorSampler
from tests.stress.story import Story, broken_by

TIMED_OUT = frozenset({"acquire_timeout"})


def an_outcome_long_after_its_worker_was_taken(story: Story) -> float:
    story.ask(1, "ada")
    story.begin(1)
    story.pass_time(0.1)
    story.part(1)
    story.t += 0.4
    story.answer(1)
    return 0.4


def a_zombie_for_longer_than_a_second(story: Story) -> float:
    story.processes(1, zombies=(9,))
    story.pass_time(0.8)
    story.t += 0.5
    story.processes(1, zombies=(9,))
    story.processes(1)
    return 1.4


def a_zombie_that_is_seen_a_second_before_the_delay_is_told(story: Story) -> float:
    story.processes(1, zombies=(9,))
    story.pass_time(1.1)
    story.processes(1, zombies=(9,))
    story.pass_time(0.7)
    story.processes(1)
    return 1.9


def a_turn_for_the_next_one_that_comes_late(story: Story) -> float:
    story.ask(1)
    story.pass_time(2.0)
    story.ask(2)
    story.begin(2)
    for _ in range(3):
        story.pass_time(1.0)
    story.begin(1, "w2")
    return 3.1


def a_timeout_that_is_told_late(story: Story) -> float:
    story.ask(1, timeout=1.0)
    story.t += 1.3
    story.answer(1, reason="timeout", code="acquire_timeout", said=())
    return 0.3


@pytest.mark.parametrize(
    ("tell", "invariant"),
    [
        (an_outcome_long_after_its_worker_was_taken, "I8"),
        (a_zombie_for_longer_than_a_second, "I7"),
        (a_zombie_that_is_seen_a_second_before_the_delay_is_told, "I7"),
        (a_turn_for_the_next_one_that_comes_late, "I5"),
        (a_timeout_that_is_told_late, "I6"),
    ],
)
def test_a_delay_excuses_what_it_made_late_though_it_is_told_of_later(
    tell: Callable[[Story], float], invariant: str
) -> None:
    for share, expected in ((1.0, []), (0.0, [invariant])):
        story = Story()
        late = tell(story)
        story.t += 0.5
        story.tell(MachineDelay, seconds=share * late)
        story.pass_time(10.0)
        assert broken_by(story, overload=TIMED_OUT) == expected


@pytest.mark.parametrize("before", [True, False])
def test_a_delay_of_another_time_excuses_nothing(*, before: bool) -> None:
    story = Story()
    late = MachineDelay(t=0.0, seconds=1.0)
    if before:
        story.tell(MachineDelay, seconds=late.seconds)
        story.pass_time(3.0)
    a_timeout_that_is_told_late(story)
    if not before:
        story.pass_time(2.5)
        story.tell(MachineDelay, seconds=late.seconds)
    assert broken_by(story, overload=TIMED_OUT) == ["I6"]


@pytest.mark.parametrize(("later", "expected"), [(0.001, []), (-0.001, ["I5"])])
def test_who_was_served_before_the_other_came_has_overtaken_nobody(later: float, expected: list[str]) -> None:
    """What comes over one connection may be told after what comes over another."""
    story = Story()
    story.ask(1, priority=3)
    story.ask(2, priority=5)
    story.begin(1)
    bound = next(fact for fact in story.facts if isinstance(fact, PoolEvent))
    newcomer = next(fact for fact in story.facts if isinstance(fact, RequestAccepted) and fact.number == 2)
    story.facts[story.facts.index(newcomer)] = msgspec.structs.replace(newcomer, at=bound.at + later)
    story.pass_time(9.0)
    story.begin(2, "w2")
    assert broken_by(story) == expected


async def test_what_was_late_in_the_last_moment_is_told_of_when_nobody_looks_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("stress.sampler._PROC", tmp_path)
    schedstat = tmp_path / "7/task/7/schedstat"
    schedstat.parent.mkdir(parents=True)
    schedstat.write_text("0 250000000 1")

    async def ready() -> Path:
        return tmp_path / "nobody"

    told: list[Fact] = []
    witness = SupervisorSampler(
        ReconnectingClient(ready),
        household=lambda: ProcessTree(7),
        life=lambda: 1,
        clock=trio.current_time,
        tell=told.append,
    )
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(witness.watch_delays)
        await trio.sleep(0.5)
        schedstat.write_text("0 950000000 1")
        nursery.cancel_scope.cancel()
    (last,) = told
    assert isinstance(last, MachineDelay)
    assert (last.t - began, last.seconds) == pytest.approx((0.5, 0.7))
