"""Ends of background commands on their way from a worker to whoever listens to the pool: whose they were."""

from typing import Any

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pool import stimuli
from pool.background_events import BackgroundEvent, BackgroundExited, BackgroundLost, BackgroundRunning
from pool.shell import Pool
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, say
from wire.messages import BackgroundProcesses


def listen(pool: Pool) -> list[BackgroundEvent]:
    """What is told of ends from now on."""
    news: list[BackgroundEvent] = []
    pool.on_background(lambda told: None if isinstance(told, BackgroundRunning) else news.append(told))
    return news


def exit_of(worker: MemoryWorker, **changes: Any) -> dict[str, Any]:
    data = {"session_id": "calm-fox", "summary": "Exec completed", "session_key": worker.file, "exit_code": 0}
    return {"event": "exec_exit", "data": {**data, **changes}}


def running(count: int) -> dict[str, Any]:
    return {"event": "background", "data": {"running": count}}


async def test_an_end_between_two_turns_is_told_with_its_session(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "background")
        worker = launcher.live["w1"]
        worker.transport.say(exit_of(worker), running(0))
        await wait_all_tasks_blocked()
        (told,) = news
        assert isinstance(told, BackgroundExited)
        assert (told.worker, told.session, told.exit.session_id, told.exit.exit_code) == ("w1", "alice", "calm-fox", 0)


async def test_an_end_within_a_turn_is_told_once(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        async with pool.lease("alice", DEFAULT) as lease:
            turn = lease.prompt("hang")
            await turn.next_batch()
            launcher.live["w1"].transport.say(exit_of(launcher.live["w1"]))
            await turn.next_batch()
        assert [told.session for told in news] == ["alice"]


async def test_an_end_that_comes_when_its_worker_goes_to_another_session_stays_with_its_own(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher, max=2) as pool, pool.lease("in use", DEFAULT):
        news = listen(pool)
        await say(pool, "alice", "background")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(say, pool, "bob", "hello")
            await wait_all_tasks_blocked()
            worker = launcher.live["w2"]
            worker.transport.say(running(0), exit_of(worker))
            await wait_all_tasks_blocked()
        assert pool.session_of("w2") == "bob"
        assert [told.session for told in news] == ["alice"]
        worker.transport.say(exit_of(worker, session_key="/t/1"))  # of alice's conversation, which is elsewhere now
        worker.transport.say(exit_of(worker, session_key=None))
        await wait_all_tasks_blocked()
        assert [told.session for told in news] == ["alice", None, "bob"]


async def test_an_end_after_its_session_began_anew_is_nobodys(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "hello")
        worker = launcher.live["w1"]
        pool.submit(stimuli.ForgetSession("alice"))
        worker.transport.say(exit_of(worker))
        await wait_all_tasks_blocked()
        await say(pool, "alice", "hello again")
        worker.transport.say(exit_of(worker, session_key="/t/0"))
        await wait_all_tasks_blocked()
        assert [told.session for told in news] == [None, None]


async def test_a_worker_that_keeps_no_transcript_tells_its_bound_session(autojump_clock: MockClock) -> None:
    class Forgetful(MemoryWorker):
        def state(self) -> dict[str, Any]:
            return {**super().state(), "session_file": None}

    launcher = MemoryLauncher()
    launcher.kind = Forgetful
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "hello")
        worker = launcher.live["w1"]
        worker.transport.say(exit_of(worker))
        await wait_all_tasks_blocked()
        pool.submit(stimuli.ForgetSession("alice"))
        worker.transport.say(exit_of(worker))
        await wait_all_tasks_blocked()
        assert [told.session for told in news] == ["alice", None]


async def test_commands_that_end_with_their_worker_are_told_as_lost(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "background")
        await say(pool, "alice", "background")
        launcher.live["w1"].transport.exit(signal=9)
        await wait_all_tasks_blocked()
        (lost,) = news
        assert isinstance(lost, BackgroundLost)
        assert (lost.worker, lost.session, lost.commands.running) == ("w1", "alice", 2)
        assert lost.reason == "worker w1 killed by signal 9"


async def test_commands_that_are_stopped_with_their_worker_are_lost_though_it_counts_them_down(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "background")
        worker = launcher.live["w1"]
        pool.submit(stimuli.StopWorker("w1"))
        worker.transport.say(running(0))
        await wait_all_tasks_blocked()
        (lost,) = news
        assert isinstance(lost, BackgroundLost)
        assert (lost.commands.running, lost.reason) == (1, "worker w1 was stopped (operator)")


async def test_which_commands_run_is_told_with_their_session_until_their_worker_is_gone(
    autojump_clock: MockClock,
) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        told: list[BackgroundEvent] = []
        pool.on_background(told.append)
        await say(pool, "alice", "hello")
        worker = launcher.live["w1"].transport
        worker.say({"event": "background", "data": {"running": 1, "names": ["calm-fox"]}})
        await wait_all_tasks_blocked()
        pool.submit(stimuli.ForgetSession("alice"))
        worker.say(running(2))
        await wait_all_tasks_blocked()
        assert told == [
            BackgroundRunning(worker="w1", session="alice", commands=BackgroundProcesses(1, ["calm-fox"])),
            BackgroundRunning(worker="w1", session=None, commands=BackgroundProcesses(2)),
            BackgroundRunning(worker="w1", session=None, commands=BackgroundProcesses()),
        ]


async def test_nobody_is_told_of_commands_lost_with_a_conversation_that_is_over(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    async with make_pool(launcher) as pool:
        news = listen(pool)
        await say(pool, "alice", "background")
        pool.submit(stimuli.ForgetSession("alice"))
        await wait_all_tasks_blocked()
        assert launcher.stops == ["w1"]
        assert news == []


async def test_no_worker_tells_more_ends_than_anybody_can_run(autojump_clock: MockClock) -> None:
    launcher = MemoryLauncher()
    told: list[tuple[str, dict[str, Any]]] = []
    async with make_pool(launcher) as pool:
        pool._on_event = lambda event, data: told.append((event, data))
        news = listen(pool)
        await say(pool, "alice", "hello")
        worker = launcher.live["w1"]
        worker.transport.say(*(exit_of(worker) for _ in range(1000)))
        await wait_all_tasks_blocked()
        assert 255 <= len(news) <= 256  # the bucket reckons in times that are no round numbers
        await trio.sleep(1)
        worker.transport.say(*(exit_of(worker) for _ in range(1000)))
        await wait_all_tasks_blocked()
        assert 256 < len(news) <= 277
    dropped = msgspec.to_builtins([data for event, data in told if event == "exec_exits_dropped"])
    assert dropped == [{"worker": "w1", "dropped": 2000 - len(news)}]
