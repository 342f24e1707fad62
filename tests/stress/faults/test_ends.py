"""Faults that wait for something which does not come: that is recorded, and none waits for ever."""

import math
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from stress.attached_target import AttachedTarget
from stress.facts import DirectViolation, Fact, FaultInjected, Journal
from stress.faults import FaultEvent
from stress.faults.base import uninterrupted
from stress.faults.peers import FrontEndKills
from stress.faults.supervisor import ResourceShortages, SupervisorKills
from stress.sampler import ProcessTree


class UnwillingTarget(AttachedTarget):
    """Its store never recovers, and no supervisor follows unless ``has_next``."""

    def __init__(self, record: Callable[[Fact], None], *, has_next: bool = True) -> None:
        super().__init__(Path("absent"), journal=Journal(trio.current_time, record))
        self.done: list[str] = []
        self.asked_at = 0.0
        self._has_next = has_next

    @property
    def supervisor(self) -> int:
        return 2**22 + 1  # more than any pid: whatever is done to it is done to no process

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


def wrong(facts: list[Fact]) -> list[str]:
    return [fact.what for fact in facts if isinstance(fact, DirectViolation)]


def injected(facts: list[Fact]) -> list[str]:
    return [fact.action for fact in facts if isinstance(fact, FaultInjected)]


@pytest.mark.parametrize("has_next", [True, False])
async def test_an_end_that_takes_too_long_is_recorded_and_followed_by_the_next_life_if_there_is_one(
    autojump_clock: MockClock, *, has_next: bool
) -> None:
    facts: list[Fact] = []
    target = UnwillingTarget(facts.append, has_next=has_next)
    with trio.fail_after(11):
        async with uninterrupted(target, 5.0):
            await trio.sleep(math.inf)
    assert target.done == ["SIGKILL", "restart"][: 1 + has_next]
    late = "a supervisor was to be replaced, and was not 5 s later"
    assert wrong(facts) == [late, "the supervisor was killed, and the next one did not start"][: 2 - has_next]


@pytest.mark.parametrize(
    ("kind", "done"),
    [("kill_supervisor", ["SIGKILL", "restart"]), ("end_twice_in_drain", ["SIGTERM", "restart"])],
)
async def test_a_supervisor_is_ended_as_the_event_says(autojump_clock: MockClock, kind: str, done: list[str]) -> None:
    facts: list[Fact] = []
    target = UnwillingTarget(facts.append)
    await SupervisorKills().inject(FaultEvent(at=0.0, kind=kind, amount=0.1), target)
    assert (target.done, injected(facts)) == (done, [kind])


async def test_a_store_that_does_not_recover_when_there_is_disk_again_is_recorded(autojump_clock: MockClock) -> None:
    facts: list[Fact] = []
    target = UnwillingTarget(facts.append)
    with trio.fail_after(60):
        await ResourceShortages().inject(FaultEvent(at=0.0, kind="no_disk", amount=2.0), target)
    assert target.asked_at == 4.0  # what was refused at the last moment is heard of by then
    assert "the store had not written its backlog" in wrong(facts)[0]


@pytest.fixture
def zombie() -> Iterator[int]:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


@pytest.mark.process
async def test_a_shortage_may_find_a_supervisor_that_has_just_ended(
    tmp_path: Path, zombie: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stress.faults.supervisor._NOTICE_SECONDS", 0.0)
    facts: list[Fact] = []
    target = AttachedTarget(tmp_path / "s", journal=Journal(trio.current_time, facts.append))
    target.identified = ProcessTree(zombie)
    for kind in ("no_files", "no_disk"):
        await ResourceShortages().inject(FaultEvent(at=0.0, kind=kind), target)
    assert injected(facts) == [
        "no_files: unavailable, the supervisor has ended, or its files are not ours to look at",
        "no_disk",
    ]


@pytest.mark.process
async def test_a_front_end_that_is_granted_nothing_is_recorded(tmp_path: Path) -> None:
    facts: list[Fact] = []
    target = AttachedTarget(tmp_path / "absent", journal=Journal(trio.current_time, facts.append))
    await FrontEndKills().inject(FaultEvent(at=0.0, kind="kill_front_end", amount=0.1), target)
    assert injected(facts) == ["kill_front_end: unavailable, its front end said nothing, and ended"]


async def test_the_end_of_the_load_waits_for_a_front_end_that_was_just_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowHelper:
        speaks = trio.Event()

        async def read_line(self) -> str:
            await self.speaks.wait()
            return "no"

    @asynccontextmanager
    async def slow(_command: Iterable[str]) -> AsyncGenerator[SlowHelper, None]:
        yield SlowHelper()

    async def end() -> None:
        await fault.settle()
        nursery.cancel_scope.cancel()

    monkeypatch.setattr("stress.faults.peers.helper_process", slow)
    facts: list[Fact] = []
    fault, target = FrontEndKills(), AttachedTarget(tmp_path / "s", journal=Journal(trio.current_time, facts.append))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fault.inject, FaultEvent(at=0.0, kind="kill_front_end"), target)
        await wait_all_tasks_blocked()
        nursery.start_soon(end)
        await wait_all_tasks_blocked()
        SlowHelper.speaks.set()
    assert injected(facts) == ["kill_front_end: unavailable, its front end said no"]
