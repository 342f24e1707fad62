"""A front end speaks with a session's worker as if it had started it; the session stays open to every other door."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolError, UsageError
from tests.gateway.front_ends.front_end import FrontEnd, attached
from tests.gateway.world import World, open_world


async def test_a_prompt_is_a_run_that_every_door_sees_and_its_answer_is_the_workers_own(
    world: World, front: FrontEnd
) -> None:
    await world.events()
    await front.prompt("hello", "mine")
    assert front.answer("mine")["result"]["text"] == "hello"
    told = await world.events("run:accepted", "run:start", "done")
    assert [(event["type"], event["session"]) for event in told] == [
        *(("run:accepted", "alice"), ("run:start", "alice"), ("done", "alice")),
    ]
    assert told[-1]["data"]["text"] == "hello"
    world.assert_at_rest()
    assert (await world.ask("two")).text == "hello|two"
    await front.prompt("three", 2)
    assert front.answer(2)["result"]["text"] == "hello|two|three"


async def test_a_front_end_sees_and_steers_the_turns_of_other_doors_and_its_worker_refuses_a_prompt_beside_them(
    world: World, front: FrontEnd
) -> None:
    worker = await world.hanging()
    await wait_all_tasks_blocked()
    assert front.events == ["run_start", "assistant_message"]
    worker.prompt = lambda request: worker.refuse(request, "busy", "a run is in progress")  # type: ignore[method-assign]
    await front.prompt("beside", 1)
    assert front.answer(1)["error"]["code"] == "busy"
    await front.request("steer", 2, text="left")
    assert worker.steers == ["left"]
    worker.consume()
    worker.finish()
    await wait_all_tasks_blocked()
    assert front.answer(2) == {"id": 2, "result": {"queued": "steer"}}
    world.assert_at_rest()


async def test_a_prompt_of_another_door_waits_for_the_attached_one(world: World, front: FrontEnd) -> None:
    await front.prompt("hang")
    later = await world.begin("say later", queue="followup")
    assert world.launcher.prompts == ["hang"]
    world.launcher.running("hang").finish()
    assert (await later.wait()).text == "later"
    assert front.answer(1)["result"]["text"] == "done"


async def test_two_front_ends_see_the_same_events_and_only_their_own_answers_though_their_ids_are_alike(
    world: World, front: FrontEnd
) -> None:
    async with attached(world) as other:
        await front.prompt("hang", "same")
        await other.request("abort", "same")
        assert front.events == other.events == ["run_start", "assistant_message"]
        assert front.answer("same")["result"]["stop_reason"] == "aborted"
        await other.request("get_state", "state")
        assert other.answer("state")["result"]["session_file"] == "/t/0"
        assert [line["id"] for line in other.answers] == ["same", "state"]
        assert front.view["worker"] == other.view["worker"]


async def test_another_conversation_is_another_for_all_doors_and_for_the_next_worker(
    world: World, front: FrontEnd
) -> None:
    async with attached(world) as two:
        await front.prompt("before")
        await front.request("new_session", 2)
        assert (await world.call("sessions.get", session="alice"))["transcript"] == "/t/1"
        await two.prompt("after", 3)
        world.launcher.workers[0].die()
        await wait_all_tasks_blocked()
        await front.prompt("still", 4)
        assert front.answer(4)["result"]["text"] == "after|still"
        assert (await world.call("sessions.reset", session="alice"))["reset"] is True
        await front.prompt("new", 5)
        assert front.answer(5)["result"]["text"] == "new"


async def test_a_prompt_waits_until_the_conversation_that_was_begun_before_it_is_kept(
    world: World, front: FrontEnd
) -> None:
    await front.prompt("before")
    world.launcher.keeping = trio.Event()
    await front.request("new_session", 2)
    await front.prompt("after", 3)
    assert world.launcher.prompts == ["before"]
    world.launcher.keeping.set()
    await wait_all_tasks_blocked()
    assert front.answer(3)["result"]["text"] == "after"
    assert world.launcher.workers[0].kept[-1] == "/t/1"


@pytest.mark.parametrize("request_", [("new_session", {}), ("switch_session", {"session_file": "/t/other"})])
async def test_no_conversation_is_left_while_a_command_runs_in_its_background(
    world: World, front: FrontEnd, request_: tuple[str, dict[str, str]]
) -> None:
    method, params = request_
    world.launcher.transcripts["/t/other"] = ["other"]
    await front.prompt("before")
    worker = world.launcher.workers[0]
    worker.tell("background", running=1, names=["calm-fox"])
    await wait_all_tasks_blocked()
    await front.request(method, 2, **params)
    message = front.answer(2)["error"]["message"]
    assert "calm-fox of session 'alice' still runs" in message
    assert "pool sessions reset alice --force" in message
    await front.request("switch_session", 3, session_file="/t/0")
    assert "error" not in front.answer(3), "it is the conversation that it has"
    worker.tell("background", running=0)
    await wait_all_tasks_blocked()
    await front.request(method, 4, **params)
    assert "error" not in front.answer(4)


@pytest.mark.world(workers=1)
async def test_an_idle_front_end_holds_no_worker(world: World, front: FrontEnd) -> None:
    await front.request("ping", 1)
    await trio.sleep(0.11)
    assert world.gateway.pool.statistics().pool.leased == 0
    assert (await world.ask("hello", "bob")).text == "hello"


@pytest.mark.parametrize("link", [None, "link"])
async def test_the_conversation_of_another_session_is_not_taken_from_it(
    world: World, front: FrontEnd, tmp_path: Path, link: str | None
) -> None:
    await world.ask("first", "alice")
    await world.ask("mine", "bob")
    name = "/t/1"
    if link is not None:
        name = str(tmp_path / link)
        (tmp_path / link).symlink_to("/t/1")
        world.launcher.transcripts[name] = ["mine"]
    await front.request("switch_session", 1, session_file=name)
    assert "session bob" in front.answer(1)["error"]["message"]
    assert (await world.ask("again", "bob")).text == "mine|again"


async def test_a_worker_that_dies_fails_what_is_in_flight_and_the_next_one_goes_on(
    world: World, front: FrontEnd
) -> None:
    async with attached(world) as other:
        await front.prompt("before", 0)
        await front.prompt("hang", 1)
        world.launcher.running("hang").die()
        await wait_all_tasks_blocked()
        assert front.answer(1)["error"]["code"] == "worker_exited"
        assert other.events[-2:] == ["error", "done"]
        await front.prompt("after", 2)
        assert front.answer(2)["result"]["text"] == "before|after"


async def test_what_was_set_at_run_time_is_set_again_on_the_next_worker_in_silence(
    world: World, front: FrontEnd
) -> None:
    await front.request("set_model", 1, provider="p", model="big")
    await front.request("set_thinking", 2, level="high")
    await front.request("set_model", 3, provider="p", model="bigger")
    await front.prompt("x", 4)
    world.launcher.workers[0].die()
    await wait_all_tasks_blocked()
    told = len(front.lines)
    assert (await world.ask("y")).text == "x|y"
    worker = world.launcher.workers[0]
    assert (worker.model, worker.thinking) == ("bigger", "high")
    assert [name for name in worker.methods if name.startswith("set_")] == ["set_thinking", "set_model"]
    assert [line for line in front.lines[told:] if "event" not in line] == []


@pytest.mark.world(workers=1)
async def test_a_worker_that_was_changed_at_run_time_serves_no_other_session(world: World) -> None:
    async with attached(world, "alice") as front:
        await front.request("set_model", 1, provider="p", model="big")
    await world.ask("hello", "bob")
    (worker,) = world.launcher.workers
    assert (worker.id, worker.model) == ("w2", None)


async def test_a_front_end_that_leaves_ends_nothing(world: World) -> None:
    async with attached(world) as front:
        assert world.methods.attended("alice")  # a question to a person would be seen
        await front.prompt("hang")
    await wait_all_tasks_blocked()
    assert not world.methods.attended("alice")
    world.launcher.running("hang").finish("said later")
    assert (await world.events("done"))[-1]["data"]["text"] == "said later"
    world.assert_at_rest()
    assert world.gateway.attachments._open == {}


@pytest.mark.world(workers=1)
async def test_an_abort_overtakes_a_prompt_that_still_waits_for_a_worker(world: World, front: FrontEnd) -> None:
    await world.begin("hang", "bob")
    await front.prompt("never", 1)
    await front.request("abort", 2)
    assert front.answer(1)["error"]["code"] == "aborted"
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert front.answer(2)["result"] is not None
    assert world.launcher.prompts == ["hang"]


@pytest.mark.world(workers=1)
async def test_requests_keep_their_order_while_a_prompt_waits(world: World, front: FrontEnd) -> None:
    await world.begin("hang", "bob")
    await front.prompt("first", 1)
    await front.request("ping", 2)
    assert front.answers == []
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert [line["id"] for line in front.answers] == [1, 2]
    assert world.launcher.workers[-1].methods[-2:] == ["prompt", "ping"]


async def test_what_is_no_request_is_answered_here(world: World, front: FrontEnd) -> None:
    asked = list(world.launcher.workers[0].methods)
    texts = ["garbage", "null", "[1]", "42", '"text"', "{\n}", "\ud83d".encode(errors="replace").decode()]
    for text in texts:
        await front.begin(text=text)
    for identity in (True, 1.5, {"a": 1}, ["x"]):
        await front.begin({"id": identity, "method": "ping"})
    assert [(answer["id"], answer["error"]["code"]) for answer in front.answers] == [(None, "parse_error")] * 11
    assert {answer["error"]["message"] for answer in front.answers[len(texts) :]} == {
        "the id is neither a string nor an integer"
    }
    assert world.launcher.workers[0].methods == asked


async def test_a_shutdown_ends_the_attachment_and_not_the_worker(world: World, front: FrontEnd) -> None:
    await front.request("shutdown", "bye")
    assert front.answer("bye") == {"id": "bye", "result": {}}
    assert front.ended is not None
    assert (front.ended["code"], len(world.launcher.workers)) == ("left", 1)


async def test_an_end_waits_for_what_was_asked_but_not_for_ever(world: World, front: FrontEnd) -> None:
    world.launcher.workers[0].deaf = True
    await front.request("ping", 1)
    with trio.fail_after(11):
        await front.end()
    assert front.answers == []
    await wait_all_tasks_blocked()
    assert front.ended is not None


async def test_a_front_end_that_does_not_read_is_given_up_and_the_other_one_is_served(
    world: World, front: FrontEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.front_ends.attachment.MAX_UNREAD_BYTES", 1000)
    attachment = world.gateway.attachments._open[front.view["attachment"]]

    async def never(event: str, data: bytes) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(attachment._caller, "push_encoded", never)
    async with attached(world) as quick:
        await quick.prompt("many 100")
        assert attachment._ended is not None
        assert (attachment._ended.code, attachment.waiting_bytes) == ("behind", 0)
        assert quick.answer(1)["result"]["text"] == "told"


async def test_flags_make_a_worker_of_their_own(world: World) -> None:
    flags = ["--no-skills", "--model", "big", "--tools", "read"]
    async with attached(world, arguments=flags) as front:
        profile = world.gateway.attachments._attached_sessions["alice"].profile
        assert profile.hard_args == ("--tools", "read", "--no-skills", "--model", "big")
        await front.prompt("x")
        assert (await world.ask("y")).text == "x|y"
        assert len(world.launcher.workers) == 1
        async with attached(world) as joined:
            assert joined.view["worker"] == front.view["worker"]
        with pytest.raises(UsageError, match="other arguments"):
            await world.call("attach.open", session="alice", arguments=["--no-skills"], cwd="/")


@pytest.mark.world(workers=1)
async def test_a_conversation_that_is_not_kept_has_its_worker_to_itself_and_ends_with_it(world: World) -> None:
    async with attached(world, None, arguments=["--no-session"]) as front:
        waiting = await world.begin("hello", "bob")
        assert waiting.is_live
        assert world.launcher.workers[0].id == front.view["worker"]
        world.launcher.workers[0].die()
        await wait_all_tasks_blocked()
        assert front.ended is not None
        assert front.ended["code"] == "worker_exited"
        assert (await waiting.wait()).text == "hello"
        await wait_all_tasks_blocked()
    assert [entry.key for entry in world.gateway.sessions] == ["bob"]


@pytest.mark.parametrize("is_deaf", [False, True])
async def test_a_conversation_that_is_not_kept_goes_with_its_front_end_though_a_request_is_open(
    world: World, *, is_deaf: bool
) -> None:
    async with attached(world, None, arguments=["--no-session"]) as front:
        world.launcher.workers[0].deaf = is_deaf
        await front.request("ping")
        assert len(front.answers) == int(not is_deaf)
    await wait_all_tasks_blocked()
    assert list(world.gateway.sessions) == []
    assert world.gateway.pool.statistics().pool.leased == 0


async def test_continuing_takes_up_the_latest_conversation_of_the_directory(world: World) -> None:
    async with attached(world, None) as first:
        await first.prompt("one")
    async with attached(world, None, arguments=["--continue"]) as second:
        assert second.view["session"] == first.view["session"]
    async with attached(world, None, arguments=["-c"], cwd="/tmp") as elsewhere:
        assert elsewhere.view["session"] != first.view["session"]


async def test_a_prompt_that_never_reached_a_worker_is_not_run_by_the_next_supervisor(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await world.begin("hang", "bob")
        await front.prompt("never", 1)
        store = world.store.after_a_crash()
    async with open_world(tmp_path, store=store) as world:
        assert world.recovery is not None
        assert (world.recovery.resumed, world.gateway.run_registry.live) == (0, 0)


async def test_a_stranger_cannot_speak_for_a_front_end(world: World, front: FrontEnd) -> None:
    world.caller.principal = "uid:7"
    with pytest.raises(PoolError, match="no attachment"):
        await world.call("attach.send", attachment=front.view["attachment"], text="x")


# --- the worker's stderr ----------------------------------------------------------------------------------------------


def listener(world: World) -> Any:
    (worker,) = world.launcher.live.values()
    assert worker.stderr_listener is not None
    return worker.stderr_listener


@pytest.mark.world(workers=1)
async def test_a_front_end_reads_the_stderr_of_the_worker_while_that_has_its_session(
    world: World, front: FrontEnd
) -> None:
    await front.prompt("hello")
    listener(world)(b"Warning: \xff\n")
    await wait_all_tasks_blocked()
    assert front.words == "Warning: \ufffd\n"
    async with attached(world, "bob") as other:
        await other.prompt("hello")
        listener(world)(b"to the next one\n")
        await wait_all_tasks_blocked()
        assert (front.words, other.words) == ("Warning: \ufffd\n", "to the next one\n")


async def test_of_a_flood_on_stderr_a_front_end_gets_the_beginning_and_how_much_is_missing(
    world: World, front: FrontEnd
) -> None:
    await front.prompt("hello")
    listener(world)(b"x" * 20_000 + b"\n" + b"y" * 100 * 1024 + b"\n" + b"short\n" * 20_000)
    await wait_all_tasks_blocked()
    assert len(front.words) < 70_000
    longest, other, *short, missing = front.words.splitlines()
    assert (len(longest), len(other)) == (8_192, 8_192)
    assert missing == f"[{20_000 - len(short)} lines of the agent's stderr were left out]"
