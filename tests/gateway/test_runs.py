"""Runs over a real pool whose workers are made of memory, on a virtual clock."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from errors import (
    AcquireTimeout,
    InternalError,
    PoolClosed,
    PoolSaturated,
    RequestTimeout,
    RunAborted,
    UsageError,
    WorkerExited,
)
from gateway.handlers import Handlers
from gateway.runs import Run
from gateway.service import Gateway, open_gateway
from gateway.settings import GatewaySettings
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import ProfilesSettings, RoleSettings
from tests.gateway.callers import RecordingCaller
from tests.pool.memory_workers import MemoryLauncher

PROFILES = ProfilesSettings(roles={"writer": RoleSettings(append_system_prompt="Write.")})


@asynccontextmanager
async def gateway_over_memory(
    tmp_path: Path, launcher: MemoryLauncher | None = None, **settings: Any
) -> AsyncGenerator[Gateway, None]:
    pool_settings = PoolSettings(min=0, max=settings.pop("max", 2))
    async with (
        Pool(pool_settings, launcher=launcher or MemoryLauncher(), memory_bytes=1 << 40) as pool,
        open_gateway(pool, GatewaySettings(**settings), PROFILES, data_dir=tmp_path) as gateway,
    ):
        yield gateway


async def finish(run: Run) -> list[str]:
    """Follow a run to its end; the names of its events."""
    return [event.event or "" async for batch in run.events for event in batch]


async def test_a_run_streams_its_events_and_ends_with_its_outcome(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        run = gateway.start_run("alice", "hello")
        assert await finish(run) == ["run_start", "assistant_message"]
        outcome = run.outcome()
    assert (outcome.text, outcome.stop_reason, outcome.session) == ("hello", "stop", "alice")


async def test_runs_of_one_session_are_serial_and_keep_their_order(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        runs = [gateway.start_run("alice", text) for text in "abc"]
        for run in runs:
            await finish(run)
        assert [run.outcome().text for run in runs] == ["a", "a|b", "a|b|c"]


async def test_a_run_goes_on_when_its_front_end_leaves(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        gateway.start_run("alice", "first").events.close()
        second = gateway.start_run("alice", "second")
        await finish(second)
        assert second.outcome().text == "first|second"


async def test_a_run_of_a_worker_that_dies_fails_with_the_reason(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        run = gateway.start_run("alice", "die")
        await finish(run)
        with pytest.raises(WorkerExited, match="signal 9"):
            run.outcome()
        after = gateway.start_run("alice", "after")
        await finish(after)
        assert after.outcome().text == "after"


async def test_only_a_retry_safe_run_is_sent_again_when_its_worker_dies(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    launcher = MemoryLauncher()
    async with gateway_over_memory(tmp_path, launcher) as gateway:
        run = gateway.start_run("alice", "die", retry_safe=True)
        await finish(run)
        with pytest.raises(WorkerExited):
            run.outcome()
        assert launcher.prompts == ["die"] * 3
        once = gateway.start_run("bob", "die")
        await finish(once)
        assert launcher.prompts == ["die"] * 4


async def test_abort_ends_the_running_turn(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        run = gateway.start_run("alice", "hang")
        await trio.testing.wait_all_tasks_blocked()
        assert await gateway.abort("alice")
        await finish(run)
        assert run.outcome().stop_reason == "aborted"
        assert not await gateway.abort("alice")


async def test_abort_takes_a_waiting_run_out_of_the_queue(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path, max=1) as gateway:
        holder = gateway.start_run("holder", "hang")
        await trio.testing.wait_all_tasks_blocked()
        waiting = gateway.start_run("waiting", "hello")
        await trio.testing.wait_all_tasks_blocked()
        assert await gateway.abort("waiting")
        await finish(waiting)
        with pytest.raises(RunAborted):
            waiting.outcome()
        assert await gateway.abort("holder")
        await finish(holder)


async def test_abort_by_name_leaves_the_sessions_other_runs_alone(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        first = gateway.start_run("alice", "hang", name="mine")
        second = gateway.start_run("alice", "second", name="yours")
        await trio.testing.wait_all_tasks_blocked()
        assert (await call(gateway, "abort", '{"session":"alice","run":"yours"}'))[0]["aborted"]
        await finish(second)
        with pytest.raises(RunAborted):
            second.outcome()
        assert not await gateway.abort("alice", "yours")
        assert not await gateway.abort("alice", "nobody's")
        assert await gateway.abort("alice", "mine")
        await finish(first)
        assert first.outcome().stop_reason == "aborted"


async def test_a_defect_met_in_one_run_fails_that_run_and_no_other(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise OverflowError("int too large to convert to float")

    async with gateway_over_memory(tmp_path) as gateway:
        with monkeypatch.context() as patched:
            patched.setattr(gateway.pool, "lease", break_down)
            broken = gateway.start_run("alice", "hello")
            await finish(broken)
        with pytest.raises(InternalError, match="OverflowError: int too large"):
            broken.outcome()
        assert "session alice" in caplog.text
        after = gateway.start_run("alice", "after")
        await finish(after)
        assert after.outcome().text == "after"


async def test_the_timeout_covers_waiting_for_a_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path, max=1) as gateway:
        holder = gateway.start_run("holder", "hang")
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        run = gateway.start_run("waiting", "hello", timeout=5)
        await finish(run)
        assert trio.current_time() - started == pytest.approx(5, abs=0.1)
        with pytest.raises(AcquireTimeout):
            run.outcome()
        assert await gateway.abort("holder")
        await finish(holder)


async def test_the_timeout_covers_waiting_for_the_same_session(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        gateway.start_run("alice", "hang").events.close()
        run = gateway.start_run("alice", "hello", timeout=5)
        await finish(run)
        with pytest.raises(AcquireTimeout, match="busy with earlier runs"):
            run.outcome()
        assert await gateway.abort("alice")


async def test_the_timeout_covers_the_turn_and_frees_the_session(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path, run_timeout=7.0) as gateway:
        run = gateway.start_run("alice", "hang")
        await finish(run)
        with pytest.raises(RequestTimeout):
            run.outcome()
        after = gateway.start_run("alice", "after")
        await finish(after)
        assert after.outcome().text == "after"


async def test_a_reader_that_stops_reading_stalls_only_its_own_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        unread = gateway.start_run("slow", "hello")
        other = gateway.start_run("other", "hello")
        await finish(other)
        assert other.outcome().text == "hello"
        await finish(unread)
        assert unread.outcome().text == "hello"


async def test_a_reader_that_never_reads_keeps_no_worker_beyond_the_runs_timeout(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    launcher = MemoryLauncher()
    async with gateway_over_memory(tmp_path, launcher, run_timeout=7.0) as gateway:
        unread = gateway.start_run("slow", "hang")
        await trio.testing.wait_all_tasks_blocked()
        (worker,) = launcher.live.values()
        for _ in range(40):
            worker.transport.say({"event": "assistant_message", "data": {"partial": "x"}})
        after = gateway.start_run("slow", "after", timeout=60)
        await finish(after)
        assert after.outcome().text == "after"
        assert len(await finish(unread)) < 40
        with pytest.raises(RequestTimeout):
            unread.outcome()


@pytest.mark.parametrize("key", ["", "a" * 513, "a\nb", "a\0b"])
async def test_a_session_key_that_no_listing_could_show_is_refused(tmp_path: Path, key: str) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        with pytest.raises(UsageError, match="session key"):
            gateway.start_run(key, "hello")


async def test_an_unknown_agent_or_role_is_refused_before_a_directory_is_made(tmp_path: Path) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        with pytest.raises(UsageError, match="unknown agent 'mian'; did you mean 'main'"):
            gateway.start_run("alice", "hello", agent="mian")
        with pytest.raises(UsageError, match="unknown role"):
            gateway.start_run("alice", "hello", role="../../x")
    assert not (tmp_path / "workspaces").exists()


async def test_a_full_session_queue_refuses_the_next_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path, session_queue=1) as gateway:
        gateway.start_run("alice", "hang").events.close()
        await trio.testing.wait_all_tasks_blocked()
        gateway.start_run("alice", "two").events.close()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(PoolSaturated):
            gateway.start_run("alice", "three")
        assert await gateway.abort("alice")


async def test_a_run_that_the_end_of_the_gateway_cuts_off_says_where_it_was(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway_over_memory(tmp_path, max=1) as gateway:
        runs = []
        for session in ("first", "second"):
            runs.append(gateway.start_run(session, "hang"))
            await trio.testing.wait_all_tasks_blocked()
    for run, where in zip(runs, ("in its turn", "before its turn began"), strict=True):
        with pytest.raises(RunAborted, match=where):
            run.outcome()


async def test_a_workspace_that_cannot_be_made_refuses_the_run(tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("in the way")
    async with gateway_over_memory(tmp_path) as gateway:
        with pytest.raises(UsageError, match="workspaces/default of role default cannot be made"):
            gateway.start_run("alice", "hello")


async def test_no_run_is_taken_once_the_shutdown_was_asked_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        gateway.shutdown_requested.set()
        with pytest.raises(PoolClosed):
            gateway.start_run("alice", "hello")


# --- the handlers behind every door ---------------------------------------------------------------------------------


async def call(gateway: Gateway, method: str, params: str = "null") -> tuple[Any, list[tuple[str, Any]]]:
    caller = RecordingCaller()
    result = await Handlers(gateway, lambda: {"pid": 1}).call(method, msgspec.Raw(params.encode()), caller)
    return msgspec.json.decode(msgspec.json.encode(result)), caller.pushed


async def test_prompt_pushes_its_events_and_answers_with_the_outcome(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        result, pushed = await call(gateway, "prompt", '{"session":"alice","text":"hi","role":"writer"}')
    assert [data["type"] for event, data in pushed if event == "event"] == ["run_start", "assistant_message"]
    assert (result["text"], result["worker"], result["level"]) == ("hi", "w1", "exact")


async def test_status_is_one_document_with_the_supervisors_facts(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        await call(gateway, "prompt", '{"session":"alice","text":"hi"}')
        status, _ = await call(gateway, "status")
        workers, _ = await call(gateway, "workers.list")
    assert status["supervisor"] == {"pid": 1}
    assert [worker["session"] for worker in status["workers"]] == ["alice"]
    assert [worker["id"] for worker in workers] == ["w1"]


async def test_explain_names_the_first_difference(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        await call(gateway, "prompt", '{"session":"alice","text":"hi"}')
        own, _ = await call(gateway, "explain", '{"session":"alice"}')
        other, _ = await call(gateway, "explain", '{"role":"writer"}')
    assert [worker["level"] for worker in own["workers"]] == ["bound"]
    assert other["workers"][0]["level"] == "none"
    assert other["workers"][0]["difference"]


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("prmpt", "{}", "unknown method 'prmpt'"),
        ("prompt", "{}", "bad parameters for prompt"),
        ("prompt", "[]", "bad parameters for prompt"),
        ("prompt", '{"session":"a","text":"b","nonsense":1}', "nonsense"),
        ("prompt", '{"session":"a","text":"b","priority":1' + "0" * 400 + "}", "priority"),
        ("prompt", '{"session":"a","text":"b","timeout":-1}', "timeout"),
        ("prompt", '{"session":"a","text":' + "[" * 100_000 + "]" * 100_000 + "}", "bad parameters for prompt"),
        ("workers.stop", '{"worker":"w99"}', "w99"),
        ("workers.recycle", '{"worker":"w99"}', "w99"),
    ],
)
async def test_bad_requests_are_refused_in_words(tmp_path: Path, method: str, params: str, words: str) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        with pytest.raises(UsageError, match=words):
            await call(gateway, method, params)


async def test_pause_resume_drain_and_shutdown_do_what_they_say(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        await call(gateway, "pause")
        paused = gateway.start_run("alice", "hello", timeout=5)
        await finish(paused)
        with pytest.raises(AcquireTimeout):
            paused.outcome()
        await call(gateway, "resume")
        await call(gateway, "prompt", '{"session":"alice","text":"hi"}')
        drained, _ = await call(gateway, "drain", '{"timeout":10}')
        assert drained == {"drained": True}
        with pytest.raises(PoolClosed):
            await call(gateway, "prompt", '{"session":"alice","text":"hi"}')
        await call(gateway, "shutdown")
        assert gateway.shutdown_requested.is_set()


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_prompt_is_refused(tmp_path: Path, text: str) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        with pytest.raises(UsageError, match="empty"):
            gateway.start_run("alice", text)


async def test_runs_behind_another_of_their_session_are_shown_as_waiting(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with gateway_over_memory(tmp_path) as gateway:
        runs = [gateway.start_run("alice", text) for text in ("hang", "two", "three")]
        await trio.testing.wait_all_tasks_blocked()
        sessions, _ = await call(gateway, "sessions.list")
        status, _ = await call(gateway, "status")
        assert [(session["key"], session["waiting"]) for session in sessions] == [("alice", 2)]
        assert status["sessions"] == sessions
        assert await gateway.abort("alice")
        for run in runs:
            await finish(run)
