"""The lives of a supervisor that is driven: how they end and follow each other, and what is left after each."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from stress.facts import DirectViolation, Fact, Journal, LeftoverProcesses, SupervisorEnded, SupervisorStarted
from stress.faults.base import FaultSetup
from stress.own_target import OwnTarget, _SupervisorProcess
from stress.sampler import ProcessTree

WORKER = 7


class LeavingTree(ProcessTree):
    """Its worker ends at ``until``."""

    def __init__(self, clock: MockClock, until: float) -> None:
        super().__init__(supervisor=1)
        self.answers: list[list[int]] = []
        self._clock = clock
        self._until = until

    def leftovers(self) -> list[int]:
        self.answers.append([WORKER] if self._clock.current_time() < self._until else [])
        return self.answers[-1]


class StubbornProcess:
    """Only SIGKILL ends it."""

    returncode: int | None = None

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        self.returncode = -9

    async def wait(self) -> None:
        while self.returncode is None:
            await trio.sleep_forever()


def target_in(folder: Path, seen: list[Fact]) -> OwnTarget:
    return OwnTarget(folder, "", [], journal=Journal(trio.current_time, seen.append))


@pytest.mark.parametrize(("late", "left"), [(0.7, ()), (0.0, (WORKER,))])
async def test_what_is_left_has_as_much_longer_to_go_as_the_machine_is_late(
    tmp_path: Path, autojump_clock: MockClock, late: float, left: tuple[int, ...]
) -> None:
    seen: list[Fact] = []
    tree = LeavingTree(autojump_clock, trio.current_time() + 2.5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(target_in(tmp_path, seen)._record_leftovers, 1, tree)
        await trio.sleep(1.01)
        autojump_clock.jump(late)
    (fact,) = seen
    assert isinstance(fact, LeftoverProcesses)
    assert fact.pids == left


async def test_the_workers_of_one_that_had_to_be_killed_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def at_once(look: Callable[[], list[int]]) -> list[int]:
        """In the place of a thread, which takes no time by this clock, and for which it would not wait."""
        await trio.lowlevel.checkpoint()
        return look()

    monkeypatch.setattr("trio.to_thread.run_sync", at_once)
    target, process = target_in(tmp_path, []), StubbornProcess()
    target._current = _SupervisorProcess(1, process)  # type: ignore[arg-type]
    target._current.process_tree = tree = LeavingTree(autojump_clock, trio.current_time() + 10.2)
    await target._force_stop()
    assert process.returncode == -9
    assert tree.answers[0] == [WORKER]
    assert tree.answers[-1] == []


SUPERVISOR = """
test -e {folder}/broken && { echo 'this does not start' >&2; exit 3; }
trap '' TERM
echo '{"event":"ready"}' >&2
exec sleep 60
"""
"""Says that it is ready, and only SIGKILL ends it; where there is a file ``broken`` it does not start."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("stress.own_target._LEFTOVER_SECONDS", 0.05)
    monkeypatch.setattr("stress.own_target._FORCE_SECONDS", 0.2)
    return tmp_path


def target_with_process(folder: Path, seen: list[Fact]) -> OwnTarget:
    wrapper = ("sh", "-c", SUPERVISOR.replace("{folder}", str(folder)))
    return OwnTarget(folder, "", [FaultSetup(wrapper=wrapper)], journal=Journal(trio.current_time, seen.append))


@pytest.mark.process
async def test_each_end_of_a_supervisor_is_recorded_and_followed_by_the_next_life(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ends by itself before a fault strikes it, the second does not start, the third does not end."""
    seen: list[Fact] = []
    target, broken = target_with_process(folder, seen), folder / "broken"
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            assert target.supervisor is not None
            async with target.restart_lock:
                os.kill(target.supervisor, signal.SIGKILL)
                while not any(isinstance(fact, SupervisorEnded) for fact in seen):
                    await wait_all_tasks_blocked(0.01)
                with monkeypatch.context() as patch:
                    patch.delattr(os, "kill")  # nothing is sent to a pid that may be another's by now
                    await target.kill(signal.SIGKILL)
                broken.touch()
                await target.restart()
                assert await target.kill(signal.SIGKILL) == 3
                broken.unlink()
                await target.restart()
            await target.wait_ready()
            await target.stop(signal.SIGTERM, 0.3)
            nursery.cancel_scope.cancel()
    ends = [(fact.life, fact.code, fact.signals) for fact in seen if isinstance(fact, SupervisorEnded)]
    assert ends == [(1, -signal.SIGKILL, ()), (3, -signal.SIGKILL, (signal.SIGTERM, signal.SIGKILL))]
    assert [fact.life for fact in seen if isinstance(fact, SupervisorStarted)] == [1, 3]
    wrong = [fact.what.strip() for fact in seen if isinstance(fact, DirectViolation)]
    assert wrong[0].startswith("the supervisor did not start: ")
    assert wrong[1:] == ["the supervisor still runs 0.3 s after the signal to stop"]


@pytest.mark.process
async def test_a_supervisor_that_ends_by_itself_is_followed_by_one(folder: Path) -> None:
    seen: list[Fact] = []
    target = target_with_process(folder, seen)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            os.kill(target.supervisor or 0, signal.SIGKILL)
            while target.life < 2:
                await wait_all_tasks_blocked(0.01)
            await target.wait_ready()
            nursery.cancel_scope.cancel()
    assert [fact.life for fact in seen if isinstance(fact, SupervisorStarted)] == [1, 2]


@pytest.mark.process
async def test_a_run_that_is_given_up_while_a_fault_ends_the_supervisor_waits_for_none_and_starts_none(
    folder: Path,
) -> None:
    scope = trio.CancelScope(shield=True, deadline=trio.current_time() + 25)
    target = target_with_process(folder, [])

    async def end_and_start() -> None:
        with scope:
            await target.kill(signal.SIGTERM)
            await target.restart()

    async with trio.open_nursery() as nursery:
        await nursery.start(target.run)
        nursery.start_soon(end_and_start)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert target.life == 1
    assert target.supervisor is None
