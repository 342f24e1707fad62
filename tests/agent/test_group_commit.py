"""Waits for the disk that happen together are one, and nobody is told too early."""

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.conversation import GroupCommit


class Disk:
    """Writes count up; a commit takes a second, and what was written before it began is safe after it."""

    def __init__(self) -> None:
        self.written = 0
        self.safe = 0
        self.commits = 0
        self.broken = False

    async def commit(self) -> None:
        self.commits += 1
        reached = self.written
        await trio.sleep(1)
        if self.broken:
            raise OSError("the disk is broken")
        self.safe = reached

    def write(self) -> int:
        self.written += 1
        return self.written


async def test_those_who_write_in_the_same_breath_share_one_commit(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)

    async def work() -> None:
        number = disk.write()
        await group.wait()
        assert disk.safe >= number

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(work)
    assert disk.commits == 1


async def test_who_comes_during_a_commit_waits_for_the_next_one(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk()
    group = GroupCommit(disk.commit)

    async def work(delay: float) -> None:
        await trio.sleep(delay)
        number = disk.write()
        await group.wait()
        assert disk.safe >= number

    async with trio.open_nursery() as nursery:
        for delay in (0, 0.3, 0.6, 0.9):
            nursery.start_soon(work, delay)
    assert disk.commits == 2
    assert trio.current_time() == 2


async def test_a_failed_commit_is_told_to_everybody_who_waited_for_it(autojump_clock: trio.testing.MockClock) -> None:
    disk = Disk()
    disk.broken = True
    group = GroupCommit(disk.commit)
    told = []

    async def work() -> None:
        disk.write()
        with pytest.raises(OSError, match="broken"):
            await group.wait()
        told.append(True)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(work)
    assert told == [True] * 3
    disk.broken = False
    await group.wait()
    assert disk.safe == disk.written


@given(st.lists(st.floats(0, 5), max_size=8))
@settings(max_examples=40, deadline=None)
def test_whenever_one_writes_nobody_is_told_before_it_is_safe(delays: list[float]) -> None:
    async def main() -> None:
        disk = Disk()
        group = GroupCommit(disk.commit)

        async def work(delay: float) -> None:
            await trio.sleep(delay)
            number = disk.write()
            await group.wait()
            assert disk.safe >= number

        async with trio.open_nursery() as nursery:
            for delay in delays:
                nursery.start_soon(work, delay)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
