"""A front end speaks with a session's worker as if it had started it; the session stays everybody's."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import PoolError, UsageError
from tests.gateway.attachments.front_end import attached
from tests.gateway.world import open_world


async def test_a_prompt_is_a_run_that_everybody_sees_and_its_answer_is_the_workers_own(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await world.events()
        await front.prompt("hello", "mine")
        assert front.answer("mine")["result"]["text"] == "hello"
        told = await world.events("run:accepted", "run:start", "done")
        assert [event["type"] for event in told] == ["run:accepted", "run:start", "done"]
        assert {event["session"] for event in told} == {"alice"}
        assert told[-1]["data"]["text"] == "hello"
        world.assert_at_rest()


async def test_one_conversation_whatever_the_door(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.prompt("one")
        assert (await world.ask("two")).text == "one|two"
        await front.prompt("three", 2)
        assert front.answer(2)["result"]["text"] == "one|two|three"


async def test_a_front_end_sees_the_turns_of_other_doors(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        worker = await world.hanging()
        await wait_all_tasks_blocked()
        assert front.events == ["run_start", "assistant_message"]
        await front.prompt("beside", 1)
        await front.request("steer", 2, text="left")
        assert worker.steers == ["left"]
        worker.consume()
        worker.finish()
        await wait_all_tasks_blocked()
        assert front.answer(2) == {"id": 2, "result": {"queued": "steer"}}


async def test_a_prompt_beside_a_run_is_the_workers_to_refuse(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        worker = await world.hanging()
        worker.prompt = lambda request: worker.refuse(request, "busy", "a run is in progress")  # type: ignore[method-assign]
        await front.prompt("beside")
        assert front.answer(1)["error"]["code"] == "busy"
        worker.finish()
        await wait_all_tasks_blocked()
        world.assert_at_rest()


async def test_a_prompt_of_another_door_waits_for_the_attached_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.prompt("hang")
        later = await world.begin("say later", queue="followup")
        assert world.launcher.prompts == ["hang"]
        world.launcher.running("hang").finish()
        assert (await later.wait()).text == "later"
        assert front.answer(1)["result"]["text"] == "done"


async def test_ids_of_two_front_ends_never_meet(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as one, attached(world) as two:
        await one.request("ping", "same")
        await two.request("get_state", "same")
        assert one.answer("same")["result"] == {}
        assert two.answer("same")["result"]["session_file"] == "/t/0"
        assert len(one.answers) == len(two.answers) == 1
        assert one.view["worker"] == two.view["worker"]


async def test_two_front_ends_see_the_same_events_and_only_their_own_answers(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as one, attached(world) as two:
        await one.prompt("hang", "a")
        await two.request("abort", "b")
        assert one.events == two.events == ["run_start", "assistant_message"]
        assert one.answer("a")["result"]["stop_reason"] == "aborted"
        assert [line["id"] for line in two.answers] == ["b"]


async def test_another_conversation_is_another_for_both_and_for_the_next_worker(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as one, attached(world) as two:
        await one.prompt("before")
        await one.request("new_session", 2)
        assert (await world.call("sessions.get", session="alice"))["transcript"] == "/t/1"
        await two.prompt("after", 3)
        assert two.answer(3)["result"]["text"] == "after"
        world.launcher.workers[0].die()
        await wait_all_tasks_blocked()
        await one.prompt("still", 4)
        assert one.answer(4)["result"]["text"] == "after|still"


@pytest.mark.parametrize("request_", [("new_session", {}), ("switch_session", {"session_file": "/t/other"})])
async def test_no_conversation_is_left_while_a_command_runs_in_its_background(
    tmp_path: Path, autojump_clock: MockClock, request_: tuple[str, dict[str, str]]
) -> None:
    method, params = request_
    async with open_world(tmp_path) as world, attached(world) as front:
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


async def test_another_door_can_begin_anew_right_after_a_front_end_has_asked(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.prompt("old", 1)
        await front.request("ping", 2)
        assert (await world.call("sessions.reset", session="alice"))["reset"] is True
        await front.prompt("new", 3)
        assert front.answer(3)["result"]["text"] == "new"


async def test_nothing_is_held_of_a_worker_that_nobody_asks(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await front.request("ping", 1)
        await trio.sleep(0.11)
        assert world.gateway.pool.statistics().pool.leased == 0
        assert (await world.ask("hello", "bob")).text == "hello"


@pytest.mark.parametrize("link", [None, "link"])
async def test_the_conversation_of_another_session_is_not_taken_from_it(
    tmp_path: Path, autojump_clock: MockClock, link: str | None
) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("mine", "bob")
        name = "/t/0"
        if link is not None:
            name = str(tmp_path / link)
            (tmp_path / link).symlink_to("/t/0")
            world.launcher.transcripts[name] = ["mine"]
        async with attached(world) as front:
            await front.request("switch_session", 1, session_file=name)
            assert "session bob" in front.answer(1)["error"]["message"]
            assert (await world.ask("again", "bob")).text == "mine|again"


async def test_a_worker_that_dies_fails_what_is_in_flight_and_the_next_one_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front, attached(world) as other:
        await front.prompt("before", 0)
        await front.prompt("hang", 1)
        world.launcher.running("hang").die()
        await wait_all_tasks_blocked()
        assert front.answer(1)["error"]["code"] == "worker_exited"
        assert other.events[-2:] == ["error", "done"]
        await front.prompt("after", 2)
        assert front.answer(2)["result"]["text"] == "before|after"


async def test_what_was_set_at_run_time_is_set_again_on_the_next_worker_in_silence(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
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


async def test_a_worker_that_was_changed_at_run_time_serves_nobody_else(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world:
        async with attached(world, "alice") as front:
            await front.request("set_model", 1, provider="p", model="big")
        await world.ask("hello", "bob")
        (worker,) = world.launcher.workers
        assert worker.id == "w2"
        assert worker.model is None


async def test_a_front_end_that_leaves_ends_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world:
        async with attached(world) as front:
            await front.prompt("hang")
        await wait_all_tasks_blocked()
        world.launcher.running("hang").finish("said to nobody")
        done = await world.events("done")
        assert done[-1]["data"]["text"] == "said to nobody"
        world.assert_at_rest()
        assert world.gateway.attachments._open == {}


async def test_an_abort_overtakes_a_prompt_that_still_waits_for_a_worker(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await world.begin("hang", "bob")
        await front.prompt("never", 1)
        await front.request("abort", 2)
        assert front.answer(1)["error"]["code"] == "aborted"
        world.launcher.running("hang").finish()
        await wait_all_tasks_blocked()
        assert front.answer(2)["result"] is not None
        assert world.launcher.prompts == ["hang"]


async def test_requests_keep_their_order_while_a_prompt_waits(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await world.begin("hang", "bob")
        await front.prompt("first", 1)
        await front.request("ping", 2)
        assert front.answers == []
        world.launcher.running("hang").finish()
        await wait_all_tasks_blocked()
        assert [line["id"] for line in front.answers] == [1, 2]
        assert world.launcher.workers[-1].methods[-2:] == ["prompt", "ping"]


@pytest.mark.parametrize("text", ["garbage", "null", "[1]", "42", '"text"', "{\n}", "\ud83d"])
async def test_what_is_no_request_is_answered_here(tmp_path: Path, autojump_clock: MockClock, text: str) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        asked = list(world.launcher.workers[0].methods)
        await front.begin(text=text.encode(errors="replace").decode())
        (answer,) = front.answers
        assert answer["id"] is None
        assert answer["error"]["code"] == "parse_error"
        assert world.launcher.workers[0].methods == asked


@pytest.mark.parametrize("identity", [True, 1.5, {"a": 1}, ["x"]])
async def test_an_id_that_is_none_is_refused_as_the_agent_does(
    tmp_path: Path, autojump_clock: MockClock, identity: object
) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.begin({"id": identity, "method": "ping"})
        (answer,) = front.answers
        assert answer == {
            "id": None,
            "error": {"code": "parse_error", "message": "the id is neither a string nor an integer"},
        }


async def test_a_shutdown_ends_the_attachment_and_not_the_worker(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        await front.request("shutdown", "bye")
        assert front.answer("bye") == {"id": "bye", "result": {}}
        assert front.ended is not None
        assert front.ended["code"] == "left"
        assert len(world.launcher.workers) == 1


async def test_an_end_waits_for_what_was_asked(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        world.launcher.workers[0].deaf = True
        await front.request("ping", 1)
        with trio.fail_after(11):
            await front.end()
        assert front.answers == []
        await wait_all_tasks_blocked()
        assert front.ended is not None


async def test_a_front_end_that_does_not_read_is_given_up_and_hurts_nobody(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.attachments.attachment.MAX_UNREAD_BYTES", 1000)
    async with open_world(tmp_path) as world, attached(world) as slow, attached(world) as quick:
        attachment = world.gateway.attachments._open[slow.view["attachment"]]

        async def never(event: str, data: bytes) -> None:
            await trio.sleep_forever()

        monkeypatch.setattr(attachment._caller, "push_encoded", never)
        await quick.prompt("many 100")
        assert attachment._ended is not None
        assert attachment._ended.code == "behind"
        assert attachment.waiting_bytes == 0
        assert quick.answer(1)["result"]["text"] == "told"


async def test_flags_make_a_worker_of_their_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    flags = ["--no-skills", "--model", "big", "--tools", "read"]
    async with open_world(tmp_path) as world, attached(world, arguments=flags) as front:
        profile = world.gateway.attachments._attached_sessions["alice"].profile
        assert profile.hard_args == ("--tools", "read", "--no-skills", "--model", "big")
        await front.prompt("x")
        assert (await world.ask("y")).text == "x|y"
        assert len(world.launcher.workers) == 1
        async with attached(world) as joined:
            assert joined.view["worker"] == front.view["worker"]
        with pytest.raises(UsageError, match="other arguments"):
            await world.call("attach.open", session="alice", arguments=["--no-skills"], cwd="/")


async def test_a_conversation_that_is_not_kept_has_its_worker_to_itself_and_ends_with_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world, None, arguments=["--no-session"]) as front:
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


async def test_continuing_takes_up_the_latest_conversation_of_the_directory(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        async with attached(world, None) as first:
            await first.prompt("one")
        async with attached(world, None, arguments=["--continue"]) as second:
            assert second.view["session"] == first.view["session"]
        async with attached(world, None, arguments=["-c"], cwd="/tmp") as elsewhere:
            assert elsewhere.view["session"] != first.view["session"]


async def test_a_front_end_hears_of_questions_so_that_somebody_can_answer(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path) as world:
        async with attached(world):
            assert world.methods.attended("alice")
        await wait_all_tasks_blocked()
        assert not world.methods.attended("alice")


async def test_a_prompt_that_never_reached_a_worker_is_not_run_by_the_next_supervisor(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_world(tmp_path, workers=1) as world, attached(world) as front:
        await world.begin("hang", "bob")
        await front.prompt("never", 1)
        store = world.gateway.store.after_a_crash()  # type: ignore[attr-defined]
    async with open_world(tmp_path, store=store) as world:
        assert world.recovery is not None
        assert world.recovery.resumed == 0
        assert world.gateway.run_registry.live == 0


async def test_a_stranger_cannot_speak_for_a_front_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_world(tmp_path) as world, attached(world) as front:
        world.caller.principal = "uid:7"
        with pytest.raises(PoolError, match="no attachment"):
            await world.call("attach.send", attachment=front.view["attachment"], text="x")
