"""What a worker closes when it takes a conversation up is told of that session: no turn runs that would hear of it."""

from typing import Any

import pytest
from trio.testing import MockClock

from pool import worker_interface as module
from pool.settings import PoolSettings
from pool.shell import Pool
from tests.pool.memory_workers import MemoryLauncher, MemoryWorker, say


class SealingWorker(MemoryWorker):
    """Seals two calls in the conversation ``/t/0`` whenever it is resumed."""

    def switch_session(self, request: dict[str, Any]) -> dict[str, Any]:
        sealed = {"sealed": ["c1", "c" * 1000]} if request["params"]["session_file"] == "/t/0" else {}
        return {**super().switch_session(request), **sealed}


@pytest.mark.parametrize(("most", "told"), [(1000, ["c1", "c" * 256]), (1, ["c1"])])
async def test_calls_that_were_sealed_are_told_of_their_session_and_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, most: int, told: list[str]
) -> None:
    monkeypatch.setattr(module, "_MAX_SEALED", most)
    launcher = MemoryLauncher()
    launcher.kind = SealingWorker
    events: list[tuple[str, dict[str, Any]]] = []
    async with Pool(
        PoolSettings(min=0, max=1),
        launcher=launcher,
        on_event=lambda event, data: events.append((event, data)),
        memory_bytes=1 << 40,
    ) as pool:
        for session in ("alice", "bob", "alice", "bob"):
            await say(pool, session, "hello")
    facts = {"session": "alice", "worker": "w1", "strategy": "seal", "sealed": told}
    assert [data for event, data in events if event == "agent_resumed"] == [facts]
