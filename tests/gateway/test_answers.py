"""Answers on their way out: told in parts to whoever asks for parts, and past the hooks; on a virtual clock."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.hooks import Drop, HookMessage
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import WholeStore, World, open_world, telegram

CALL = {"id": "t1", "name": "exec", "input_preview": "ls", "state": "COMPLETED"}


async def talk(worker: GatewayWorker) -> None:
    """Something said, a tool, something more, the end."""
    worker.tell("assistant_message", partial="Let me ")
    worker.tell("assistant_message", partial="look.")
    worker.tell("tool", phase="start", call={**CALL, "state": "RUNNING"})
    worker.tell("tool", phase="end", call=CALL)
    worker.tell("assistant_message", partial="Found it.")
    await wait_all_tasks_blocked()
    worker.finish("Found it.")
    await wait_all_tasks_blocked()


async def told(world: World) -> list[Any]:
    """What went out, in short: pieces of text, parts, tools, outcomes."""
    short: list[Any] = []
    for event in await world.events("text_chunk", "reply", "tool:start", "tool:end", "done"):
        match event["type"], event["data"]:
            case "text_chunk", data:
                short.append(data["delta"])
            case "reply", data:
                short.append((data["kind"], data["text"], *data.get("media", [])))
            case "done", data:
                short.append({"done": data["text"]})
            case name, _data:
                short.append(name)
    return short


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_whoever_asks_for_parts_is_told_each_when_it_is_complete_and_the_rest_at_the_end(world: World) -> None:
    run = await world.begin("mute", blocks="text_end", run="k1")
    await talk(world.launcher.running("mute"))
    events = [event for event in await world.events("reply") if event["channel"] == "progress"]
    assert [(event["run_id"], event["data"]) for event in events] == [("k1", {"kind": "text", "text": "Let me look."})]
    assert (await run.wait()).text == "Found it."


async def test_a_part_is_told_after_its_text_and_before_the_tool_that_ended_it(world: World) -> None:
    await world.ask("/verbose on")
    await world.events()
    await world.begin("mute", blocks="message_end")
    await talk(world.launcher.running("mute"))
    assert await told(world) == [
        *("Let me ", "look.", ("text", "Let me look."), "tool:start", "tool:end", ("tool", "[exec ls]")),
        *("Found it.", {"done": "Found it."}),
    ]


async def test_without_parts_the_answer_comes_in_one(world: World) -> None:
    await world.begin("mute")
    await talk(world.launcher.running("mute"))
    assert await told(world) == ["Let me ", "look.", "tool:start", "tool:end", "Found it.", {"done": "Found it."}]


async def test_thoughts_are_parts_where_the_session_shows_them(world: World) -> None:
    await world.ask("/reasoning on")
    await world.events()
    await world.begin("mute", blocks="text_end")
    worker = world.launcher.running("mute")
    worker.tell("thinking", partial="Hm.")
    worker.tell("assistant_message", partial="One.")
    worker.tell("thinking", partial="Well.")
    worker.tell("assistant_message", partial="Two.")
    worker.finish("Two.")
    assert [each for each in await told(world) if isinstance(each, tuple)] == [
        ("reasoning", "Reasoning:\nHm."),
        ("text", "One."),
        ("reasoning", "Reasoning:\nWell."),
    ]


async def test_a_silent_part_is_told_to_nobody(world: World) -> None:
    await world.begin("mute", blocks="text_end")
    worker = world.launcher.running("mute")
    worker.tell("assistant_message", partial="NO_REPLY")
    worker.tell("tool", phase="start", call=CALL)
    worker.finish("NO_REPLY")
    assert await told(world) == ["tool:start", {"done": ""}]


async def test_files_are_handed_over_with_the_part_that_names_them(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        profile = await world.gateway.profile_cache.get("main", "default")
        (Path(profile.cwd) / "a.txt").write_text("hello")
        run = await world.begin("mute", blocks="text_end")
        worker = world.launcher.running("mute")
        worker.tell("assistant_message", partial="Here:\nMEDIA:a.txt")
        worker.tell("thinking", partial="Well.")
        worker.finish("")
        with trio.fail_after(10):
            await run.wait()
        [part] = await world.events("reply")
        assert (part["data"]["kind"], part["data"]["text"]) == ("text", "Here:")
        [media] = part["data"]["media"]
        assert (media["mime_type"], media["size"], Path(media["path"]).name) == ("text/plain", 5, "a.txt")


async def test_a_message_steered_into_a_turn_that_tells_parts_is_answered_with_the_whole(world: World) -> None:
    first = await world.begin("hang", blocks="text_end")
    second = await world.begin("more", blocks="text_end")
    worker = world.launcher.running("hang")
    worker.consume()
    worker.tell("thinking", partial="And now?")
    worker.finish("well")
    assert ((await first.wait()).text, (await first.wait()).silent) == ("", True)
    assert ((await second.wait()).text, (await second.wait()).silent) == ("well", False)


async def test_an_answer_that_is_begun_again_on_another_worker_has_nothing_of_the_first(world: World) -> None:
    await world.ask("/verbose on")
    run = await world.begin("mute", retry_safe=True, blocks="text_end")
    worker = world.launcher.running("mute")
    worker.tell("assistant_message", partial="Lost.")
    await wait_all_tasks_blocked()
    worker.die()
    await world.events()
    again = world.launcher.running("mute")
    assert again is not worker
    again.tell("assistant_message", partial="Found.")
    again.tell("thinking", partial="Well.")
    again.finish("Found.")
    await run.wait()
    assert [each for each in await told(world) if isinstance(each, tuple)] == [("text", "Found.")]


async def test_a_run_of_the_last_life_is_still_told_in_parts(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob")
        await world.begin("mute", blocks="message_end")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        await world.events()
        await talk(world.launcher.running("mute"))
        assert ("text", "Let me look.") in await told(world)


# --- hooks ------------------------------------------------------------------------------------------------------------


async def test_a_hook_changes_what_is_told_and_what_is_handed_over(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[HookMessage] = []

    async def shout(message: HookMessage) -> str:
        seen.append(message)
        return message.text.upper()

    async with open_world(tmp_path, hooks={"message:sending": (shout,)}) as world:
        outcome = await world.ask("say hello", source=telegram(), run="k1")
        assert (outcome.text, outcome.silent) == ("HELLO", False)
        assert seen == [HookMessage(session=outcome.session, text="hello", source=telegram(), run_id="k1")]
        assert [event["data"]["text"] for event in await world.events("done")] == ["HELLO"]


@pytest.mark.parametrize("verdict", [Drop("not this"), " "])
async def test_a_reply_that_a_hook_drops_is_silent_and_was_never_sent(
    tmp_path: Path, autojump_clock: MockClock, verdict: object
) -> None:
    sent: list[HookMessage] = []

    async def listen(message: HookMessage) -> None:
        sent.append(message)

    async def judge(_message: HookMessage) -> object:
        return verdict

    async with open_world(tmp_path, hooks={"message:sending": (judge,), "message:sent": (listen,)}) as world:
        outcome = await world.ask("say MEDIA:secret.txt")
        assert (outcome.status, outcome.text.strip(), outcome.media, outcome.silent) == ("ok", "", [], True)
        await wait_all_tasks_blocked()
        assert sent == []


async def test_parts_pass_the_hooks_too_and_one_that_is_dropped_does_not_come_back_with_the_rest(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    sent: list[str] = []

    async def judge(message: HookMessage) -> Drop | None:
        return Drop() if "look" in message.text else None

    async def listen(message: HookMessage) -> None:
        sent.append(message.text)

    async with open_world(tmp_path, hooks={"message:sending": (judge,), "message:sent": (listen,)}) as world:
        await world.ask("/verbose on")
        await world.events()
        await world.begin("mute", blocks="message_end")
        await talk(world.launcher.running("mute"))
        assert [each for each in await told(world) if not isinstance(each, str)] == [
            ("tool", "[exec ls]"),
            {"done": "Found it."},
        ]
        assert sent == ["[exec ls]", "Found it."]


async def test_whoever_is_told_that_a_reply_was_sent_can_rely_on_its_outcome(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    found: list[tuple[str, bool, str]] = []

    async with open_world(tmp_path, hooks={"message:sent": (lambda _message: None,)}) as world:

        async def look(message: HookMessage) -> None:
            assert message.run_id is not None
            found.append((message.text, world.run(message.run_id).is_live, world.state()))

        world.gateway.intake._hooks.replace({"message:sent": (look,)})
        await world.ask("say hello")
        await world.ask("say NO_REPLY")
        await world.ask("/status")
        await wait_all_tasks_blocked()
        assert found == [("hello", False, "READY")]


async def test_hooks_without_end_hold_a_reply_up_for_their_time_and_the_next_message_not_at_all_once_it_is_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def sleep(_message: HookMessage) -> None:
        await trio.sleep_forever()

    async with open_world(tmp_path, hooks={"message:sending": (sleep,)}) as world:
        assert (await world.ask("say one")).text == "one"
        assert trio.current_time() == 5
        assert len(world.warnings) == 1
    began = trio.current_time()
    async with open_world(tmp_path, hooks={"message:sent": (sleep,)}) as world:
        for text in ("one", "two"):
            assert (await world.ask(f"say {text}")).text == text
        assert trio.current_time() < began + 1


async def test_an_abort_does_not_wait_for_a_hook_that_holds_a_part_up_and_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def sleep(_message: HookMessage) -> None:
        await trio.sleep_forever()

    async with open_world(tmp_path, hooks={"message:sending": (sleep,)}) as world:
        run = await world.begin("hang", blocks="text_end")
        worker = world.launcher.running("hang")
        worker.tell("thinking", partial="Hm.")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await world.call("abort", session="alice")
        assert (await run.wait()).text == "so far"
        assert trio.current_time() == began + 5, "for the reply alone"
        assert world.launcher.stops == []
        assert await world.events("reply") == []
