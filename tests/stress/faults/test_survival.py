"""The pool survives each fault: what is asked afterwards is answered, and nothing of the fault is left."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from stress.attached import AttachedTarget
from stress.facts import (
    DirectViolation,
    Fact,
    FaultInjected,
    OrphanedRunEnded,
    ReusedPid,
    SupervisorEnded,
    SupervisorStarted,
)
from stress.fault_injection import FaultSwitches
from stress.faults import FaultEvent
from stress.faults.front_ends import FrontEndKills, expect_outcome
from stress.faults.supervisor import ResourceShortages
from stress.faults.workers import FaultyOutput, UnstoppableWorkers
from stress.pid_reuse import unavailable_reason
from stress.sampler import ProcessTree
from tests.stress.faults.driven import Driven, driven_pool

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

NO_END = ("half-line", "endless-line", "close-stdout")
"""After these faults there can be no answer."""
TOO_MUCH = "FAULT:garbage=500"
"""More lines in a row than may be no message, unless the answer behind them comes in the same block."""
MIB = 1024 * 1024
needs_pids = pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path short enough for a socket."""
    with TemporaryDirectory() as name:
        yield Path(name)


async def check_fault(driven: Driven, word: str, session: str) -> None:
    """An answer where one can be had; afterwards another worker, or the same, knows the conversation."""
    wants_error = any(word.startswith(f"FAULT:{fault}") for fault in NO_END)
    ask = driven.outcome if wants_error else driven.fair_outcome
    outcome = await ask(f"{word} first", session=session, agent="faulty")
    if word != TOO_MUCH:
        assert (outcome["status"] == "error") == wants_error, f"{word}: {outcome}"
    if "close-stdin" in word:  # the next request is the one to find out
        await driven.outcome("second", session=session, agent="faulty")
    names = [worker.name for worker in driven.target.workers()]
    assert len(names) == len(set(names)), "what a worker leaves behind was taken for one"
    assert f"{word} first" in await driven.answer("third", session=session, agent="faulty")


@pytest.mark.parametrize(("name", "words"), [("F2", FaultyOutput.words), ("F3", UnstoppableWorkers.words)])
async def test_every_fault_of_a_worker_is_survived(folder: Path, name: str, words: tuple[str, ...]) -> None:
    async with driven_pool(folder, name) as driven:
        assert driven.target.supervisor is not None
        async with trio.open_nursery() as nursery:
            for number, word in enumerate(words):
                nursery.start_soon(check_fault, driven, word, f"s{number}")
        memory = psutil.Process(driven.target.supervisor).memory_info().rss
    assert memory < 300 * MIB


SHORTAGES = {
    "no_files": "no file descriptor left",
    "no_processes": "limit of processes",
    "no_disk": "store_degraded",
}
"""And how the supervisor complains of each."""


async def test_shortages_are_felt_and_pass(folder: Path) -> None:
    async with driven_pool(folder, "F4") as driven:
        assert await driven.answer("before")
        for kind, complaint in SHORTAGES.items():
            if kind == "no_files" and os.geteuid() != 0:
                continue  # root alone may see what a supervisor has open
            while (
                complaint not in driven.target.log.read_text()
            ):  # a shortage may pass before a worker is started again
                await driven.strike(kind, amount=0.7)
                assert driven.actions[-2:] == [kind, "kill"]
                assert "before" in await driven.answer(f"after {kind}")
        for pid in (driven.target.supervisor, *(worker.pid for worker in driven.target.workers())):
            assert pid is not None
            for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
                assert resource.prlimit(pid, limit) == resource.getrlimit(limit)
        assert not FaultSwitches.open(driven.target.data_dir).no_processes


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and that nobody has waited for yet."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


async def test_a_shortage_may_find_a_supervisor_that_has_just_ended(folder: Path, zombie: int) -> None:
    facts: list[Fact] = []
    target = AttachedTarget(folder / "s", clock=time.monotonic, tell=facts.append)
    target.process_tree = ProcessTree(zombie)
    for kind in ("no_files", "no_disk"):
        await ResourceShortages().inject(FaultEvent(at=0.0, kind=kind), target)
    assert [fact.action for fact in facts if isinstance(fact, FaultInjected)] == [
        "no_files: unavailable, the supervisor has ended, or its files are not ours to look at",
        "no_disk",
    ]


ENDS = {"kill_supervisor": [-9], "end_twice_in_drain": [0], "end_twice_in_spawn": [-9, 0]}
"""How the supervisors end, one after the other."""


async def test_a_supervisor_ends_and_the_next_one_knows_everything(folder: Path) -> None:
    async with driven_pool(folder, "F5") as driven:
        assert await driven.answer("before")
        codes: list[int] = []
        for kind, ends in ENDS.items():
            codes += ends
            await driven.strike(kind, amount=0.1, pick=0.2)
            assert [end.code for end in driven.told(SupervisorEnded)] == codes
            assert len(driven.told(SupervisorStarted)) == len(codes) + 1
            assert "before" in await driven.answer(f"after {kind}")


async def test_the_run_of_a_front_end_that_died_comes_to_its_end_and_a_lost_one_is_noticed(folder: Path) -> None:
    async with driven_pool(folder, "F6") as driven:
        await driven.fault.inject(FaultEvent(at=0.0, kind="kill_front_end", amount=0.1), driven.target)
        assert driven.actions == ["kill_front_end"]
        assert driven.told(DirectViolation) == []
        assert len(driven.told(OrphanedRunEnded)) == 1
        again = FrontEndKills()
        await again.inject(FaultEvent(at=0.0, kind="kill_front_end", amount=0.1), driven.target)
        assert driven.actions == ["kill_front_end"] * 2  # of the same seed, and yet another run for the same supervisor
        run, _ = [session for session in await driven.sessions() if session.startswith("lost-front-end")]
        assert run in await driven.answer("and then?", session=run)
        await expect_outcome("never-asked", driven.target)
        (fact,) = driven.told(DirectViolation)
        assert "never-asked" in fact.what


async def test_the_supervisors_clock_moves_and_what_this_machine_does_not_allow_is_said_and_not_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stress.faults.supervisor.unavailable_reason", lambda: "it is too small")
    async with driven_pool(folder, "F7") as driven:
        assert await driven.answer("before")

        async def hours_ahead() -> float:
            accepted_at: float = (await driven.outcome("now"))["accepted_at"]
            return round((accepted_at - time.time()) / 3600, 1)

        for kind, hours in (("clock_ahead", 1), ("clock_behind", -1)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(driven.fault.inject, FaultEvent(at=0.0, kind=kind, amount=600.0), driven.target)
                await wait_all_tasks_blocked()
                assert await hours_ahead() == hours
                nursery.cancel_scope.cancel()
            assert await hours_ahead() == 0
        before = {worker.pid for worker in driven.target.workers()}
        await driven.fault.inject(FaultEvent(at=0.0, kind="pid", amount=1.0), driven.target)
        assert driven.actions[-1] == "pid: unavailable, it is too small"
        assert before <= {worker.pid for worker in driven.target.workers()}
        assert "before" in await driven.answer("RECALL")


@needs_pids
async def test_strangers_with_the_pids_of_dead_workers_are_let_alone(folder: Path) -> None:
    async with driven_pool(folder, "F7") as driven:
        assert await driven.answer("before")
        before = {worker.pid for worker in driven.target.workers()}
        await driven.strike("pid", amount=0.5)
        await driven.strike("pids_of_a_life", amount=1.0)
        first, *others = driven.told(ReusedPid)
        assert first.pid in before
        assert others
        assert [fact for fact in (first, *others) if fact.signalled] == []
        assert "before" in await driven.answer("after")
