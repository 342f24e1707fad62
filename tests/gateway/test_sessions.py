"""Sessions as front ends see and change them: lists, states as events, new conversations, deletion, what was said."""

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import UsageError
from gateway.hook_types import SessionLifecycle
from tests.gateway.world import Heard, WholeStore, World, open_world, telegram

# --- looking ----------------------------------------------------------------------------------------------------------


async def test_the_list_has_every_session_the_one_used_last_first(world: World) -> None:
    for session in ("alice", "bob", "alice"):
        await world.ask("hello", session)
        await trio.sleep(1)
    views = await world.call("sessions.list")
    assert [(view["key"], view["created_at"], view["updated_at"]) for view in views] == [
        ("alice", 1_000_000, 1_000_002),
        ("bob", 1_000_001, 1_000_001),
    ]


@pytest.mark.parametrize("method", ["sessions.get", "sessions.reset", "sessions.delete", "sessions.history"])
async def test_an_unknown_session_is_an_error_and_is_not_made(world: World, method: str) -> None:
    with pytest.raises(UsageError, match="there is no session 'nobody'"):
        await world.call(method, session="nobody")
    with pytest.raises(UsageError, match="no session key"):
        await world.call(method, session="agent:")
    assert await world.call("sessions.list") == []


async def test_a_session_shows_what_it_is_doing(world: World) -> None:
    await world.begin("hang", source=telegram(), run="k1")
    await world.begin("say later", "agent:main:main", run="k2", queue="followup")
    await trio.sleep(7)
    busy = await world.call("sessions.get", session="agent:main:main")
    names = ("state", "worker", "turn", "turn_age", "waiting", "last_run", "channel")
    assert [busy[name] for name in names] == ["WORKING", "w1", "t1", 7, 1, "k2", "telegram"]
    world.launcher.running("hang").finish()
    await world.run("k2").wait()
    free = await world.call("sessions.get", session="agent:main:main")
    assert [free[name] for name in ("state", "worker", "turn", "waiting", "transcript")] == [
        "READY",
        "w1",
        None,
        0,
        "/t/0",
    ]


@pytest.mark.world(workers=1, queue={"lanes": {"one": 1}})
async def test_a_session_says_what_it_waits_for_until_its_turn_has_a_worker(world: World) -> None:
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


# --- settings of its own ----------------------------------------------------------------------------------------------


async def test_patched_settings_take_effect_and_null_removes_them(world: World) -> None:
    await world.ask("hello")
    view = await world.call("sessions.patch", session="alice", queue_mode="collect", reasoning=True)
    assert view["queue_mode"] == "collect"
    assert (await world.ask("think hard")).text == "Reasoning:\nhard\n\nthought"
    [patched] = await world.events("session_patched")
    assert patched["data"] == {"changed": ["queue_mode", "reasoning"]}
    view = await world.call("sessions.patch", session="alice", queue_mode=None, reasoning=None)
    assert view["queue_mode"] is None
    assert (await world.ask("think hard")).text == "thought"


# --- states -----------------------------------------------------------------------------------------------------------


async def _states(world: World) -> list[tuple[str, str, str]]:
    events = await world.events("state_changed")
    assert {event["channel"] for event in events} <= {"monitor"}
    return [(event["data"]["from"], event["data"]["to"], event["data"]["reason"]) for event in events]


async def test_every_change_of_state_is_told_once_with_its_reason(world: World) -> None:
    begins, asks = ("READY", "WORKING", "run started"), ("WORKING", "PAUSED", "awaiting a person's answer")
    await world.begin("ask")
    await world.call("decide", call_id="c1", decision="allow")
    assert await _states(world) == [
        *(begins, asks, ("PAUSED", "WORKING", "answered"), ("WORKING", "READY", "run completed")),
    ]
    await world.ask("die")
    await world.begin("ask")
    await world.call("abort", session="alice")
    assert await _states(world) == [
        *(begins, ("WORKING", "READY", "run ended: worker_exited"), begins, asks),
        *(("PAUSED", "WORKING", "the turn is over"), ("WORKING", "READY", "run ended: aborted")),
    ]


async def test_a_session_is_ready_again_before_its_last_run_is_told(world: World) -> None:
    run = await world.begin("hang")
    states: list[str] = []

    async def follow() -> None:
        await run.wait()
        states.append(world.state())

    world.nursery.start_soon(follow)
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert states == ["READY"]


# --- new conversations ------------------------------------------------------------------------------------------------


async def test_reset_begins_anew_and_keeps_the_session_as_it_is_set(world: World) -> None:
    await world.ask("/queue collect")
    await world.ask("one", agent="ops")
    assert await world.call("sessions.reset", session="alice") == {"session": "alice", "reset": True, "ended": []}
    view = await world.call("sessions.get", session="alice")
    assert [view[name] for name in ("transcript", "agent", "queue_mode")] == [None, "ops", "collect"]
    assert (await world.ask("two")).text == "two"
    assert world.launcher.transcripts["/t/0"] == ["one"]


async def test_commands_in_the_background_end_with_their_conversation_only_where_that_is_said(world: World) -> None:
    async def background(*names: str) -> None:
        world.launcher.workers[-1].tell("background", running=len(names) or 1, **({"names": names} if names else {}))
        await wait_all_tasks_blocked()

    await world.ask("one")
    await background("calm-fox", "brave-owl")
    with pytest.raises(UsageError, match="calm-fox, brave-owl of session 'alice' still runs") as caught:
        await world.call("sessions.reset", session="alice")
    assert caught.value.details["running"] == ["calm-fox", "brave-owl"]
    for command in ("/new", "/reset"):
        answer = await world.ask(command)
        assert answer.text.startswith("Nothing is changed: calm-fox, brave-owl still runs in the background")
        assert f"{command} force begins" in answer.text
    assert (await world.ask("two")).text == "one|two"
    done = await world.call("sessions.reset", session="alice", force=True)
    assert done["ended"] == ["calm-fox", "brave-owl"]
    assert (await world.ask("three")).text == "three"
    await background("calm-fox")
    assert (await world.ask("/NEW Force")).text.endswith("the earlier one is kept. Ended with it: calm-fox.")
    await world.ask("four")
    await background()
    assert (await world.call("sessions.delete", session="alice"))["ended"] == ["a background command"]


async def test_what_comes_while_a_reset_waits_for_the_turn_is_of_the_new_conversation(world: World) -> None:
    await world.ask("one")
    await world.begin("stubborn", timeout=30)
    world.nursery.start_soon(lambda: world.call("sessions.reset", session="alice"))
    await wait_all_tasks_blocked()
    urgent = await world.ask("two", priority=1000)
    assert urgent.text == "two"


async def test_reset_waits_for_whoever_holds_the_session(world: World) -> None:
    hold = await world.call("acquire", session="alice")
    done = trio.Event()

    async def reset() -> None:
        await world.call("sessions.reset", session="alice")
        done.set()

    world.nursery.start_soon(reset)
    await wait_all_tasks_blocked()
    assert not done.is_set()
    await world.call("release", hold=hold["hold"])
    await wait_all_tasks_blocked()
    assert done.is_set()


# --- their beginning --------------------------------------------------------------------------------------------------


async def test_hooks_hear_of_each_conversation_that_begins_and_of_none_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    heard = Heard()
    store = WholeStore()
    async with open_world(tmp_path, store=store, hooks={"session:start": (heard.listen,)}) as world:
        for text in ("one", "/new", "two"):
            await world.ask(text)
        await world.call("acquire", session="bob", agent="ops")
        await world.call("sessions.delete", session="alice")
        await world.ask("three")
        assert heard == [
            SessionLifecycle(session="alice", agent="main", role="default", reason="first message"),
            SessionLifecycle(session="alice", agent="main", role="default", reason="reset"),
            SessionLifecycle(session="bob", agent="ops", role="default", reason="held"),
            SessionLifecycle(session="alice", agent="main", role="default", reason="first message"),
        ]
        heard.clear()
        left = store.after_a_stop()
    async with open_world(tmp_path, store=left, hooks={"session:start": (heard.listen,)}) as world:
        await world.ask("four")
        assert heard == []


async def test_a_slow_hook_holds_no_new_session_up(world: World) -> None:
    world.hooks.replace({"session:start": (_sleep,)})
    assert (await world.ask("one")).text == "one"
    assert trio.current_time() < 5


async def _sleep(_life: SessionLifecycle) -> None:
    await trio.sleep_forever()


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_deleting_a_session_removes_its_transcript_and_ends_what_runs(world: World, tmp_path: Path) -> None:
    heard = Heard()
    world.hooks.replace({"session:end": (heard.listen,)})
    world.launcher.directory = tmp_path / "sessions"
    run = await world.begin("hang")
    waiting = await world.begin("say more", queue="followup")
    [file] = world.launcher.directory.iterdir()
    answer = await world.call("sessions.delete", session="alice")
    assert answer == {"session": "alice", "deleted": True, "removed": str(file), "ended": []}
    assert not file.exists()
    assert [(await one.wait()).reason for one in (run, waiting)] == ["interrupted"] * 2
    assert (await world.call("sessions.list"), world.store.sessions) == ([], {})
    assert [life.reason for life in heard] == ["deleted"]
    [deleted] = await world.events("session_deleted")
    assert deleted["data"] == {"transcript": str(file)}
    await world.ask("two")
    for left in world.launcher.directory.iterdir():
        left.unlink()
    assert (await world.call("sessions.delete", session="alice"))["removed"] is None, "its file was gone already"
    await world.ask("/status")
    assert (await world.call("sessions.delete", session="alice"))["removed"] is None, "it had none"


@pytest.mark.parametrize("place", ["elsewhere", "data", "data/sessions/../elsewhere", "data/sessions/link"])
async def test_a_transcript_that_lies_elsewhere_is_the_agents_own_affair_and_stays(tmp_path: Path, place: str) -> None:
    (tmp_path / "data" / "sessions").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "sessions" / "link").symlink_to(tmp_path / "elsewhere")
    async with open_world(tmp_path / "data") as world:
        world.launcher.directory = tmp_path / place
        await world.ask("one")
        assert (await world.call("sessions.delete", session="alice"))["removed"] is None
        assert (world.launcher.directory / "0.jsonl").exists()


async def test_a_message_that_comes_while_its_session_is_deleted_makes_it_anew(world: World) -> None:
    await world.ask("one")
    await world.begin("stubborn")
    world.nursery.start_soon(lambda: world.call("sessions.delete", session="alice"))
    await wait_all_tasks_blocked()
    outcome = await world.ask("two")
    assert outcome.text == "two"
    assert (await world.call("sessions.get", session="alice"))["transcript"] == "/t/1"
    world.assert_at_rest()


# --- what was said ----------------------------------------------------------------------------------------------------


async def test_the_history_is_the_latest_messages_oldest_first(world: World, tmp_path: Path) -> None:
    world.launcher.directory = tmp_path
    await world.ask("/status")
    assert (await world.call("sessions.history", session="alice"))["messages"] == []
    await world.ask("one")
    lines = [{"type": "message", "message": {"role": "user", "text": str(number)}} for number in range(5)]
    (tmp_path / "0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    history = await world.call("sessions.history", session="alice", limit=2)
    assert [message["text"] for message in history["messages"]] == ["3", "4"]
    assert len((await world.call("sessions.history", session="alice"))["messages"]) == 5


# --- over restarts ----------------------------------------------------------------------------------------------------


async def test_the_next_life_goes_on_with_the_conversations_and_resets_of_the_last_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("one")
        await world.ask("old", "bob")
        await world.ask("/new", "bob")
        launcher, left = world.launcher, store.after_a_crash()
    async with open_world(tmp_path, store=left, launcher=launcher) as world:
        assert world.gateway.pool.transcript_of("alice") == "/t/0"
        assert (await world.call("sessions.get", session="alice"))["transcript"] == "/t/0"
        assert (await world.ask("two")).text == "one|two"
        assert (await world.ask("new", "bob")).text == "new"


@pytest.mark.world(sessions=2)
async def test_sessions_beyond_the_limit_are_forgotten_in_the_store_too(world: World) -> None:
    store = world.store
    for session in ("alice", "bob", "carol"):
        await world.ask("hello", session)
    assert set(store.sessions) == {"bob", "carol"}


@pytest.mark.world(sessions=1)
async def test_a_message_whose_session_was_forgotten_while_it_waited_is_answered_all_the_same(world: World) -> None:
    hold = await world.call("acquire", session="alice")
    run = await world.begin("say still here")
    await world.begin("hang", "bob")
    assert [view["key"] for view in await world.call("sessions.list")] == ["bob"]
    await world.call("release", hold=hold["hold"])
    assert (await run.wait()).text == "still here"
