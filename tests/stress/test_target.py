"""What becomes of the processes of a supervisor that is ended: they have their time to go, and are waited for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from stress.facts import Fact, LeftoverProcesses
from stress.sampler import ProcessTree
from stress.target import OwnTarget, _SupervisorProcess

WORKER = 7


class Leaving(ProcessTree):
    """Its worker ends at ``until``."""

    def __init__(self, clock: MockClock, until: float) -> None:
        super().__init__(supervisor=1)
        self.answers: list[list[int]] = []
        self._clock = clock
        self._until = until

    def leftovers(self) -> list[int]:
        self.answers.append([WORKER] if self._clock.current_time() < self._until else [])
        return self.answers[-1]


@pytest.mark.parametrize(("late", "left"), [(0.7, ()), (0.0, (WORKER,))])
async def test_what_is_left_has_as_much_longer_to_go_as_the_machine_is_late(
    tmp_path: Path, autojump_clock: MockClock, late: float, left: tuple[int, ...]
) -> None:
    told: list[Fact] = []
    target = OwnTarget(tmp_path, "", [], clock=trio.current_time, tell=told.append)
    household = Leaving(autojump_clock, trio.current_time() + 2.5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(target._record_leftovers, 1, household)
        await trio.sleep(1.01)
        autojump_clock.jump(late)
    (fact,) = told
    assert isinstance(fact, LeftoverProcesses)
    assert fact.pids == left


class Stubborn:
    """A process that only SIGKILL ends."""

    returncode: int | None = None

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        self.returncode = -9

    async def wait(self) -> None:
        while self.returncode is None:
            await trio.sleep_forever()


async def at_once(look: Callable[[], list[int]]) -> list[int]:
    """In the place of a thread, which takes no time by this clock, and for which it would not wait."""
    await trio.lowlevel.checkpoint()
    return look()


async def test_the_workers_of_one_that_had_to_be_killed_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("trio.to_thread.run_sync", at_once)
    target = OwnTarget(tmp_path, "", [], clock=trio.current_time, tell=lambda _fact: None)
    process: Any = Stubborn()
    target._current = _SupervisorProcess(1, process)
    target._current.process_tree = household = Leaving(autojump_clock, trio.current_time() + 10.2)
    await target._force_stop()
    assert process.returncode == -9
    assert household.answers[0] == [WORKER]
    assert household.answers[-1] == []
