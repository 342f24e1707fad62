"""The next life: what an earlier one has left, after a clean stop and after a crash at any moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import RunInterrupted
from gateway.runs.run import RunOutcome
from profiles import ProfilesSettings
from store import Store, StoreSettings, open_store
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import WholeStore, World, open_world, telegram
from wire.units import Seconds


async def test_a_key_stands_for_its_run_across_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello", run="k1")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        again = await world.call("prompt", text="hello", session="alice", run="k1")
        assert (again["text"], again["worker"], world.launcher.prompts) == ("hello", "w1", [])
        assert (await world.call("agent.wait", run_id="k1"))["text"] == "hello"


async def test_runs_that_never_began_are_run_in_the_order_of_their_acceptance(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.begin("hang", run="k0")
        world.launcher.running("hang").refuses_steers = True
        for number, mode in enumerate(("followup", "collect", "collect", "steer"), 1):
            await world.begin(f"say {number}", run=f"k{number}", queue=mode)
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        assert world.recovery is not None
        assert (world.recovery.resumed, world.recovery.interrupted) == (4, 1)
        outcomes = [await world.run(f"k{number}").wait() for number in range(5)]
        assert [outcome.text for outcome in outcomes] == ["", "1", "2", "3", "4"]
        assert world.launcher.prompts == [f"say {number}" for number in range(1, 5)]


async def test_a_run_that_was_in_its_turn_at_the_crash_is_told_as_interrupted_and_never_repeated(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.begin("hang", run="k1")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        bookmark = left.first_seq - 1
        outcome = msgspec.convert(await world.call("agent.wait", run_id="k1"), RunOutcome)
        assert_interrupted(outcome)
        assert outcome.started_at is not None
        frames = await _replayed(world, bookmark)
        assert [(event["type"], event["run_id"]) for event in frames] == [("done", "k1")]
        assert frames[0]["data"]["error"]["code"] == "interrupted"
        again = await world.call("prompt", text="hang", session="alice", run="k1")
        assert (again["status"], world.launcher.prompts) == ("error", [])
        assert (await world.ask("next")).status == "ok"
    async with open_world(tmp_path, store=left.after_a_crash()) as world:
        assert world.recovery is not None
        assert (world.recovery.resumed, world.recovery.interrupted) == (0, 0)


async def test_a_steered_run_was_in_its_turn_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.begin("hang", run="k1")
        await world.begin("left", run="k2")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        assert world.recovery is not None
        assert (world.recovery.resumed, world.recovery.interrupted) == (0, 2)
        assert_interrupted(await world.run("k2").wait())


async def test_a_crash_before_the_start_was_written_means_that_the_run_is_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob")
        await world.begin("hello", run="k1")
        store.hold_commits()
        world.launcher.running("hang").finish()
        await wait_all_tasks_blocked()
        assert "hello" not in world.launcher.prompts
        left = store.after_a_crash()
        store.let_commit()
    async with open_world(tmp_path, store=left) as world:
        assert (await world.run("k1").wait()).text == "hello"


async def test_after_a_crash_the_conversation_goes_on_where_it_was(tmp_path: Path, autojump_clock: MockClock) -> None:
    store, launcher = WholeStore(), GatewayLauncher()
    async with open_world(tmp_path, store=store, launcher=launcher) as world:
        await world.ask("one", agent="ops", role="writer")
        await world.ask("/queue collect")
        await world.ask("/think high")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left, launcher=launcher) as world:
        assert (await world.ask("two")).text == "one|two"
        view = await world.call("sessions.get", session="alice")
        assert [view[name] for name in ("agent", "role", "queue_mode", "thinking", "transcript", "state")] == [
            *("ops", "writer", "collect", "high", "/t/0", "READY")
        ]


async def test_a_message_that_a_channel_sends_again_after_a_restart_under_its_key_is_the_same_run(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.ask("hello", source=telegram(message_id="m1"), run="m1")
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        await world.ask("hello", source=telegram(message_id="m1"), run="m1")
        assert world.launcher.prompts == []


async def test_the_time_of_a_run_begins_anew_in_the_next_life(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob", timeout=0)
        await world.send("hang", run="k1", timeout=10)
        await trio.sleep(8)
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left) as world:
        began = trio.current_time()
        assert (await world.run("k1").wait()).reason == "timeout"
        assert trio.current_time() - began == 10


async def test_runs_that_find_no_place_in_the_next_life_are_told_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob")
        for number in range(4):
            await world.begin(f"say {number}", run=f"k{number}", queue="followup")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left, queue={"cap": 2, "overflow": "new"}) as world:
        with trio.fail_after(60):
            outcomes = [await world.run(f"k{number}").wait() for number in range(4)]
        assert [outcome.status for outcome in outcomes] == ["ok", "ok", "ok", "error"]
        assert outcomes[3].error is not None
        assert outcomes[3].error.code == "saturated"
        world.assert_at_rest()


async def test_a_run_whose_agent_is_no_longer_in_the_settings_ends_with_that_error(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob")
        await world.begin("hello", run="k1", agent="ops")
        left = store.after_a_crash()
    async with open_world(tmp_path, store=left, profiles=ProfilesSettings()) as world:
        outcome = await world.run("k1").wait()
        assert outcome.error is not None
        assert (outcome.error.code, "ops" in outcome.error.message) == ("usage", True)
        world.assert_at_rest()


async def test_damaged_rows_cost_what_they_held_and_nothing_else(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.ask("hello", "carol")
        await world.begin("hang", "bob")
        for key in ("k1", "k2"):
            await world.begin(key, run=key, queue="followup")
        left = store.after_a_crash()
    left.sessions["carol"] = msgspec.structs.replace(left.sessions["carol"], data=b"[")
    damaged = ("uid:1000", "alice", "k1")
    left.runs[damaged] = msgspec.structs.replace(left.runs[damaged], request=b'{"text": 5}')
    async with open_world(tmp_path, store=left) as world:
        assert world.recovery is not None
        assert world.recovery.damaged == ["carol"]
        assert (await world.run("k1").wait()).status == "error"
        assert (await world.run("k2").wait()).text == "k2"


# --- the end of a life ------------------------------------------------------------------------------------------------


async def test_the_end_of_the_gateway_tells_what_was_in_its_turn_and_leaves_the_rest_to_the_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        await world.begin("hang", run="k1")
        await world.begin("left", run="k2")
        await world.begin("later", run="k3", queue="followup")
    states = {run_id: row.state.value for (_, _, run_id), row in store.runs.items()}
    assert states == {"k1": "ended", "k2": "ended", "k3": "accepted"}
    dones = {row.run_id: msgspec.json.decode(row.data) for row in store.rows if row.type == "done"}
    assert {run_id: data["error"]["code"] for run_id, data in dones.items()} == {
        "k1": RunInterrupted.code,
        "k2": RunInterrupted.code,
    }
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        assert world.recovery is not None
        assert (world.recovery.resumed, world.recovery.interrupted) == (1, 0)
        assert (await world.run("k3").wait()).status == "ok"
        assert_interrupted(await world.run("k1").wait())


async def test_a_run_that_waits_for_its_worker_at_the_end_is_left_to_the_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob", run="k1")
        await world.begin("later", run="k2")
    assert {row.run_id: row.state.value for row in store.runs.values()} == {"k1": "ended", "k2": "accepted"}


async def test_once_asked_to_stop_no_further_turn_begins(tmp_path: Path, autojump_clock: MockClock) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store) as world:
        first = await world.begin("hang", run="k1")
        await world.begin("later", run="k2", queue="followup")
        await world.call("shutdown")
        world.launcher.running("hang").finish("in time")
        assert (await first.wait()).text == "in time"
        await wait_all_tasks_blocked()
        assert world.launcher.prompts == ["hang"]
    assert {row.run_id: row.state.value for row in store.runs.values()} == {"k1": "ended", "k2": "accepted"}


async def test_a_drain_lets_turns_end_and_leaves_what_waits_for_a_worker(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The pool refuses who waits for a worker; that is no outcome for a run, its supervisor is going."""
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", "bob", run="k1")
        await world.begin("later", run="k2")
        await world.call("shutdown")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.gateway.pool.drain, 60)
            await wait_all_tasks_blocked()
            world.launcher.running("hang").finish()
    assert {row.run_id: row.state.value for row in store.runs.values()} == {"k1": "ended", "k2": "accepted"}
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        assert (await world.run("k2").wait()).text == "later"


# --- the real store ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _real_store(directory: Path) -> AsyncIterator[Store]:
    troubles: list[str] = []
    settings = StoreSettings(stall=Seconds(60))
    async with open_store(
        directory / "pool.db", settings, on_trouble=lambda kind, _facts: troubles.append(kind)
    ) as store:
        yield store
    assert troubles == []


async def test_a_life_over_the_real_store_goes_on_in_the_next(tmp_path: Path) -> None:
    launcher = GatewayLauncher()
    async with _real_store(tmp_path) as store, open_world(tmp_path, store=store, launcher=launcher) as world:
        await world.ask("one", run="k1", agent="ops")
        await world.begin("hang", run="k2")
        bookmark = world.gateway.bus.head
        for number in (3, 4):
            await world.send(f"say {number}", run=f"k{number}", queue="followup")
    async with _real_store(tmp_path) as store, open_world(tmp_path, store=store, launcher=launcher) as world:
        assert world.recovery is not None
        assert (world.recovery.sessions, world.recovery.resumed, world.recovery.interrupted) == (1, 2, 0)
        outcomes = [await world.run(f"k{number}").wait() for number in range(1, 5)]
        assert [outcome.text for outcome in outcomes] == ["one", "", "3", "4"]
        assert_interrupted(outcomes[1])
        again = await world.call("prompt", text="one", session="alice", agent="ops", run="k1")
        assert again["text"] == "one"
        assert (await world.ask("two")).text == "one|two"
        events = [event for event in await _replayed(world, bookmark) if event["type"] == "done"]
        assert [event["run_id"] for event in events][:3] == ["k2", "k3", "k4"]
        seqs = [event["seq"] for event in await _replayed(world, 0)]
        assert seqs == sorted(set(seqs))


def assert_interrupted(outcome: RunOutcome) -> None:
    assert (outcome.status, outcome.reason) == ("error", "interrupted")
    assert outcome.error is not None
    assert outcome.error.code == "interrupted"


async def _replayed(world: World, since: int) -> list[dict[str, Any]]:
    """Everything after a bookmark, as a subscriber gets it."""
    await wait_all_tasks_blocked()
    cursor = world.gateway.bus.open_cursor(since=since)
    events: list[dict[str, Any]] = []
    while cursor.position < world.gateway.bus.head:
        events += msgspec.json.decode(b"[" + (await cursor.read()).body + b"]")
    return events


async def test_until_recovered_runs_have_their_places_others_can_look_and_what_wants_a_place_waits(
    world: World,
) -> None:
    world.methods._resumed = placed = trio.Event()
    outcomes: list[RunOutcome] = []

    async def ask() -> None:
        outcomes.append(await world.ask("say hello"))

    world.nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    assert (await world.call("status"))["gateway"]["runs"] == 0
    assert await world.call("sessions.list") == []
    placed.set()
    await wait_all_tasks_blocked()
    assert [outcome.text for outcome in outcomes] == ["hello"]
