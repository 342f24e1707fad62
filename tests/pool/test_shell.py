"""The shell on a virtual clock, over workers made of memory."""

import os
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from errors import (
    AcquireTimeout,
    ProfileBroken,
    ProtocolViolation,
    ResumeFailed,
    UsageError,
    WorkerExited,
    WorkerStalled,
)
from pool import stimuli
from pool.settings import PoolSettings
from pool.shell import Pool
from profiles import CapabilityProfile, SoftArgs
from rpc.settings import RpcSettings
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, plain_profile, say
from wire.messages import SessionResult
from wire.units import Seconds


async def test_a_session_gets_a_worker_and_its_answer(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        assert await say(pool, "alice", "hello") == "hello"
        assert await say(pool, "alice", "again") == "hello|again"
    assert launcher.starts == launcher.stops == ["w1"]


async def test_conversations_on_one_worker_do_not_mix_and_are_resumed(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=1) as pool:
        assert await say(pool, "alice", "a1") == "a1"
        assert await say(pool, "bob", "b1") == "b1"
        assert await say(pool, "alice", "a2") == "a1|a2"
        figures = pool.statistics()
    assert launcher.starts == ["w1"]
    assert (figures.counters.parked, figures.counters.resumed) == (2, 1)


async def test_a_conversation_that_a_worker_has_begun_is_kept_before_its_first_prompt(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    launcher = MemoryLauncher()
    launcher.keeping = trio.Event()
    async with make_pool(launcher, max=1) as pool:
        nursery.start_soon(say, pool, "alice", "hello")
        await trio.testing.wait_all_tasks_blocked()
        assert (launcher.live["w1"].methods, launcher.prompts) == (["get_state", "new_session", "get_state"], [])
        launcher.keeping.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (launcher.live["w1"].kept, launcher.prompts) == (["/t/0"], ["hello"])
        await say(pool, "bob", "hi")
        await say(pool, "alice", "again")
        assert launcher.live["w1"].kept == ["/t/0", "/t/1"], "what is resumed has a name already"


@pytest.mark.parametrize(
    ("file", "texts", "taken", "is_kept"),
    [
        ("/own", [], [], True),
        ("/own", ["said before"], [], False),
        ("/own", [], ["/own"], False),
        (None, [], [], False),
    ],
)
async def test_a_worker_that_has_just_started_keeps_the_conversation_that_it_has_begun(
    autojump_clock: MockClock,
    file: str | None,
    texts: list[str],
    taken: list[str],
    is_kept: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Where that is empty, will be kept, and is no other session's."""

    class SelfStarted(MemoryWorker):
        def __init__(self, name: str, launcher: MemoryLauncher, profile: CapabilityProfile) -> None:
            super().__init__(name, launcher, profile)
            self.file = "own"
            launcher.transcripts[self.file] = texts

        def state(self) -> dict[str, Any]:
            return {**super().state(), "session_file": file if self.file == "own" else self.file}

    launcher = MemoryLauncher()
    launcher.kind = SelfStarted
    async with make_pool(launcher) as pool:
        for other in taken:
            pool.submit(stimuli.SessionKnown("bob", other))
        assert await say(pool, "alice", "hello") == "hello"
        assert launcher.live["w1"].methods == [
            "get_state",
            *([] if is_kept else ["new_session", "get_state"]),
            "prompt",
        ]


async def test_events_can_be_read_one_by_one_before_the_result(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool, pool.lease("s", DEFAULT) as lease:
        stream = lease.prompt("hello")
        names = [event.event async for event in stream]
    assert names == ["run_start", "assistant_message"]
    assert stream.result is not None
    assert stream.result.text == "hello"


async def test_a_turn_that_is_left_early_is_aborted_and_its_worker_goes_on(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            async for _ in lease.prompt("hang"):
                break
        assert await say(pool, "s", "next") == "next"
    assert launcher.starts == ["w1"]


async def test_a_full_pool_makes_the_next_one_wait_and_serves_it_when_a_worker_is_free(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=1) as pool:
        async with pool.lease("a", DEFAULT):
            waiting = trio.Event()

            async def second() -> None:
                async with pool.lease("b", DEFAULT) as lease:
                    assert lease.waited > 0
                    waiting.set()

            nursery.start_soon(second)
            await trio.testing.wait_all_tasks_blocked()
            assert pool.statistics().pool.waiting == 1
            await trio.sleep(3)
        await waiting.wait()
    assert launcher.most == 1


async def test_a_waiter_ends_at_its_deadline_with_the_figures(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher(), max=1) as pool, pool.lease("a", DEFAULT):
        started = trio.current_time()
        with pytest.raises(AcquireTimeout, match="max=1"):
            await pool.acquire("b", DEFAULT, timeout=7)
        assert trio.current_time() - started == pytest.approx(7, abs=0.05)


async def test_a_cancelled_waiter_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher(), max=1) as pool:
        async with pool.lease("a", DEFAULT):
            with trio.move_on_after(1):
                await pool.acquire("b", DEFAULT)
            assert pool.statistics().pool.waiting == 0
        assert await say(pool, "c", "hello") == "hello"


async def test_a_caller_cancelled_in_the_moment_of_its_grant_gives_the_worker_back(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher(), max=1) as pool:
        await say(pool, "a", "warm")
        with trio.CancelScope() as scope:
            scope.cancel()
            await pool.acquire("a", DEFAULT)
        assert scope.cancelled_caught
        assert pool.statistics().counters.active == 0
        assert await say(pool, "b", "hello", timeout=1) == "hello"


async def test_the_warm_path_takes_a_bound_worker_without_waiting_and_nothing_else(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        with pytest.raises(trio.WouldBlock):
            pool.acquire_nowait("s", DEFAULT)
        await say(pool, "s", "warm up")
        lease = pool.acquire_nowait("s", DEFAULT)
        assert (await lease.prompt("now").wait()).text == "warm up|now"
        await pool.release(lease)
        with pytest.raises(trio.WouldBlock):
            pool.acquire_nowait("other", DEFAULT)


async def test_a_profile_that_cannot_start_is_broken_and_others_are_unharmed(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    launcher.broken.add("bad")
    async with make_pool(launcher, breaker_failures=3) as pool:
        with pytest.raises(ProfileBroken) as broken:
            await pool.acquire("s", plain_profile("bad"), timeout=300)
        assert broken.value.stderr_tail == "boom"
        assert await say(pool, "s", "hello") == "hello"


async def test_a_session_whose_transcript_cannot_be_resumed_fails_alone(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=1) as pool:
        await say(pool, "a", "a1")
        launcher.damaged.update(launcher.transcripts)
        await say(pool, "b", "b1")
        with pytest.raises(ResumeFailed):
            await say(pool, "a", "a2", timeout=60)
        pool.submit(stimuli.ForgetSession("a"))
        assert await say(pool, "a", "fresh", timeout=60) == "fresh"


async def test_a_worker_that_answers_no_ping_is_replaced(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, min=1) as pool:
        await say(pool, "s", "before")
        launcher.live["w1"].deaf = True
        await trio.sleep(120)
        assert "w1" in launcher.stops
        assert await say(pool, "s", "after") == "before|after"
        assert pool.statistics().counters.exits.get("unresponsive") == 1


async def test_a_ping_is_not_held_against_a_worker_whose_output_was_not_read_meanwhile(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    launcher.settings = RpcSettings(subscriber_events=1)
    async with make_pool(launcher, ping_failures=1, ping_timeout=Seconds(10)) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            stream = lease.prompt("hang")
            await stream.next_batch()
            worker = launcher.live["w1"]
            worker.deaf = True
            await trio.sleep(20)  # the ping is on its way by now
            worker.transport.say({"event": "thinking", "data": {}})
            await trio.sleep(20)  # nobody reads that event, so no answer would be read either
            worker.deaf = False
            await stream.next_batch()
            await trio.sleep(100)
        assert launcher.stops == []


async def test_a_turn_that_is_silent_for_too_long_is_aborted_and_goes_on_if_that_helps(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, turn_stall=Seconds(60)) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            result = await lease.prompt("hang").wait()
        assert result.stop_reason == "aborted"
        assert lease.stalled_for == 60
        assert trio.current_time() >= 60
        assert pool.statistics().counters.stalled == 1
    assert launcher.starts == ["w1"]


@pytest.mark.parametrize(("node", "where"), [("", "pid None"), ("gpu-2", "pid None on gpu-2")])
async def test_a_turn_of_a_deaf_worker_ends_with_the_reason_and_says_where_it_ran(
    autojump_clock: MockClock, node: str, where: str
) -> None:
    launcher = MemoryLauncher()
    launcher.node = node
    async with make_pool(launcher, turn_stall=Seconds(60)) as pool:
        with pytest.raises((WorkerStalled, WorkerExited), match=rf"worker w1 \({where}\) "):
            await say(pool, "s", "deaf")


async def test_a_worker_is_started_near_the_node_that_its_session_was_on(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    launcher.node = "gpu-2"
    async with make_pool(launcher) as pool:
        await say(pool, "s", "one")
        pool.submit(stimuli.StopWorker("w1"))
        await say(pool, "s", "two")
    assert launcher.near == ["", "gpu-2"]


async def test_a_session_with_a_background_process_keeps_its_worker(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=2) as pool, pool.lease("in use", DEFAULT):
        await say(pool, "a", "background")
        with pytest.raises(AcquireTimeout, match=r"background commands keep workers for a$"):
            await pool.acquire("b", DEFAULT, timeout=5)
        launcher.live["w2"].transport.say({"event": "background", "data": {"running": 0}})
        assert await say(pool, "b", "now") == "now"


async def test_a_worker_above_max_rss_is_retired_at_a_turn_boundary(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max_rss=1000) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            launcher.rss["w1"] = 2000
            await trio.sleep(40)
            assert (await lease.prompt("still here").wait()).text == "still here"
        await trio.sleep(1)
        assert "w1" in launcher.stops


async def test_one_error_for_many_callers_reaches_each_as_its_own(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    raised: list[ResumeFailed] = []
    async with make_pool(launcher, max=1) as pool:
        await say(pool, "alice", "a1")
        await say(pool, "bob", "b1")
        launcher.damaged.update(launcher.transcripts)
        for _ in range(3):
            with pytest.raises(ResumeFailed) as caught:
                await pool.acquire("alice", DEFAULT)
            raised.append(caught.value)
    assert len({id(error) for error in raised}) == 3
    assert len({str(error) for error in raised}) == 1


async def test_a_pool_that_is_larger_than_the_memory_is_refused(autojump_clock: MockClock) -> None:
    with pytest.raises(UsageError, match=r"pool\.max"):
        Pool(PoolSettings(max=1000), launcher=MemoryLauncher(), memory_bytes=1024**3)
    async with make_pool(MemoryLauncher()) as pool:
        with pytest.raises(UsageError, match=r"pool\.max"):
            pool.submit(stimuli.SettingsChanged(PoolSettings(max=1000)))


async def test_status_shows_the_running_turn(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool, pool.lease("s", DEFAULT) as lease:
        assert pool.statistics().workers[0].turn_age is None
        await lease.prompt("hang").next_batch()
        await trio.sleep(5)
        (worker,) = pool.statistics().workers
    assert worker.turn_age == pytest.approx(5, abs=0.1)
    assert worker.session == "s"


async def test_model_and_provider_are_brought_in_line_before_the_grant(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=1) as pool:
        await say(pool, "s", "one")
        for soft, provider in ((SoftArgs(model="large"), "fake"), (SoftArgs("p", "big", None), "p")):
            async with pool.lease("s", plain_profile(soft=soft)):
                (worker,) = launcher.live.values()
                assert (worker.provider, worker.model) == (provider, soft.model)


async def test_a_worker_that_goes_on_to_the_conversation_of_another_session_keeps_nothing_of_it(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        async with pool.lease("alice", DEFAULT) as lease:
            await lease.prompt("hello").wait()
        async with pool.lease("bob", DEFAULT) as lease:
            await lease.prompt("hi").wait()
            kept = {name: list(worker.kept) for name, worker in launcher.live.items()}
            with pytest.raises(ProtocolViolation, match="another session"):
                await pool.conversation_changed(lease, SessionResult("x", "/t/0"))
            assert {name: worker.kept for name, worker in launcher.live.items()} == kept


async def test_a_long_transcript_has_its_time_to_come_to_a_node(autojump_clock: MockClock, tmp_path: Path) -> None:
    class Far(MemoryWorker):
        async def prepare_resume(self, transcript: str) -> bool:
            await trio.sleep(20)
            return await super().prepare_resume(transcript)

        def new_session(self, _: dict[str, Any]) -> dict[str, Any]:
            self.file = str(tmp_path / str(len(self.launcher.transcripts)))
            Path(self.file).touch()
            os.truncate(self.file, 100 * 1024 * 1024)
            self.launcher.transcripts[self.file] = []
            return self.state()

    launcher = MemoryLauncher()
    launcher.kind = Far
    launcher.node = "n"
    async with make_pool(launcher, max=1, reset_timeout=10) as pool:
        assert await say(pool, "alice", "a1") == "a1"
        assert await say(pool, "bob", "b1") == "b1"
        assert await say(pool, "alice", "a2") == "a1|a2"
    assert launcher.starts == ["w1"]
