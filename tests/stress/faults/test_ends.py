"""Faults that wait for something which does not come: that is told of, and nothing waits for it for ever."""

import math
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from stress.attached import AttachedTarget
from stress.facts import DirectViolation, Fact, FaultInjected
from stress.faults import FaultEvent
from stress.faults.base import uninterrupted
from stress.faults.front_ends import FrontEndKills
from stress.faults.supervisor import ResourceShortages


class Unwilling(AttachedTarget):
    """Its store never recovers, and no supervisor follows unless ``has_next``."""

    def __init__(self, tell: Callable[[Fact], None], *, has_next: bool = True) -> None:
        super().__init__(Path("nobody"), clock=trio.current_time, tell=tell)
        self.done: list[str] = []
        self.asked_at = 0.0
        self._has_next = has_next

    @property
    def supervisor(self) -> int:
        return 2**22 + 1  # more than any pid: whatever is done to it is done to nobody

    async def kill(self, number: int) -> int:
        self.done.append(signal.Signals(number).name)
        await trio.lowlevel.checkpoint()
        return -number

    async def restart(self) -> None:
        await trio.sleep(0.0 if self._has_next else math.inf)
        self.done.append("restart")

    async def wait_stored(self) -> None:
        self.asked_at = trio.current_time()
        await trio.sleep_forever()


async def test_an_end_that_is_not_done_in_time_is_told_of_and_followed_by_the_next_life(
    autojump_clock: MockClock,
) -> None:
    told: list[Fact] = []
    target = Unwilling(told.append)
    async with uninterrupted(target, 5.0):
        await trio.sleep(math.inf)
    assert target.done == ["SIGKILL", "restart"]
    assert [fact.what for fact in told if isinstance(fact, DirectViolation)] == [
        "a supervisor was ended, and 5 s later that and what had to follow was not done"
    ]


async def test_where_no_next_supervisor_begins_nobody_waits_for_it_for_ever(autojump_clock: MockClock) -> None:
    told: list[Fact] = []
    target = Unwilling(told.append, has_next=False)
    with trio.fail_after(11):
        async with uninterrupted(target, 5.0):
            await trio.sleep(math.inf)
    *_, last = told
    assert isinstance(last, DirectViolation)
    assert last.what == "the supervisor was killed, and the next one did not begin"


async def test_a_store_that_does_not_recover_when_there_is_disk_again_is_told_of(autojump_clock: MockClock) -> None:
    told: list[Fact] = []
    target = Unwilling(told.append)
    with trio.fail_after(60):
        await ResourceShortages().inject(FaultEvent(at=0.0, kind="no_disk", amount=2.0), target)
    assert target.asked_at == 4.0  # what was refused at the last moment is heard of by then
    assert "the store had not written what it had kept back" in next(
        fact.what for fact in told if isinstance(fact, DirectViolation)
    )


async def test_a_front_end_that_is_granted_nothing_is_told_of(tmp_path: Path) -> None:
    told: list[Fact] = []
    target = AttachedTarget(tmp_path / "nobody", clock=trio.current_time, tell=told.append)
    await FrontEndKills().inject(FaultEvent(at=0.0, kind="kill_front_end", amount=0.1), target)
    assert [fact.action for fact in told if isinstance(fact, FaultInjected)] == [
        "kill_front_end: unavailable, its front end said nothing, and ended"
    ]


async def test_the_end_of_the_load_does_not_take_a_front_end_with_it_that_was_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        speaks = trio.Event()

        async def read_line(self) -> str:
            await self.speaks.wait()
            return "no"

    @asynccontextmanager
    async def slow(_command: Iterable[str]) -> AsyncGenerator[Slow, None]:
        yield Slow()

    async def end() -> None:
        await fault.settle()
        nursery.cancel_scope.cancel()

    monkeypatch.setattr("stress.faults.front_ends.helper_process", slow)
    told: list[Fact] = []
    fault, target = FrontEndKills(), AttachedTarget(tmp_path / "s", clock=trio.current_time, tell=told.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fault.inject, FaultEvent(at=0.0, kind="kill_front_end"), target)
        await wait_all_tasks_blocked()
        nursery.start_soon(end)
        await wait_all_tasks_blocked()
        Slow.speaks.set()
    assert [fact.action for fact in told if isinstance(fact, FaultInjected)] == [
        "kill_front_end: unavailable, its front end said no"
    ]
