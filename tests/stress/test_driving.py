"""Real runs, small ones: a pool that keeps its promises, one that does not, one that somebody else runs; processes."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest
import trio
import trio.testing

from commands.demo import SupervisorProcess
from errors import PoolError, UsageError
from stress.facts import (
    DirectViolation,
    Fact,
    ObservedProcess,
    RequestAnswered,
    RequestAsked,
    SupervisorEnded,
    SupervisorStarted,
)
from stress.faults.base import helper_process
from stress.outcome import StressResult
from stress.plan import StressOptions, make_plan
from stress.run import drive_attached, drive_own
from stress.sampler import ProcessTree, find_supervisor, signal_process
from stress.schedule import settings_text
from stress.target import OwnTarget
from wire.procfs import read_stat

pytestmark = pytest.mark.process

SMALL = StressOptions(sessions=12, workers=3, requests=40, rate=20.0)


def told(result: StressResult) -> list[str]:
    return [f"{violation.invariant}: {violation.what}" for violation in result.violations]


@asynccontextmanager
async def running_target(facts: list[Fact]) -> AsyncIterator[OwnTarget]:
    """A supervisor under the plan ``SMALL``, and what is told of it."""
    with tempfile.TemporaryDirectory(prefix="p") as folder, trio.fail_after(25):  # a socket's path is short
        text = settings_text(make_plan(SMALL), [])
        target = OwnTarget(Path(folder), text, [], clock=trio.current_time, tell=facts.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            yield target
            nursery.cancel_scope.cancel()


def clear(result: StressResult) -> None:
    """Remove what was left to be looked at."""
    shutil.rmtree(Path(result.log).parent)


async def test_a_small_run_with_workers_killed_ends_green_and_says_what_happened() -> None:
    wish = StressOptions(faults=("F1",), sessions=20, workers=4, requests=61, rate=12.0, seed=36)
    result = await drive_own(wish)
    assert told(result) == []
    assert result.all_kept
    assert result.fates["completed"] > 40
    assert result.requests == sum(second.asked for second in result.series)
    assert {fault.fault for fault in result.faults} == {"F1"}
    assert max(second.workers for second in result.series) == 4
    checked = {verdict.invariant: verdict.checked for verdict in result.verdicts}
    assert all(checked[invariant] for invariant in ("I1", "I2", "I3", "I4", "I7", "I10"))
    assert result.log == ""


async def test_a_soak_asks_no_faster_than_it_is_answered() -> None:
    facts: list[Fact] = []
    wish = StressOptions(load="L5", faults=("F1",), sessions=2, workers=2, requests=60, rate=500.0)
    result = await drive_own(wish, show=lambda recorder: recorder.listeners.append(facts.append))
    assert told(result) == []
    open_now = most = 0
    for fact in facts:
        open_now += isinstance(fact, RequestAsked) - isinstance(fact, RequestAnswered)
        most = max(most, open_now)
    assert most == 16


LOST = StressOptions(faults=("F6",), sessions=8, workers=3, seconds=4.0, rate=8.0, seed=4)
"""Its one stroke comes more than a second before the last request is made."""


async def test_that_the_run_of_a_killed_front_end_comes_to_no_end_is_found_out_after_the_end_of_the_load_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask_for_ever(*_: object) -> NoReturn:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("stress.faults.front_ends._query_outcome", ask_for_ever)
    monkeypatch.setattr("stress.faults.front_ends._OUTCOME_SECONDS", 4.0)
    result = await drive_own(LOST)
    (violation,) = result.violations
    assert violation.what.endswith("died, and the run has no outcome 4 s later")
    clear(result)


async def test_a_pool_with_more_workers_than_it_may_have_is_found_out_and_its_log_is_left() -> None:
    settings = settings_text(make_plan(SMALL), []).replace("max = 3", "max = 6")
    result = await drive_own(SMALL, settings=settings)
    broken = {verdict.invariant for verdict in result.verdicts if verdict.broken}
    assert "I3" in broken
    assert not result.all_kept
    (violation, *_) = [each for each in result.violations if each.invariant == "I3"]
    assert "workers are alive, 3 may be" in violation.what
    assert violation.history
    assert "--seed 7" in result.plan.command
    assert b'"event":"ready"' in await trio.Path(result.log).read_bytes()
    clear(result)


async def test_a_pool_that_gives_up_requests_for_no_reason_is_found_out() -> None:
    settings = settings_text(make_plan(SMALL), []).replace("runs = 100000", "runs = 1")
    result = await drive_own(SMALL, settings=settings)
    assert any("which nothing explains" in violation.what for violation in result.violations)
    clear(result)


async def test_a_supervisor_that_somebody_else_runs_is_driven_and_left_running(tmp_path: Path) -> None:
    with SupervisorProcess(tmp_path, "[pool]\nmax = 2\n") as supervisor:
        result = await drive_attached(StressOptions(sessions=12, requests=40, rate=20.0), supervisor.socket)
        assert told(result) == []
        assert result.plan.workers == 2
        assert result.plan.command.endswith(f"--rate 20 --requests 40 --attach {supervisor.socket}")
        assert "--workers" not in result.plan.command
        assert result.fates == {"completed": 40}
        for fault in ("F2", "F5"):  # not for another's supervisor
            with pytest.raises(UsageError, match="--attach"):
                await drive_attached(StressOptions(faults=(fault,), requests=5), supervisor.socket)
        with supervisor.connect() as client:
            assert client.call("ping") is not None


async def test_a_supervisor_that_does_not_start_says_why() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await drive_own(SMALL, settings="[pool]\nmaks = 3\n")
    assert caught.group_contains(PoolError, match="maks", depth=None)


async def test_a_run_that_is_given_up_while_a_fault_ends_the_supervisor_waits_for_none_and_starts_none() -> None:
    scope = trio.CancelScope(shield=True, deadline=trio.current_time() + 25)
    with tempfile.TemporaryDirectory(prefix="p") as folder:  # a socket's path is short
        text = settings_text(make_plan(SMALL), [])
        target = OwnTarget(Path(folder), text, [], clock=trio.current_time, tell=lambda _fact: None)

        async def end_and_start() -> None:
            with scope:
                await target.kill(signal.SIGTERM)
                await target.restart()

        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            nursery.start_soon(end_and_start)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert target.life == 1
    assert target.supervisor is None


async def test_a_supervisor_that_ends_by_itself_before_a_fault_strikes_it_is_told_of_and_followed_by_one() -> None:
    facts: list[Fact] = []
    sent: list[int] = []

    async def strike() -> None:
        await target.kill(signal.SIGKILL)
        await target.restart()

    with tempfile.TemporaryDirectory(prefix="p") as folder, trio.fail_after(25):  # a socket's path is short
        text = settings_text(make_plan(SMALL), [])
        target = OwnTarget(Path(folder), text, [], clock=trio.current_time, tell=facts.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(target.run)
            assert target.supervisor is not None
            async with target.restart_lock:
                os.kill(target.supervisor, signal.SIGKILL)
                while not any(isinstance(fact, SupervisorEnded) for fact in facts):
                    await trio.testing.wait_all_tasks_blocked(0.01)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "kill", lambda pid, _number: sent.append(pid))
                    await strike()
            async with target.restart_lock:  # whoever waited for it has had it
                await target.wait_ready()
            await target.stop(signal.SIGTERM)
            nursery.cancel_scope.cancel()
    assert [(fact.life, fact.signals) for fact in facts if isinstance(fact, SupervisorEnded)] == [
        (1, ()),
        (2, (signal.SIGTERM,)),
    ]
    assert [fact.life for fact in facts if isinstance(fact, SupervisorStarted)] == [1, 2]
    assert sent == []


async def test_a_run_has_a_result_also_where_its_supervisor_does_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_at_hand = {"driver._GRACE_SECONDS": 1.0, "plan._TIMEOUT": 10.0, "sampler._STATUS_SHARE": 1.0}
    has_stopped = {"run.ANSWER_SECONDS": 1.0, "sampler.ANSWER_SECONDS": 1.0}

    def shorten(limits: dict[str, float]) -> None:
        for name, seconds in limits.items():
            monkeypatch.setattr(f"stress.{name}", seconds)

    shorten({**is_at_hand, "sampler.ANSWER_SECONDS": 8.0})  # one question may be open when it stops
    supervisors: list[int] = []
    wrong: list[str] = []

    def stop_it(fact: Fact) -> None:
        if isinstance(fact, SupervisorStarted):
            supervisors.append(fact.supervisor)
        elif isinstance(fact, RequestAnswered) and fact.reason == "completed":
            os.kill(supervisors[-1], signal.SIGSTOP)
            shorten(has_stopped)
        elif isinstance(fact, DirectViolation):
            wrong.append(fact.what)

    result = await drive_own(SMALL, show=lambda recorder: recorder.listeners.append(stop_it))
    assert list(dict.fromkeys(wrong)) == [
        "the supervisor did not answer status in 1 s",
        "the supervisor did not answer sessions.list in 1 s",
        "the supervisor did not answer drain in 1 s",
        "the supervisor runs 1 s after it was told to end",
    ]
    assert not result.all_kept
    assert result.fates["completed"]
    clear(result)


async def test_a_supervisor_that_does_not_end_is_told_of_and_killed() -> None:
    facts: list[Fact] = []
    async with running_target(facts) as target:
        assert target.supervisor is not None
        os.kill(target.supervisor, signal.SIGSTOP)
        await target.stop(signal.SIGTERM, 0.3)
    assert [fact.what for fact in facts if isinstance(fact, DirectViolation)] == [
        "the supervisor runs 0.3 s after it was told to end"
    ]
    assert [(fact.code, fact.signals) for fact in facts if isinstance(fact, SupervisorEnded)] == [
        (-signal.SIGKILL, (signal.SIGTERM, signal.SIGKILL))
    ]


async def test_that_a_later_one_does_not_start_is_told_and_nobody_waits_for_its_end() -> None:
    facts: list[Fact] = []
    async with running_target(facts) as target, target.restart_lock:
        await target.kill(signal.SIGKILL)
        (target.folder / "pool.toml").write_text("[pool]\nmaks = 3\n")
        await target.restart()
        assert await target.kill(signal.SIGKILL) > 0
    assert [fact.what.partition(":")[0] for fact in facts if isinstance(fact, DirectViolation)] == [
        "the supervisor did not start"
    ]


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_has_another_ones_pid_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        stat = read_stat(child.pid)
        assert stat is not None
        assert not signal_process(ObservedProcess(child.pid, stat.start_time + 1, "w1"), signal.SIGKILL)
        assert child.poll() is None
        assert signal_process(ObservedProcess(child.pid, stat.start_time, "w1"), signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
        assert not signal_process(ObservedProcess(child.pid, stat.start_time, "w1"), signal.SIGKILL)


def test_that_a_worker_runs_or_rests_is_no_news() -> None:
    marked = {**os.environ, "POOL_WORKER_ID": "abc:w7"}
    with subprocess.Popen(["sleep", "60"], env=marked, start_new_session=True) as worker:
        household = ProcessTree(os.getpid())
        try:
            while not (rests := household.scan()).workers:  # between fork and exec it has no mark yet
                pass
            worker.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
            assert household.scan() == rests
        finally:
            worker.kill()


async def test_a_helper_is_killed_before_the_end_of_its_stdin_tells_it_that_we_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = trio.Process.kill

    def kill_late(process: trio.Process) -> None:
        with suppress(subprocess.TimeoutExpired):
            process._proc.wait(0.5)  # on a slow machine
        kill(process)

    monkeypatch.setattr(trio.Process, "kill", kill_late)
    async with helper_process(["sh", "-c", f"echo; cat; touch {tmp_path}/told"]) as helper:
        await helper.read_line()
    assert not (tmp_path / "told").exists()


def test_workers_are_known_by_their_mark_and_zombies_by_their_state() -> None:
    marked = {**os.environ, "POOL_WORKER_ID": "abc:w7"}
    unmarked = {name: value for name, value in os.environ.items() if name != "POOL_WORKER_ID"}
    with (
        subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=marked, start_new_session=True
        ) as worker,
        subprocess.Popen(["sleep", "60"], env=unmarked) as helper,
        subprocess.Popen(["true"]) as zombie,
    ):
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        household = ProcessTree(os.getpid())
        while not (look := household.scan()).workers:  # between fork and exec it has no mark yet
            pass
        assert [(each.pid, each.name) for each in look.workers] == [(worker.pid, "w7")]
        assert zombie.pid in look.zombies
        assert household.instance == "abc"
        assert {worker.pid, helper.pid} <= set(household.leftovers())
        worker.communicate(b"\n")
        helper.kill()
        helper.wait()
        assert not {worker.pid, helper.pid} & set(household.leftovers())


def test_behind_a_wrapper_the_supervisor_is_found_by_its_command(tmp_path: Path) -> None:
    (tmp_path / "cli.py").write_text("input()")
    inner = f"cd {tmp_path} && {sys.executable} -m cli run; true"
    with subprocess.Popen(["sh", "-c", inner], stdin=subprocess.PIPE) as wrapper:
        try:
            found = wrapper.pid
            while found == wrapper.pid:
                found = find_supervisor(wrapper.pid)
            stat = read_stat(found)
            assert stat is not None
            assert stat.parent == wrapper.pid
        finally:
            wrapper.communicate(b"\n")
