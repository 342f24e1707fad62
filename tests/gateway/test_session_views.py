"""What a session's view says: what it is doing, on which worker, what it waits for, what it asks a person."""

from pathlib import Path

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateway.world import open_world, telegram


async def test_a_session_shows_what_it_is_doing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.begin("hang", source=telegram(), run="k1")
        await world.begin("say later", "agent:main:main", run="k2", queue="followup")
        busy = await world.call("sessions.get", session="agent:main:main")
        assert {name: busy[name] for name in ("state", "worker", "turn", "waiting", "last_run", "channel")} == {
            "state": "WORKING",
            "worker": "w1",
            "turn": "t1",
            "waiting": 1,
            "last_run": "k2",
            "channel": "telegram",
        }
        world.launcher.running("hang").finish()
        await world.run("k2").wait()
        free = await world.call("sessions.get", session="agent:main:main")
        assert {name: free[name] for name in ("state", "worker", "turn", "waiting", "transcript")} == {
            "state": "READY",
            "worker": "w1",
            "turn": None,
            "waiting": 0,
            "transcript": "/t/0",
        }


async def test_a_session_says_what_it_waits_for_until_its_turn_has_a_worker(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1, queue={"lanes": {"one": 1}}) as world:
        await world.begin("hang", "busy", lane="one")
        await world.begin("hello", "queued", lane="one")
        await world.begin("hello", "pooled")
        await wait_all_tasks_blocked()
        views = {view["key"]: view for view in await world.call("sessions.list")}
        assert (views["busy"]["worker"], views["busy"]["waits_for"]) == ("w1", None)
        assert views["queued"]["waits_for"] == "its lane has as many turns as it may"
        assert views["pooled"]["waits_for"]
        world.launcher.running("hang").finish()
        await trio.sleep(1)
        assert {view["waits_for"] for view in await world.call("sessions.list")} == {None}


async def test_a_session_shows_the_calls_that_await_approval(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        await world.begin("ask")
        view = await world.call("sessions.get", session="alice")
        assert view["state"] == "PAUSED"
        [call] = view["pending_permissions"]
        assert (call["id"], call["name"], call["input_preview"]) == ("c1", "bash", "rm -rf")
        assert call["reason"] == "every call needs approval"
        [listed] = await world.call("approvals.list")
        assert listed == {"session": "alice", "call": call}
        await world.call("decide", call_id="c1", decision="deny")
        await wait_all_tasks_blocked()
        assert (await world.call("sessions.get", session="alice"))["pending_permissions"] == []
