"""Runs from their acceptance to their outcome: keys, waiting, followers, order; on a virtual clock."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import Conflict, PoolClosed, PoolSaturated, UsageError
from gateway.runs import registry
from gateway.turns.media import MAX_FILE_BYTES
from tests.gateway.callers import RecordingCaller
from tests.gateway.world import World, error_of, open_world
from wire.log_context import bind_facts, bound_facts

FOLLOWED = ["run:accepted", "run:start", "text_chunk", "done"]


async def test_a_message_is_accepted_at_once_and_its_outcome_follows(world: World) -> None:
    accepted = await world.call("agent", text="hang", session="alice", run="k1")
    assert accepted == {"run_id": "k1", "session": "alice", "status": "accepted", "accepted_at": 1_000_000}
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish("done", step=3)
    outcome = await world.call("agent.wait", run_id="k1")
    assert [outcome[name] for name in ("status", "text", "worker", "step")] == ["ok", "done", "w1", 3]
    assert outcome["accepted_at"] <= outcome["started_at"] <= outcome["ended_at"]
    [done] = await world.events("done")
    assert done["data"]["step"] == 3


async def test_a_prompt_is_followed_from_its_acceptance_to_its_outcome_and_no_other_run_is(world: World) -> None:
    await world.begin("hang", run="first")
    follower = RecordingCaller(world.nursery, request_id="f")
    message = {"text": "hello", "session": "alice", "run": "second", "queue": "followup"}
    world.nursery.start_soon(lambda: world.call("prompt", follower, **message))
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish()
    await world.run("second").wait()
    await wait_all_tasks_blocked()
    assert {(name, frame["request"]) for name, frame in follower.pushed} == {("events", "f")}
    events = [event for _, frame in follower.pushed for event in frame["events"]]
    assert [(event["type"], event["run_id"]) for event in events] == [(type_, "second") for type_ in FOLLOWED]
    assert events[-1]["data"]["text"] == "hang|hello"


async def test_what_is_logged_in_a_turn_names_its_own_session_and_run_and_not_the_request_that_set_it_off(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    named: list[dict[str, object]] = []

    async def look(_event: object) -> None:
        named.append({**bound_facts()})

    async with open_world(tmp_path, hooks={"agent:bootstrap": (look,)}) as world:
        bind_facts(request=7, principal="uid:1", session="that of the request")
        await world.begin("hang", run="first")
        second = await world.begin("later", run="second", role="writer", queue="followup")
        world.launcher.running("hang").finish()
        await second.wait()
    assert named == [{"session": "alice", "run": "first"}, {"session": "alice", "run": "second"}]


async def test_a_run_goes_on_when_the_front_end_that_started_it_leaves(world: World) -> None:
    async with trio.open_nursery() as connection:
        connection.start_soon(lambda: world.call("prompt", text="hang", session="alice", run="k1"))
        await wait_all_tasks_blocked()
        connection.cancel_scope.cancel()
    world.launcher.running("hang").finish("told to nobody")
    outcome = await world.call("agent.wait", run_id="k1")
    assert (outcome["status"], outcome["text"]) == ("ok", "told to nobody")


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_stands_for_its_run_while_it_lives_and_for_its_window(world: World) -> None:
    run = await world.begin("hang", run="k1")
    assert await world.send("hang", run="k1") is run
    late = RecordingCaller(world.nursery)
    world.nursery.start_soon(lambda: world.call("prompt", late, text="hang", session="alice", run="k1"))
    await wait_all_tasks_blocked()
    world.launcher.running("hang").finish("once")
    await run.wait()
    await wait_all_tasks_blocked()
    assert [event["type"] for _, data in late.pushed for event in data["events"]] == FOLLOWED
    waits_otherwise: dict[str, Any] = {"timeout": 3.0, "priority": 9, "queue": "collect"}
    again = await world.call("prompt", text="hang", session="alice", run="k1", **waits_otherwise)
    assert again["text"] == "once"
    for other in ({"text": "hello!"}, {"role": "writer"}, {"lane": "cron"}, {"images": [{"data": "AA=="}]}):
        with pytest.raises(Conflict, match="k1"):
            await world.call("agent", **{"text": "hang", "session": "alice", "run": "k1", **other})
    assert world.launcher.prompts == ["hang"]
    await trio.sleep(301)
    assert (await world.ask("say other", run="k1")).text == "other"


async def test_keys_are_those_of_one_principal_and_one_session(world: World) -> None:
    stranger = RecordingCaller(world.nursery, principal="uid:2")
    await world.ask("mine", "alice", run="k1")
    await world.ask("elsewhere", "bob", run="k1")
    theirs = await world.call("prompt", stranger, text="theirs", session="alice", run="k1")
    assert theirs["text"] == "mine|theirs"
    with pytest.raises(UsageError, match="2 sessions"):
        await world.call("agent.wait", run_id="k1")
    assert (await world.call("agent.wait", run_id="k1", session="bob"))["text"] == "elsewhere"
    assert (await world.call("agent.wait", stranger, run_id="k1"))["text"] == "mine|theirs"


async def test_the_latest_run_of_a_session_is_answered_to_any_caller_that_names_both_and_no_other_run_is(
    world: World,
) -> None:
    page = RecordingCaller(world.nursery, principal="token:default")
    await world.ask("first", "alice", run="k1")
    await world.ask("last", "alice", run="k2")
    assert (await world.call("agent.wait", page, run_id="k2", session="alice"))["text"] == "first|last"
    for named in ({"run_id": "k1", "session": "alice"}, {"run_id": "k2"}, {"run_id": "k2", "session": "bob"}):
        with pytest.raises(UsageError, match="there is no run"):
            await world.call("agent.wait", page, **named)


@pytest.mark.world(workers=1)
async def test_runs_wait_for_workers_in_any_number(world: World) -> None:
    """Beyond what direct acquires may: they are durable, and bounded by the lanes."""
    await world.begin("hang", "first")
    runs = [await world.send("say on", f"session {number}") for number in range(60)]
    await wait_all_tasks_blocked()
    assert len(await world.call("waiting.list")) == 60
    world.launcher.running("hang").finish()
    assert {(await run.wait()).text for run in runs} == {"on"}


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_the_end_of_a_wait_is_not_the_end_of_its_run_and_to_wait_for_no_time_is_a_look(world: World) -> None:
    with pytest.raises(UsageError, match="there is no run 'k1'"):
        await world.call("agent.wait", run_id="k1")
    run = await world.begin("hang", run="k1")
    looked = await world.call("agent.wait", run_id="k1", timeout_ms=0)
    assert (looked["status"], looked["started_at"], trio.current_time()) == ("timeout", run.record.started_at, 0)
    assert (await world.call("agent.wait", run_id="k1", timeout_ms=5000))["status"] == "timeout"
    assert trio.current_time() == 5
    world.launcher.running("hang").finish("late")
    assert (await world.call("agent.wait", run_id="k1"))["text"] == "late"
    assert (await world.call("agent.wait", run_id="k1", timeout_ms=0))["status"] == "ok"


@pytest.mark.parametrize("limit", [{"outcomes": 1}, {"outcome_bytes": 1}])
async def test_what_became_of_an_outcome_that_later_ones_or_time_have_pushed_out_is_said(
    tmp_path: Path, autojump_clock: MockClock, limit: dict[str, Any]
) -> None:
    async with open_world(tmp_path, outcome_age=600, idempotency_window=60, **limit) as world:
        for key in ("k1", "k2"):
            await world.ask("hello", run=key)
        again = await world.call("prompt", text="hello", session="alice", run="k1")
        assert (again["status"], again["error"]["code"]) == ("error", "usage")
        for _ in range(2):
            with pytest.raises(UsageError, match=r"later outcomes have taken its place \(gateway\.outcomes"):
                await world.call("agent.wait", run_id="k1")
            await trio.sleep(100)
        await trio.sleep(399)
        assert (await world.call("agent.wait", run_id="k2"))["status"] == "ok"
        await trio.sleep(2)
        for key in ("k1", "k2"):
            with pytest.raises(UsageError, match="too long ago"):
                await world.call("agent.wait", run_id=key)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"text": " \n"}, "empty"),
        ({"text": "x", "source": {"channel": "c", "chat_type": "dm", "chat_id": "1", "sender_id": "1"}}, "either"),
        ({"text": "x", "session": None}, "either"),
        ({"text": "x", "agent": "nobody"}, "nobody"),
        ({"text": "x", "role": "nothing"}, "nothing"),
        ({"text": "x", "session": "agent:ops"}, "agent:ops"),
    ],
)
async def test_what_cannot_be_a_message_leaves_no_trace(world: World, wrong: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await world.call("agent", **{"session": "alice", "run": "k1", **wrong})
    assert len(world.gateway.sessions) == world.gateway.run_registry.live == 0
    assert await world.events() == []
    await world.ask("good", run="k1")


async def test_an_image_alone_is_a_message(world: World) -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    await world.ask("", images=[image])
    assert world.launcher.asked("prompt")[0]["images"] == [image]


async def test_nothing_is_accepted_after_the_call_to_stop_and_what_runs_goes_on(world: World) -> None:
    run = await world.begin("hang")
    hold = await world.call("acquire", session="bob")
    await world.call("shutdown")
    assert world.gateway.shutdown_requested.is_set()
    for method, params in (("agent", {"session": "alice"}), ("prompt", {"session": "bob", "hold": hold["hold"]})):
        with pytest.raises(PoolClosed, match="shutting down"):
            await world.call(method, text="more", **params)
    world.launcher.running("hang").finish("in time")
    assert (await run.wait()).text == "in time"


@pytest.mark.parametrize(
    "limit", [pytest.param(name, marks=pytest.mark.world(**{name: 1})) for name in ("runs", "sessions")]
)
async def test_with_every_place_taken_a_new_run_is_refused_and_can_come_again(world: World, limit: str) -> None:
    run = await world.begin("hang")
    with pytest.raises(PoolSaturated, match=rf"gateway\.{limit}"):
        await world.send("more", "bob", run="k2")
    world.launcher.running("hang").finish()
    await run.wait()
    await wait_all_tasks_blocked()
    assert (await world.ask("another", "bob", run="k2")).text == "another"


# --- outcomes ---------------------------------------------------------------------------------------------------------


async def test_a_model_that_fails_a_tool_that_fails_and_silence_make_different_outcomes(world: World) -> None:
    failed = await world.ask("fail")
    assert (failed.status, failed.reason, failed.text) == ("error", "error", "half")
    assert (error_of(failed).code, error_of(failed).message) == ("worker_error", "the model is ill")
    tool = await world.ask("tool ls")
    assert (tool.status, "no such file" in tool.text) == ("ok", True)
    silent = await world.ask("say NO_REPLY ")
    assert (silent.status, silent.text, silent.silent) == ("ok", "", True)
    assert (await world.events("done"))[-1]["data"]["silent"] is True


async def test_files_of_the_workspace_are_handed_over_beside_the_text(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        profile = await world.gateway.profile_cache.get("main", "default")
        (Path(profile.cwd) / "a.png").write_bytes(b"x" * 5)
        outcome = await world.ask("say here\nMEDIA:a.png\nMEDIA:../b.png")
        assert outcome.text == "here\nMEDIA:../b.png"
        [media] = outcome.media
        assert (media.mime_type, media.size, Path(media.path).name) == ("image/png", 5, "a.png")
        [done] = await world.events("done")
        assert done["data"]["media"] == msgspec.to_builtins([media])


async def test_files_of_a_workspace_on_a_node_are_copied_here_before_the_worker_is_given_back(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        world.launcher.node, world.launcher.files = "far", {"a.png": b"12345", "b.png": bytes(MAX_FILE_BYTES + 1)}
        outcome = await world.ask("say here\nMEDIA:a.png\nMEDIA:b.png\nMEDIA:c.png\nMEDIA:a.sh")
        assert outcome.text == "here\nMEDIA:b.png\nMEDIA:c.png\nMEDIA:a.sh"
        [media] = outcome.media
        assert (await trio.Path(media.path).read_bytes(), media.mime_type, media.size) == (b"12345", "image/png", 5)
        assert Path(media.path).name.endswith("-a.png")
        outcome = await world.ask("say ```\nMEDIA:a.png\n```")
        assert outcome.media == []


async def test_of_a_very_long_message_the_first_words_are_published(world: World) -> None:
    await world.ask("x" * 2_001)
    [accepted] = await world.events("run:accepted")
    assert accepted["data"]["truncated"] is True
    assert "x" * 2_001 not in accepted["data"]["text"]


@pytest.mark.parametrize(("limit", "is_cut"), [(9, True), (10, None)])
async def test_a_very_long_answer_is_cut_in_its_event_and_whole_in_its_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int, *, is_cut: bool | None
) -> None:
    monkeypatch.setattr(registry, "_DONE_TEXT", limit)
    outcome = await world.ask("say 0123456789")
    assert outcome.text == "0123456789"
    [done] = await world.events("done")
    assert (done["data"]["text"], done["data"].get("truncated")) == (outcome.text[:limit], is_cut)
    assert (done["run_id"], done["data"]["reason"], done["data"]["worker"]) == (outcome.run_id, "completed", "w1")
