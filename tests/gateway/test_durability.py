"""What is on the disk before anybody acts upon it: acceptance, start and outcome, with a store that can be held up."""

from pathlib import Path
from typing import Any

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.gateway.callers import RecordingCaller
from tests.gateway.world import WholeStore, World, open_world, telegram


class _Answers:
    """What requests in the background are answered, in the order of the answers."""

    def __init__(self, world: World) -> None:
        self.given: list[str] = []
        self._world = world

    async def ask(self, name: str, method: str, **params: Any) -> None:
        """Let the request go as far as it comes by itself."""

        async def wait() -> None:
            await self._world.call(method, RecordingCaller(self._world.nursery), **params)
            self.given.append(name)

        self._world.nursery.start_soon(wait)
        await wait_all_tasks_blocked()


async def test_nobody_hears_of_a_run_by_its_key_or_by_its_twin_before_it_is_on_the_disk(world: World) -> None:
    store = world.store
    store.hold_commits()
    answers = _Answers(world)
    message = {"text": "hello", "source": telegram(message_id="m1")}
    await answers.ask("first", "agent", **message, run="k1")
    await answers.ask("same key", "agent", **message, run="k1")
    await answers.ask("same message", "agent", **message, run="k2")
    await answers.ask("command", "agent", text="/status", session="alice")
    assert (answers.given, store.states()) == ([], {})
    store.let_commit()
    await wait_all_tasks_blocked()
    assert sorted(answers.given) == ["command", "first", "same key", "same message"]
    assert world.launcher.prompts == ["hello"]


async def test_whatever_reaches_a_worker_was_started_on_the_disk(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    seen: list[dict[str, str]] = []
    async with open_world(tmp_path, store=store, queue={"mode": "collect", "debounce": 0.1}) as world:
        prompts = world.launcher.prompts

        class Watched(list[str]):
            def append(self, text: str) -> None:
                seen.append(store.states())
                super().append(text)

        world.launcher.prompts = Watched(prompts)
        await world.begin("hang", run="k1")
        for key in ("k2", "k3"):
            await world.send(key, run=key)
        world.launcher.running("hang").finish()
        await world.run("k3").wait()
    assert [set(states) for states in seen] == [{"k1"}, {"k1", "k2", "k3"}]
    assert seen[0]["k1"] == "started"
    assert (seen[1]["k2"], seen[1]["k3"]) == ("started", "started")


async def test_a_steer_was_started_on_the_disk_before_the_worker_is_given_it(world: World) -> None:
    store = world.store
    await world.begin("hang", run="k1")
    worker = world.launcher.running("hang")
    store.hold_commits()
    answers = _Answers(world)
    await answers.ask("steer", "agent", text="left", session="alice", run="k2")
    assert (worker.steers, answers.given) == ([], [])
    assert store.runs["uid:1000", "alice", "k2"].state == "started"
    store.let_commit()
    await wait_all_tasks_blocked()
    assert (worker.steers, answers.given) == (["left"], ["steer"])


async def test_an_outcome_is_on_the_disk_before_anybody_is_told(world: World) -> None:
    store = world.store
    await world.begin("hang", run="k1")
    answers = _Answers(world)
    await answers.ask("wait", "agent.wait", run_id="k1")
    await answers.ask("prompt", "prompt", text="hang", session="alice", run="k1")
    store.hold_commits()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert (answers.given, store.states()) == ([], {"k1": "started"})
    store.let_commit()
    await wait_all_tasks_blocked()
    assert sorted(answers.given) == ["prompt", "wait"]
    assert store.states() == {"k1": "ended"}


async def test_the_next_run_of_a_session_begins_without_waiting_for_the_disk(world: World) -> None:
    """Its own start must be durable, and that comes after the end of the one before."""
    store = world.store
    await world.begin("hang", run="k1")
    await world.begin("next", run="k2", queue="followup")
    store.hold_commits()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert store.runs["uid:1000", "alice", "k2"].state == "started"
    assert world.launcher.prompts == ["hang"]
    store.let_commit()
    assert (await world.run("k2").wait()).text == "hang|next"


async def test_a_run_whose_start_waits_for_the_disk_can_be_aborted(world: World) -> None:
    await world.hanging(run="k1")
    await world.begin("next", run="k2", queue="followup")
    world.store.hold_commits()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert (await world.call("abort", session="alice", run="k2"))["aborted"] is True
    world.store.let_commit()
    assert (await world.run("k2").wait()).reason == "interrupted"
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest()


async def test_a_run_whose_start_waits_for_the_disk_at_the_end_is_interrupted_and_never_prompted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello", run="k1")
        store.hold_commits()
        answers = _Answers(world)
        await answers.ask("prompt", "prompt", text="next", session="alice", run="k2")
        assert store.runs["uid:1000", "alice", "k2"].state == "started"
    outcome = msgspec.json.decode(store.runs["uid:1000", "alice", "k2"].outcome or b"")
    assert (outcome["error"]["code"], answers.given, world.launcher.prompts) == ("interrupted", [], ["hello"])


async def test_with_a_disk_that_refuses_everything_goes_on_in_memory(world: World) -> None:
    store = world.store
    store.degrade(now=True)
    outcome = await world.ask("hello", run="k1")
    assert (outcome.text, store.states()) == ("hello", {})
    assert (await world.call("status"))["gateway"]["store"]["degraded"] is True


async def test_a_worker_is_soon_read_no_further_while_too_much_waits_for_the_disk(world: World) -> None:
    store = world.store
    run = await world.begin("hang", run="k1")
    store.has_room = trio.Event()
    worker = world.launcher.running("hang")
    for _ in range(8):
        worker.tell("assistant_message", partial="on")
        await wait_all_tasks_blocked()
    read = _texts(await world.events("text_chunk"))
    assert read == ["well ", *["on"] * (len(read) - 1)]
    worker.tell("assistant_message", partial="late")
    await wait_all_tasks_blocked()
    assert await world.events("text_chunk") == []
    store.has_room.set()
    worker.finish()
    await run.wait()
    assert _texts(await world.events("text_chunk")) == [*["on"] * (9 - len(read)), "late"]


async def test_sessions_and_their_transcripts_are_kept_with_the_steps_of_their_runs(world: World) -> None:
    store = world.store
    await world.begin("hang", source=telegram(), run="k1")
    [row] = store.written[0].values()
    assert (row.key, row.transcript) == ("agent:main:main:main", "/t/0")
    assert b'"channel":"telegram"' in row.data
    assert b'"last_run":"k1"' in row.data


async def test_runs_that_give_way_to_new_ones_leave_the_store_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, runs=2) as world:
        for key in ("k1", "k2", "k3"):
            await world.ask("hello", run=key)
        assert [run_id for _, _, run_id in store.runs] == ["k2", "k3"]
    left = store.after_a_stop()
    async with open_world(tmp_path, store=left, runs=1):
        assert [run_id for _, _, run_id in left.runs] == ["k3"]


def _texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["delta"] for event in events]
