"""Ends of background commands on their way from a worker to whoever listens to the pool: whose they were."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pool import stimuli
from pool.shell import Pool
from pool.worker_output import BackgroundEvent, BackgroundExited, BackgroundLost, BackgroundRunning
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, say
from wire.messages import BackgroundProcesses


class Listened:
    """A pool, its workers, and what it says of background commands."""

    def __init__(self, pool: Pool, launcher: MemoryLauncher) -> None:
        self.pool = pool
        self.launcher = launcher
        self.all: list[BackgroundEvent] = []
        pool.on_background(self.all.append)

    @property
    def ends(self) -> list[BackgroundEvent]:
        return [event for event in self.all if not isinstance(event, BackgroundRunning)]

    @property
    def sessions(self) -> list[str | None]:
        return [event.session for event in self.ends]

    async def print(self, *lines: dict[str, Any], worker: str = "w1") -> None:
        self.launcher.live[worker].transport.say(*lines)
        await wait_all_tasks_blocked()

    def exit(self, worker: str = "w1", **changes: Any) -> dict[str, Any]:
        file = self.launcher.live[worker].file
        data = {"session_id": "calm-fox", "summary": "Exec completed", "session_key": file, "exit_code": 0}
        return {"event": "exec_exit", "data": {**data, **changes}}


@asynccontextmanager
async def listened(text: str, kind: type[MemoryWorker] = MemoryWorker, **limits: Any) -> AsyncIterator[Listened]:
    """A pool to which the session alice has said this."""
    launcher = MemoryLauncher()
    launcher.kind = kind
    async with make_pool(launcher, **limits) as pool:
        found = Listened(pool, launcher)
        await say(pool, "alice", text)
        yield found


def running(count: int) -> dict[str, Any]:
    return {"event": "background", "data": {"running": count}}


async def test_an_end_between_two_turns_comes_with_its_session(autojump_clock: MockClock) -> None:
    async with listened("background") as found:
        await found.print(found.exit(), running(0))
        (event,) = found.ends
        assert isinstance(event, BackgroundExited)
        assert (event.worker, event.session, event.exit.session_id, event.exit.exit_code) == (
            "w1",
            "alice",
            "calm-fox",
            0,
        )


async def test_an_end_within_a_turn_comes_once(autojump_clock: MockClock) -> None:
    async with listened("hello") as found, found.pool.lease("alice", DEFAULT) as lease:
        turn = lease.prompt("hang")
        await turn.next_batch()
        await found.print(found.exit())
        await turn.next_batch()
        assert found.sessions == ["alice"]


async def test_an_end_that_comes_when_its_worker_goes_to_another_session_stays_with_its_own(
    autojump_clock: MockClock,
) -> None:
    async with listened("background") as found, found.pool.lease("in use", DEFAULT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(say, found.pool, "bob", "hello")
            await wait_all_tasks_blocked()
            await found.print(running(0), found.exit())
        assert found.pool.session_of("w1") == "bob"
        assert found.sessions == ["alice"]
        await found.print(found.exit(session_key="/t/0"))  # of alice's conversation, which is elsewhere now
        await found.print(found.exit(session_key=None))
        assert found.sessions == ["alice", None, "bob"]


async def test_an_end_after_its_session_began_anew_has_no_session(autojump_clock: MockClock) -> None:
    async with listened("hello") as found:
        found.pool.submit(stimuli.ForgetSession("alice"))
        await found.print(found.exit())
        await say(found.pool, "alice", "hello again")
        await found.print(found.exit(session_key="/t/0"))
        assert found.sessions == [None, None]


async def test_an_end_from_a_worker_that_keeps_no_transcript_is_of_its_bound_session(autojump_clock: MockClock) -> None:
    class Forgetful(MemoryWorker):
        def state(self) -> dict[str, Any]:
            return {**super().state(), "session_file": None}

    async with listened("hello", Forgetful) as found:
        await found.print(found.exit())
        found.pool.submit(stimuli.ForgetSession("alice"))
        await found.print(found.exit())
        assert found.sessions == ["alice", None]


async def test_commands_that_end_with_their_worker_are_lost(autojump_clock: MockClock) -> None:
    async with listened("background") as found:
        await say(found.pool, "alice", "background")
        found.launcher.live["w1"].transport.exit(signal=9)
        await wait_all_tasks_blocked()
        (lost,) = found.ends
        assert isinstance(lost, BackgroundLost)
        assert (lost.worker, lost.session, lost.commands.running) == ("w1", "alice", 2)
        assert lost.reason == "worker w1 killed by signal 9"


async def test_commands_that_are_stopped_with_their_worker_are_lost_though_it_counts_them_down(
    autojump_clock: MockClock,
) -> None:
    async with listened("background") as found:
        found.pool.submit(stimuli.StopWorker("w1"))
        await found.print(running(0))
        (lost,) = found.ends
        assert isinstance(lost, BackgroundLost)
        assert (lost.commands.running, lost.reason) == (1, "worker w1 was stopped (operator)")


async def test_which_commands_run_is_known_with_their_session_until_their_worker_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with listened("hello") as found:
        await found.print({"event": "background", "data": {"running": 1, "names": ["calm-fox"]}})
        found.pool.submit(stimuli.ForgetSession("alice"))
        await found.print(running(2))
        assert found.all == [
            BackgroundRunning(worker="w1", session="alice", commands=BackgroundProcesses(1, ["calm-fox"])),
            BackgroundRunning(worker="w1", session=None, commands=BackgroundProcesses(2)),
            BackgroundRunning(worker="w1", session=None, commands=BackgroundProcesses()),
        ]


async def test_commands_lost_with_a_conversation_that_is_over_are_not_reported(autojump_clock: MockClock) -> None:
    async with listened("background") as found:
        found.pool.submit(stimuli.ForgetSession("alice"))
        await wait_all_tasks_blocked()
        assert found.launcher.stops == ["w1"]
        assert found.ends == []


async def test_a_worker_that_reports_too_many_ends_is_cut_short(autojump_clock: MockClock) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    async with listened("hello") as found:
        found.pool._on_event = lambda event, data: events.append((event, data))
        await found.print(*(found.exit() for _ in range(1000)))
        assert 255 <= len(found.ends) <= 256  # the bucket reckons in times that are no round numbers
        await trio.sleep(1)
        await found.print(*(found.exit() for _ in range(1000)))
        assert 256 < len(found.ends) <= 277
    dropped = msgspec.to_builtins([data for event, data in events if event == "exec_exits_dropped"])
    assert dropped == [{"worker": "w1", "dropped": 2000 - len(found.ends)}]
