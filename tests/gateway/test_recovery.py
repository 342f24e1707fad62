"""The next life: what an earlier one has left, after a clean stop and after a crash at any moment."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from errors import RunInterrupted
from gateway.runs.run import RunOutcome
from profiles import ProfilesSettings
from tests.gateway.workers import GatewayLauncher
from tests.gateway.world import WholeStore, World, error_of, open_world


def assert_recovered(world: World, *, resumed: int, interrupted: int) -> None:
    assert world.recovery is not None
    assert (world.recovery.resumed, world.recovery.interrupted) == (resumed, interrupted)


async def assert_interrupted(world: World, run_id: str) -> None:
    outcome = await world.run(run_id).wait()
    assert (outcome.status, outcome.reason, error_of(outcome).code) == ("error", "interrupted", "interrupted")
    assert outcome.started_at is not None


async def _replayed(world: World, since: int) -> list[dict[str, Any]]:
    """Everything after a bookmark, as a subscriber gets it."""
    await wait_all_tasks_blocked()
    cursor = world.gateway.bus.open_cursor(since=since)
    events: list[dict[str, Any]] = []
    while cursor.position < world.gateway.bus.head:
        events += msgspec.json.decode(b"[" + (await cursor.read()).body + b"]")
    return events


# --- after a crash: the first life goes on beside the second and is not asked again -----------------------------------


async def test_runs_that_never_began_are_run_in_the_order_of_their_acceptance(world: World, tmp_path: Path) -> None:
    worker = await world.hanging(run="k0")
    worker.refuses_steers = True
    for number, mode in enumerate(("followup", "collect", "collect", "steer"), 1):
        await world.begin(f"say {number}", run=f"k{number}", queue=mode)
    async with open_world(tmp_path, store=world.store.after_a_crash()) as after:
        assert_recovered(after, resumed=4, interrupted=1)
        outcomes = [await after.run(f"k{number}").wait() for number in range(5)]
        assert [outcome.text for outcome in outcomes] == ["", "1", "2", "3", "4"]
        assert after.launcher.prompts == [f"say {number}" for number in range(1, 5)]


async def test_runs_that_were_in_their_turn_at_the_crash_are_told_as_interrupted_and_never_repeated(
    world: World, tmp_path: Path
) -> None:
    await world.begin("hang", run="k1")
    await world.begin("left", run="steered")
    left = world.store.after_a_crash()
    async with open_world(tmp_path, store=left) as after:
        assert_recovered(after, resumed=0, interrupted=2)
        dones = await _replayed(after, left.first_seq - 1)
        assert {(event["type"], event["run_id"], event["data"]["error"]["code"]) for event in dones} == {
            ("done", "k1", "interrupted"),
            ("done", "steered", "interrupted"),
        }
        for key in ("k1", "steered"):
            await assert_interrupted(after, key)
        again = await after.call("prompt", text="hang", session="alice", run="k1")
        assert (again["status"], after.launcher.prompts) == ("error", [])
        assert (await after.ask("next")).status == "ok"
    async with open_world(tmp_path, store=left.after_a_crash()) as after:
        assert_recovered(after, resumed=0, interrupted=0)


@pytest.mark.world(workers=1)
async def test_a_crash_before_the_start_was_written_means_that_the_run_is_run(world: World, tmp_path: Path) -> None:
    await world.begin("hang", "bob")
    await world.begin("hello", run="k1")
    world.store.hold_commits()
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert "hello" not in world.launcher.prompts
    left = world.store.after_a_crash()
    world.store.let_commit()
    async with open_world(tmp_path, store=left) as after:
        assert (await after.run("k1").wait()).text == "hello"


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


@pytest.mark.world(workers=1)
async def test_the_time_of_a_run_begins_again_in_the_next_life(world: World, tmp_path: Path) -> None:
    await world.begin("hang", "bob", timeout=0)
    await world.send("hang", run="k1", timeout=10)
    await trio.sleep(8)
    async with open_world(tmp_path, store=world.store.after_a_crash()) as after:
        began = trio.current_time()
        assert (await after.run("k1").wait()).reason == "timeout"
        assert trio.current_time() - began == 10


@pytest.mark.world(workers=1)
async def test_runs_that_find_no_place_in_the_next_life_are_told_so(world: World, tmp_path: Path) -> None:
    await world.begin("hang", "bob")
    for number in range(4):
        await world.begin(f"say {number}", run=f"k{number}", queue="followup")
    limits = {"cap": 2, "overflow": "new"}
    async with open_world(tmp_path, store=world.store.after_a_crash(), queue=limits) as after:
        with trio.fail_after(60):
            outcomes = [await after.run(f"k{number}").wait() for number in range(4)]
        codes = [outcome.error.code if outcome.error else "" for outcome in outcomes]
        assert codes == ["", "", "", "saturated"]
        after.assert_at_rest()


@pytest.mark.world(workers=1)
async def test_what_the_settings_no_longer_name_and_damaged_rows_cost_what_they_held_and_nothing_else(
    world: World, tmp_path: Path
) -> None:
    await world.ask("hello", "carol")
    await world.begin("hang", "bob")
    for key in ("k1", "k2"):
        await world.begin(key, run=key, queue="followup")
    await world.begin("hello", "dora", run="k3", agent="ops")
    left = world.store.after_a_crash()
    left.sessions["carol"] = msgspec.structs.replace(left.sessions["carol"], data=b"[")
    damaged = ("uid:1000", "alice", "k1")
    left.runs[damaged] = msgspec.structs.replace(left.runs[damaged], request=b'{"text": 5}')
    async with open_world(tmp_path, store=left, profiles=ProfilesSettings()) as after:
        assert after.recovery is not None
        assert after.recovery.damaged == ["carol"]
        assert (await after.run("k1").wait()).status == "error"
        assert (await after.run("k2").wait()).text == "k2"
        outcome = await after.run("k3").wait()
        assert (error_of(outcome).code, "ops" in error_of(outcome).message) == ("usage", True)
        after.assert_at_rest("dora")


# --- the end of a life ------------------------------------------------------------------------------------------------


async def test_the_end_of_the_gateway_tells_what_was_in_its_turn_and_leaves_the_rest_to_the_next_life(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        await world.begin("hang", run="k1")
        await world.begin("left", run="k2")
        await world.begin("later", run="k3", queue="followup")
        await world.begin("say bob", "bob", run="k4")
    states = {run_id: row.state.value for (_, _, run_id), row in store.runs.items()}
    assert states == {"k1": "ended", "k2": "ended", "k3": "accepted", "k4": "accepted"}
    dones = {row.run_id: msgspec.json.decode(row.data)["error"]["code"] for row in store.rows if row.type == "done"}
    assert dones == {"k1": RunInterrupted.code, "k2": RunInterrupted.code}
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        assert_recovered(world, resumed=2, interrupted=0)
        assert (await world.run("k3").wait()).status == "ok"
        assert (await world.run("k4").wait()).text == "bob"
        await assert_interrupted(world, "k1")


async def test_once_asked_to_stop_no_further_turn_begins_and_a_drain_lets_turns_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The pool refuses those that wait for a worker; that is no outcome for a run, its supervisor is going."""
    store = WholeStore()
    async with open_world(tmp_path, store=store, workers=1) as world:
        first = await world.begin("hang", "bob", run="k1")
        await world.begin("later", "bob", run="k2", queue="followup")
        await world.begin("say later", run="k3")
        await world.call("shutdown")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.gateway.pool.drain, 60)
            await wait_all_tasks_blocked()
            world.launcher.running("hang").finish("in time")
        assert (await first.wait()).text == "in time"
        assert world.launcher.prompts == ["hang"]
    states = {row.run_id: row.state.value for row in store.runs.values()}
    assert states == {"k1": "ended", "k2": "accepted", "k3": "accepted"}
    async with open_world(tmp_path, store=store.after_a_stop()) as world:
        assert (await world.run("k3").wait()).text == "later"


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
