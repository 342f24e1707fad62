"""Real runs, small ones: a pool that keeps its promises, one that does not, one that runs already, one that stops."""

import os
import shutil
import signal
from pathlib import Path
from typing import NoReturn

import pytest
import trio

from app.child import SupervisorProcess
from errors import NoSupervisor, PoolError, UsageError
from stress.facts import DirectViolation, Fact, RequestAnswered, SupervisorStarted
from stress.outcome import StressResult
from stress.plan import StressOptions, make_plan
from stress.run import drive_attached, drive_own
from stress.schedule import settings_text

pytestmark = pytest.mark.process

SMALL = StressOptions(sessions=12, workers=3, requests=10, rate=20.0)


def violations_of(result: StressResult) -> list[str]:
    return [f"{violation.invariant}: {violation.what}" for violation in result.violations]


async def test_a_small_run_with_workers_killed_ends_green_and_says_what_happened() -> None:
    wish = StressOptions(faults=("F1",), sessions=20, workers=4, requests=61, rate=20.0, seed=15)
    result = await drive_own(wish)
    assert violations_of(result) == []
    assert result.all_kept
    assert result.fates["completed"] > 40
    assert result.requests == sum(second.asked for second in result.series)
    assert {fault.fault for fault in result.faults} == {"F1"}
    assert max(second.workers for second in result.series) == 4
    checked = {verdict.invariant: verdict.checked for verdict in result.verdicts}
    assert all(checked[invariant] for invariant in ("I1", "I2", "I3", "I4", "I7", "I10"))
    assert result.log == ""


async def test_too_many_workers_and_a_run_without_an_outcome_are_found_out_and_the_log_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The front end is killed before the last request; its run is waited for after that too."""

    async def ask_for_ever(*_: object) -> NoReturn:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr("stress.faults.peers._query_outcome", ask_for_ever)
    monkeypatch.setattr("stress.faults.peers._OUTCOME_SECONDS", 1.5)
    monkeypatch.setattr("stress.own_target._LEFTOVER_SECONDS", 0.0)
    wish = StressOptions(faults=("F6",), sessions=8, workers=3, seconds=2.5, rate=8.0, seed=4)
    result = await drive_own(wish, settings=settings_text(make_plan(wish), []).replace("max = 3", "max = 6"))
    assert not result.all_kept
    found = violations_of(result)
    assert any(what.startswith("I3: ") and "workers are alive, 3 may be" in what for what in found)
    assert any(what.endswith("died, and the run has no outcome 1.5 s later") for what in found)
    assert all(violation.history for violation in result.violations)
    assert "--seed 4" in result.plan.command
    assert b'"event":"ready"' in await trio.Path(result.log).read_bytes()
    shutil.rmtree(Path(result.log).parent)


async def test_a_supervisor_that_runs_already_is_driven_and_left_running_and_its_end_ends_the_run(
    tmp_path: Path,
) -> None:
    with SupervisorProcess(tmp_path, "[pool]\nmax = 2\n") as supervisor:
        result = await drive_attached(StressOptions(sessions=12, requests=40, rate=20.0), supervisor.socket)
        assert violations_of(result) == []
        assert result.plan.workers == 2
        assert result.plan.command.endswith(f"--rate 20 --requests 40 --attach {supervisor.socket}")
        assert "--workers" not in result.plan.command
        assert result.fates == {"completed": 40}
        for fault in ("F2", "F5"):  # these need a supervisor of our own
            with pytest.raises(UsageError, match="--attach"):
                await drive_attached(StressOptions(faults=(fault,), requests=5), supervisor.socket)
        with supervisor.connect() as client:
            assert client.call("ping") is not None

        def end_it(fact: Fact) -> None:
            if isinstance(fact, RequestAnswered):
                os.kill(supervisor.pid, signal.SIGTERM)

        with trio.fail_after(25), pytest.raises(ExceptionGroup) as caught:
            await drive_attached(
                StressOptions(sessions=12, requests=40, rate=2.0),
                supervisor.socket,
                show=lambda recorder: recorder.listeners.append(end_it),
            )
    assert caught.group_contains(NoSupervisor, depth=None)


async def test_a_supervisor_that_does_not_start_says_why() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await drive_own(SMALL, settings="[pool]\nmaks = 3\n")
    assert caught.group_contains(PoolError, match="maks", depth=None)


async def test_a_run_has_a_result_also_where_its_supervisor_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten(**limits: float) -> None:
        for name, seconds in limits.items():
            monkeypatch.setattr(f"stress.{name.replace('__', '.')}", seconds)

    shorten(
        driver___GRACE_SECONDS=0.5, plan___TIMEOUT=2.0, sampler___STATUS_SHARE=1.0, own_target___LEFTOVER_SECONDS=0.0
    )
    shorten(sampler__ANSWER_SECONDS=8.0)  # one question may be open when it stops
    supervisors: list[int] = []
    wrong: list[str] = []

    def stop_it(fact: Fact) -> None:
        if isinstance(fact, SupervisorStarted):
            supervisors.append(fact.supervisor)
        elif isinstance(fact, RequestAnswered) and fact.reason == "completed":
            os.kill(supervisors[-1], signal.SIGSTOP)
            shorten(run__ANSWER_SECONDS=0.7, sampler__ANSWER_SECONDS=0.7)
        elif isinstance(fact, DirectViolation):
            wrong.append(fact.what)

    result = await drive_own(SMALL, show=lambda recorder: recorder.listeners.append(stop_it))
    assert list(dict.fromkeys(wrong)) == [
        "the supervisor did not answer status in 0.7 s",
        "the supervisor did not answer sessions.list in 0.7 s",
        "the supervisor did not answer drain in 0.7 s",
        "the supervisor still runs 0.7 s after the signal to stop",
    ]
    assert not result.all_kept
    assert result.fates["completed"]
    shutil.rmtree(Path(result.log).parent)
