"""When sessions of one request are forgotten: in time, not before, and not without bound."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from doors.openai import cleanup
from doors.openai.cleanup import EphemeralSessions
from errors import PoolClosed, UsageError

OURS = "openai:" + "a" * 32
STORED = "openai:r" + "a" * 32
DAY = 86400.0


class Sessions:
    """Stands for the services: knows sessions, and deletes them."""

    def __init__(self, *keys: str, unused_for: float = 0.0) -> None:
        self.left = list(keys)
        self.updated_at = time.time() - unused_for
        self.error: Exception | None = None

    async def call(self, method: str, params: Any, _caller: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if method == "sessions.list":
            return [SimpleNamespace(key=key, updated_at=self.updated_at) for key in self.left]
        assert method == "sessions.delete"
        if params["session"] not in self.left:
            raise UsageError("there is no session")
        self.left.remove(params["session"])
        return {}


async def begin(sessions: Any, nursery: trio.Nursery) -> EphemeralSessions:
    begun = EphemeralSessions(sessions)
    await nursery.start(begun.run)
    await wait_all_tasks_blocked()
    return begun


async def test_one_that_was_answered_goes_at_once(nursery: trio.Nursery) -> None:
    sessions = Sessions("s", "t")
    begun = await begin(sessions, nursery)
    begun.delete_soon("s")
    begun.delete_soon("unknown")
    await wait_all_tasks_blocked()
    assert sessions.left == ["t"]


async def test_one_that_waits_for_results_stays_for_ten_minutes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    sessions = Sessions("s")
    (await begin(sessions, nursery)).delete_later("s")
    await trio.sleep(599)
    assert sessions.left == ["s"]
    await trio.sleep(2)
    assert sessions.left == []


async def test_one_that_may_be_continued_stays_for_thirty_days_after_its_last_use(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    sessions = Sessions(STORED)
    (await begin(sessions, nursery)).delete_later(STORED)
    await trio.sleep(30 * DAY - 10)
    assert sessions.left == [STORED]
    await trio.sleep(20)
    assert sessions.left == []


async def test_what_an_earlier_life_has_stored_stays_for_what_is_left_of_its_time(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    sessions = Sessions(STORED, unused_for=29 * DAY)
    await begin(sessions, nursery)
    await trio.sleep(DAY - 60)
    assert sessions.left == [STORED]
    await trio.sleep(120)
    assert sessions.left == []


async def test_one_whose_client_has_come_back_stays(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    sessions = Sessions("s")
    begun = await begin(sessions, nursery)
    begun.delete_later("s")
    begun.cancel_deletion("s")
    await trio.sleep(1000)
    assert sessions.left == ["s"]
    begun.delete_later("s")
    await trio.sleep(300)
    begun.delete_later("s")
    await trio.sleep(500)
    assert sessions.left == ["s"], "its time begins anew"
    await trio.sleep(200)
    assert sessions.left == []


async def test_of_too_many_that_wait_the_one_that_waits_longest_goes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_MOST_CALLING", 2)
    sessions = Sessions("r", "s", "t")
    begun = await begin(sessions, nursery)
    for key in ("r", "s", "t"):
        begun.delete_later(key)
    await wait_all_tasks_blocked()
    assert sessions.left == ["s", "t"]


async def test_what_an_earlier_life_has_left_goes_and_nothing_else(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    sessions = Sessions("alice", OURS, "openai:mine", "x" + OURS)
    await begin(sessions, nursery)
    await trio.sleep(700)
    assert sessions.left == ["alice", "openai:mine", "x" + OURS]


@pytest.mark.parametrize("fails", [False, True])
async def test_one_whose_run_nobody_hears_of_goes_after_it(nursery: trio.Nursery, *, fails: bool) -> None:
    sessions, ended = Sessions("s"), trio.Event()
    begun = await begin(sessions, nursery)

    async def end() -> None:
        await ended.wait()
        if fails:
            raise UsageError("there never was such a run")

    begun.delete_after(end, "s")
    await wait_all_tasks_blocked()
    assert sessions.left == ["s"]
    ended.set()
    await wait_all_tasks_blocked()
    assert sessions.left == []


async def test_a_pool_that_refuses_ends_nothing(nursery: trio.Nursery) -> None:
    sessions = Sessions("s", OURS)
    sessions.error = PoolClosed("closing")
    begun = await begin(sessions, nursery)
    begun.delete_soon("s")
    await wait_all_tasks_blocked()
    sessions.error = None
    begun.delete_soon("s")
    await wait_all_tasks_blocked()
    assert sessions.left == [OURS]


async def test_after_the_servers_end_nothing_is_begun() -> None:
    sessions = Sessions("s")
    async with trio.open_nursery() as nursery:
        begun = await begin(sessions, nursery)
        nursery.cancel_scope.cancel()
    begun.delete_soon("s")
    begun.delete_later("s")
    assert sessions.left == ["s"]
