"""When sessions of one request are deleted: in time, not before, and not without bound."""

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


@pytest.mark.parametrize(
    ("session", "seconds"), [("s", 600), (STORED, 30 * DAY)], ids=["owed tool results", "may be continued"]
)
async def test_one_whose_client_may_come_back_stays_for_some_time_after_its_last_use(
    nursery: trio.Nursery, autojump_clock: MockClock, session: str, seconds: float
) -> None:
    sessions = Sessions(session)
    begun = await begin(sessions, nursery)
    begun.delete_later(session)
    begun.cancel_deletion(session)
    await trio.sleep(2 * seconds)
    begun.delete_later(session)
    await trio.sleep(seconds / 2)
    begun.delete_later(session)
    await trio.sleep(seconds - 10)
    assert sessions.left == [session], "its time has begun once more"
    await trio.sleep(20)
    assert sessions.left == []


async def test_what_an_earlier_life_has_left_goes_after_what_is_left_of_its_time_and_nothing_else(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    others = ["alice", "openai:mine", "x" + OURS]
    sessions = Sessions(*others, OURS, STORED, unused_for=29 * DAY)
    await begin(sessions, nursery)
    await trio.sleep(700)
    assert sessions.left == [*others, STORED]
    await trio.sleep(DAY - 760)
    assert sessions.left == [*others, STORED]
    await trio.sleep(120)
    assert sessions.left == others


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


@pytest.mark.parametrize("fails", [False, True])
async def test_one_whose_client_has_left_goes_after_its_run(nursery: trio.Nursery, *, fails: bool) -> None:
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


async def test_a_pool_that_refuses_ends_nothing_and_after_the_servers_end_nothing_is_begun() -> None:
    sessions = Sessions("s", "t", OURS)
    sessions.error = PoolClosed("closing")
    async with trio.open_nursery() as nursery:
        begun = await begin(sessions, nursery)
        begun.delete_soon("s")
        await wait_all_tasks_blocked()
        sessions.error = None
        begun.delete_soon("s")
        await wait_all_tasks_blocked()
        assert sessions.left == ["t", OURS]
        nursery.cancel_scope.cancel()
    begun.delete_soon("t")
    begun.delete_later("t")
    assert sessions.left == ["t", OURS]
