"""Answers on their way out: told in parts to those who ask for parts, and past the hooks; on a virtual clock."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.hook_types import Drop, HookMessage
from tests.gateway.workers import GatewayWorker
from tests.gateway.world import World, open_world, telegram

CALL = {"id": "t1", "name": "exec", "input_preview": "ls", "state": "COMPLETED"}


def say(worker: GatewayWorker, *events: str) -> None:
    """Text, ``?thoughts``, the ``/start`` and the ``/end`` of a tool."""
    for event in events:
        if event.startswith("/"):
            worker.tell("tool", phase=event[1:], call={**CALL, "state": "RUNNING"} if event == "/start" else CALL)
        else:
            worker.tell("thinking" if event.startswith("?") else "assistant_message", partial=event.removeprefix("?"))


async def talk(worker: GatewayWorker) -> None:
    say(worker, "Let me ", "look.", "/start", "/end", "Found it.")
    await wait_all_tasks_blocked()
    worker.finish("Found it.")
    await wait_all_tasks_blocked()


async def told(world: World, *types: str) -> list[Any]:
    """What went out, in short: pieces of text, parts, tools, outcomes."""
    short: list[Any] = []
    for event in await world.events(*(types or ("text_chunk", "reply", "tool:start", "tool:end", "done"))):
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


async def muted(world: World, *commands: str, **params: Any) -> GatewayWorker:
    """The worker of a turn that says nothing by itself, after these commands."""
    for command in commands:
        await world.ask(command)
    await world.events()
    await world.begin("mute", **params)
    return world.launcher.running("mute")


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_a_part_is_told_after_its_text_and_before_the_tool_that_ended_it_and_the_rest_at_the_end(
    world: World,
) -> None:
    await talk(await muted(world, "/verbose on", blocks="message_end", run="k1"))
    assert await told(world) == [
        *("Let me ", "look.", ("text", "Let me look."), "tool:start", "tool:end", ("tool", "[exec ls]")),
        *("Found it.", {"done": "Found it."}),
    ]
    assert (await world.run("k1").wait()).text == "Found it."


async def test_thoughts_are_parts_where_the_session_shows_them(world: World) -> None:
    worker = await muted(world, "/reasoning on", blocks="text_end", run="k1")
    say(worker, "?Hm.", "One.", "?Well.", "Two.")
    worker.finish("Two.")
    events = await world.events("reply")
    assert {(event["run_id"], event["channel"]) for event in events} == {("k1", "progress")}
    assert [(event["data"]["kind"], event["data"]["text"]) for event in events] == [
        ("reasoning", "Reasoning:\nHm."),
        ("text", "One."),
        ("reasoning", "Reasoning:\nWell."),
    ]


async def test_a_silent_part_is_told_to_nobody(world: World) -> None:
    worker = await muted(world, blocks="text_end")
    say(worker, "NO_REPLY", "/start")
    worker.finish("NO_REPLY")
    assert await told(world) == ["tool:start", {"done": ""}]


async def test_files_are_handed_over_with_the_part_that_names_them(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        profile = await world.gateway.profile_cache.get("main", "default")
        (Path(profile.cwd) / "a.txt").write_text("hello")
        worker = await muted(world, blocks="text_end", run="k1")
        say(worker, "Here:\nMEDIA:a.txt", "?Well.")
        worker.finish("")
        with trio.fail_after(10):
            await world.run("k1").wait()
        [(kind, text, media)] = await told(world, "reply")
        assert (kind, text) == ("text", "Here:")
        assert (media["mime_type"], media["size"], Path(media["path"]).name) == ("text/plain", 5, "a.txt")


async def test_a_message_steered_into_a_turn_that_tells_parts_is_answered_with_the_whole(world: World) -> None:
    first = await world.begin("hang", blocks="text_end")
    second = await world.begin("more", blocks="text_end")
    worker = world.launcher.running("hang")
    worker.consume()
    say(worker, "?And now?")
    worker.finish("well")
    outcomes = [await run.wait() for run in (first, second)]
    assert [(outcome.text, outcome.silent) for outcome in outcomes] == [("", True), ("well", False)]


async def test_an_answer_that_is_begun_again_on_another_worker_has_nothing_of_the_first(world: World) -> None:
    worker = await muted(world, "/verbose on", retry_safe=True, blocks="text_end")
    say(worker, "Lost.")
    await wait_all_tasks_blocked()
    worker.die()
    await world.events()
    again = world.launcher.running("mute")
    assert again is not worker
    say(again, "Found.", "?Well.")
    again.finish("Found.")
    assert await told(world, "reply") == [("text", "Found.")]


@pytest.mark.world(workers=1)
async def test_a_run_of_the_last_life_is_still_told_in_parts(world: World, tmp_path: Path) -> None:
    await world.begin("hang", "bob")
    await world.begin("mute", blocks="message_end")
    async with open_world(tmp_path, store=world.store.after_a_crash()) as after:
        await after.events()
        await talk(after.launcher.running("mute"))
        assert await told(after, "reply") == [("text", "Let me look.")]


# --- hooks ------------------------------------------------------------------------------------------------------------


async def _sleep(_message: HookMessage) -> None:
    await trio.sleep_forever()


async def test_a_hook_changes_what_is_told_and_what_is_handed_over(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[HookMessage] = []

    async def shout(message: HookMessage) -> str:
        seen.append(message)
        return message.text.upper()

    async with open_world(tmp_path, hooks={"message:sending": (shout,)}) as world:
        outcome = await world.ask("say hello", source=telegram(), run="k1")
        assert (outcome.text, outcome.silent) == ("HELLO", False)
        assert seen == [HookMessage(session=outcome.session, text="hello", source=telegram(), run_id="k1")]
        assert await told(world, "done") == [{"done": "HELLO"}]


@pytest.mark.parametrize("verdict", [Drop("not this"), " "])
async def test_a_reply_that_a_hook_drops_is_silent_and_was_never_sent(
    tmp_path: Path, autojump_clock: MockClock, verdict: object
) -> None:
    sent: list[HookMessage] = []

    async def judge(_message: HookMessage) -> object:
        return verdict

    async with open_world(tmp_path, hooks={"message:sending": (judge,), "message:sent": (sent.append,)}) as world:
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
        await talk(await muted(world, "/verbose on", blocks="message_end"))
        assert await told(world, "reply", "done") == [("tool", "[exec ls]"), {"done": "Found it."}]
        assert sent == ["[exec ls]", "Found it."]


async def test_when_a_hook_is_told_that_a_reply_was_sent_its_outcome_is_there(world: World) -> None:
    found: list[tuple[str, bool, str]] = []

    async def look(message: HookMessage) -> None:
        assert message.run_id is not None
        found.append((message.text, world.run(message.run_id).is_live, world.state()))

    world.gateway.intake._hooks.replace({"message:sent": (look,)})
    for text in ("say hello", "say NO_REPLY", "/status"):
        await world.ask(text)
        await wait_all_tasks_blocked()
    assert found == [("hello", False, "READY")]


@pytest.mark.world(hooks={"message:sending": (_sleep,), "message:sent": (_sleep,)})
async def test_hooks_without_end_hold_a_reply_up_for_their_time_and_the_next_message_not_at_all_once_it_is_sent(
    world: World,
) -> None:
    for number, text in enumerate(("one", "two"), 1):
        assert (await world.ask(f"say {text}")).text == text
        assert trio.current_time() == 5 * number


@pytest.mark.world(hooks={"message:sending": (_sleep,)})
async def test_an_abort_does_not_wait_for_a_hook_that_holds_a_part_up_and_loses_nothing(world: World) -> None:
    run = await world.begin("hang", blocks="text_end")
    say(world.launcher.running("hang"), "?Hm.")
    await wait_all_tasks_blocked()
    began = trio.current_time()
    await world.call("abort", session="alice")
    assert (await run.wait()).text == "so far"
    assert trio.current_time() == began + 5, "for the reply alone"
    assert world.launcher.stops == []
    assert await world.events("reply") == []


async def test_of_a_very_long_answer_the_outcome_has_the_beginning_and_the_end(world: World) -> None:
    run = await world.begin("mute")
    world.launcher.running("mute").finish("a" * 5_000_000 + "THE END")
    text = (await run.wait()).text
    assert text.startswith("aaa")
    assert text.endswith("aTHE END")
    assert f"[... {5_000_007 - 4 * 1024 * 1024} characters left out ...]" in text
