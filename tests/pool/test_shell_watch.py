"""What the shell watches over while workers live: new limits reach them, and what they print is told."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from errors import UsageError
from pool import stimuli, worker_interface
from pool.settings import PoolSettings
from tests.pool.memory_workers import DEFAULT, MemoryLauncher, MemoryWorker, make_pool, say
from wire.units import Seconds


async def test_new_times_reach_workers_that_live_already(autojump_clock: MockClock) -> None:
    settings = PoolSettings(min=0, max=2)
    async with make_pool(MemoryLauncher()) as pool:
        async with pool.lease("s", DEFAULT) as lease:
            turn = lease.prompt("hang")
            await turn.next_batch()
            pool.submit(stimuli.SettingsChanged(PoolSettings(min=0, max=2, turn_stall=Seconds(40))))
            result = await turn.wait()
        assert result.stop_reason == "aborted"
        assert trio.current_time() < settings.turn_stall


async def test_lines_that_were_no_messages_are_counted_as_they_come_and_told_when_their_worker_ends(
    autojump_clock: MockClock,
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    async with make_pool(MemoryLauncher(), on_event=lambda event, data: told.append((event, data))) as pool:
        assert await say(pool, "s", "garbage") == "garbage"
        assert [worker.stray_lines for worker in pool.statistics().workers] == [1]
    (contaminated,) = [data for event, data in told if event == "worker_contaminated"]
    assert contaminated == {"worker": "w1", "lines": 1, "last": "this is no message"}


async def test_a_drained_pool_takes_work_again_when_it_is_resumed(autojump_clock: MockClock) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        await say(pool, "s", "before")
        assert await pool.drain(timeout=60)
        pool.submit(stimuli.Resume())
        assert await say(pool, "s", "after") == "before|after"


@pytest.mark.parametrize("priority", [1001, -1001, 10**400])
async def test_a_priority_beyond_reason_is_refused_and_leaves_nothing(autojump_clock: MockClock, priority: int) -> None:
    async with make_pool(MemoryLauncher()) as pool:
        with pytest.raises(UsageError, match="priority"):
            await pool.acquire("s", DEFAULT, priority=priority)
        pool._machine.validate()
        assert pool.statistics().sessions == ()


class SealingWorker(MemoryWorker):
    """Seals two calls in the conversation ``/t/0`` whenever it is resumed."""

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        sealed = {"sealed": ["c1", "c" * 1000]} if request["params"]["session_file"] == "/t/0" else {}
        return {**super().switch_session(request), **sealed}


@pytest.mark.parametrize(("most", "told"), [(1000, ["c1", "c" * 256]), (1, ["c1"])])
async def test_calls_that_were_sealed_are_told_of_their_session_and_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, most: int, told: list[str]
) -> None:
    monkeypatch.setattr(worker_interface, "_MAX_SEALED", most)
    launcher = MemoryLauncher()
    launcher.kind = SealingWorker
    events: list[tuple[str, dict[str, Any]]] = []
    async with make_pool(launcher, max=1, on_event=lambda event, data: events.append((event, data))) as pool:
        for session in ("alice", "bob", "alice", "bob"):
            await say(pool, session, "hello")
    facts = {"session": "alice", "worker": "w1", "strategy": "seal", "sealed": told}
    assert [data for event, data in events if event == "agent_resumed"] == [facts]
