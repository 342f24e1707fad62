"""A run has its time: as it waits for its lane or a worker, in its turn, while a person is asked; a virtual clock."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gateway.runs.run import RunOutcome
from profiles import AgentSettings, ProfilesSettings
from profiles.settings import AgentDefaults
from tests.gateway.world import World, open_world
from wire.units import Seconds


def assert_ended_by_time(outcome: RunOutcome, code: str = "request_timeout") -> None:
    assert (outcome.status, outcome.reason, outcome.stop_reason) == ("error", "timeout", "timeout")
    assert outcome.error is not None
    assert outcome.error.code == code


async def test_a_run_whose_time_ends_in_its_turn_is_aborted_politely(world: World) -> None:
    outcome = await world.ask("hang", timeout=5)
    assert_ended_by_time(outcome)
    assert (trio.current_time(), outcome.text, outcome.worker) == (5, "so far", "w1")
    assert world.launcher.stops == []
    world.assert_at_rest()
    assert (await world.ask("next")).status == "ok"


async def test_a_worker_that_does_not_heed_the_abort_is_killed(world: World) -> None:
    outcome = await world.ask("stubborn", timeout=5)
    assert_ended_by_time(outcome)
    grace = world.launcher.settings.abort_grace
    assert 5 + grace <= trio.current_time() <= 5 + 2 * grace
    assert outcome.text == ""
    assert (await world.ask("next")).worker == "w2"
    assert world.launcher.stops == ["w1"]


async def test_a_worker_that_says_nothing_at_all_is_no_longer_waited_for(world: World) -> None:
    assert_ended_by_time(await world.ask("deaf", timeout=5))
    world.assert_at_rest()
    assert (await world.ask("next")).status == "ok"


async def test_time_passes_while_a_run_waits_behind_another(world: World) -> None:
    await world.begin("hang")
    outcome = await world.ask("later", queue="followup", timeout=5)
    assert_ended_by_time(outcome)
    assert (trio.current_time(), outcome.started_at, outcome.worker) == (5, None, None)
    assert outcome.error is not None
    assert "was busy" in outcome.error.message
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest()


@pytest.mark.world(workers=1)
async def test_time_passes_while_a_run_waits_for_a_worker(world: World) -> None:
    await world.begin("hang", "bob")
    outcome = await world.ask("later", timeout=5)
    assert_ended_by_time(outcome, "acquire_timeout")
    assert (trio.current_time(), outcome.started_at) == (5, None)
    assert world.state() == "READY"


async def test_what_was_spent_in_the_lane_is_gone_for_the_turn(world: World) -> None:
    await world.begin("hang 1", timeout=4)
    assert_ended_by_time(await world.ask("hang 2", queue="followup", timeout=6))
    assert trio.current_time() == 6


@pytest.mark.parametrize("limit", [0, None])
async def test_without_a_limit_a_run_waits_for_its_worker_as_long_as_it_takes(
    tmp_path: Path, autojump_clock: MockClock, limit: float | None
) -> None:
    unlimited = ProfilesSettings(agents={"quick": AgentSettings(timeout_seconds=Seconds(0))})
    async with open_world(tmp_path, workers=1, profiles=unlimited) as world:
        await world.begin("hang", "bob", timeout=0)
        run = await world.send("later", agent="quick", timeout=limit)
        await trio.sleep(500)  # less than a turn may be silent
        assert run.is_live
        world.launcher.running("hang").finish()
        assert (await run.wait()).text == "later"


async def test_a_run_that_names_no_time_has_its_agents(tmp_path: Path, autojump_clock: MockClock) -> None:
    profiles = ProfilesSettings(
        agents={"quick": AgentSettings(timeout_seconds=Seconds(3))},
        agent_defaults=AgentDefaults(timeout_seconds=Seconds(20)),
    )
    async with open_world(tmp_path, profiles=profiles) as world:
        assert_ended_by_time(await world.ask("hang", "alice", agent="quick"))
        assert trio.current_time() == 3
        assert_ended_by_time(await world.ask("hang", "bob"))
        assert trio.current_time() == 23


@pytest.mark.world(queue={"mode": "collect", "debounce": 0.5})
async def test_merged_runs_have_the_time_of_the_one_that_has_most(world: World) -> None:
    world.launcher.slow = True
    await world.begin("first")
    short = await world.send("short", timeout=5)
    long = await world.send("long", timeout=10)
    world.launcher.running("first").finish()
    await trio.sleep(6)
    assert short.is_live
    assert "[2 of 2]\nlong" in world.launcher.prompts[1]
    assert_ended_by_time(await long.wait())
    assert_ended_by_time(await short.wait())
    assert trio.current_time() == 10


# --- people -----------------------------------------------------------------------------------------------------------


async def test_the_clock_of_a_run_stands_still_while_a_person_is_asked(world: World) -> None:
    run = await world.begin("hang", timeout=10)
    await trio.sleep(4)
    worker = world.launcher.running("hang")
    worker.tell("permission_required", call={"id": "c1", "name": "bash"})
    await trio.sleep(1000)
    assert run.is_live
    assert world.state() == "PAUSED"
    worker.tell("permission_decided", call_id="c1", decision="allow")
    await trio.sleep(5)
    assert world.state() == "WORKING"
    assert run.is_live
    assert_ended_by_time(await run.wait())
    assert trio.current_time() == 1010


async def test_every_question_stops_the_clock_anew(world: World) -> None:
    run = await world.begin("hang", timeout=10)
    worker = world.launcher.running("hang")
    for call in ("c1", "c2"):
        worker.tell("permission_required", call={"id": call, "name": "bash"})
        await trio.sleep(50)
        worker.tell("permission_decided", call_id=call, decision="allow")
        await trio.sleep(4)
    assert run.is_live
    assert_ended_by_time(await run.wait())
    assert trio.current_time() == 110


async def test_an_answer_to_one_of_two_questions_does_not_start_the_clock(world: World) -> None:
    run = await world.begin("hang", timeout=10)
    worker = world.launcher.running("hang")
    for call in ("c1", "c2"):
        worker.tell("permission_required", call={"id": call, "name": "bash"})
    await wait_all_tasks_blocked()
    worker.tell("permission_decided", call_id="c1", decision="deny")
    await trio.sleep(100)
    assert run.is_live
    worker.tell("permission_decided", call_id="c2", decision="deny")
    assert_ended_by_time(await run.wait())
    assert trio.current_time() == 110


async def test_a_turn_that_awaits_a_person_can_be_aborted(world: World) -> None:
    run = await world.begin("ask", timeout=10)
    await trio.sleep(100)
    await world.call("abort", session="alice")
    assert (await run.wait()).reason == "interrupted"
    world.assert_at_rest()
    assert world.gateway.pending_permissions.count == 0


async def test_a_worker_that_dies_while_a_person_is_asked_ends_the_run(world: World) -> None:
    run = await world.begin("ask", timeout=10)
    world.launcher.running("ask").die()
    outcome = await run.wait()
    assert outcome.error is not None
    assert outcome.error.code == "worker_exited"
    world.assert_at_rest()
    assert world.gateway.pending_permissions.count == 0
    assert_ended_by_time(await world.ask("hang", timeout=10))


async def test_the_clock_of_the_next_turn_runs_again(world: World) -> None:
    run = await world.begin("ask", timeout=10)
    await world.call("decide", call_id="c1", decision="allow")
    assert (await run.wait()).text == "allow"
    assert_ended_by_time(await world.ask("hang", timeout=10))
    assert trio.current_time() == 10


async def test_of_the_reasons_to_end_a_turn_the_first_counts(world: World) -> None:
    run = await world.begin("stubborn", timeout=10)
    await trio.sleep(9.5)
    await world.call("abort", session="alice")
    assert (await run.wait()).reason == "interrupted"
    assert trio.current_time() > 10


async def test_a_turn_that_ends_by_itself_before_it_heeds_the_abort_has_its_result(world: World) -> None:
    run = await world.begin("stubborn")
    await world.call("abort", session="alice")
    world.launcher.running("stubborn").finish("done all the same")
    outcome = await run.wait()
    assert (outcome.status, outcome.text) == ("ok", "done all the same")


# --- aborts -----------------------------------------------------------------------------------------------------------


async def test_abort_ends_the_running_turn_and_nothing_where_none_runs(world: World) -> None:
    run = await world.begin("hang")
    later = await world.send("later", queue="followup")
    assert await world.call("abort", session="alice") == {"session": "alice", "aborted": True}
    outcome = await run.wait()
    assert outcome.error is not None
    assert (outcome.error.code, outcome.reason, outcome.text) == ("aborted", "interrupted", "so far")
    assert (await later.wait()).text == "later"
    assert await world.call("abort", session="alice") == {"session": "alice", "aborted": False}


async def test_abort_of_a_run_takes_it_out_of_its_lane_or_ends_its_turn(world: World) -> None:
    await world.begin("hang", run="k1")
    for key in ("k2", "k3"):
        await world.send(key, run=key, queue="followup")
    assert (await world.call("abort", session="alice", run="k2"))["aborted"] is True
    assert (await world.run("k2").wait()).reason == "interrupted"
    assert (await world.call("abort", session="alice", run="k1"))["aborted"] is True
    assert (await world.run("k1").wait()).reason == "interrupted"
    assert (await world.run("k3").wait()).text == "k3"
    assert (await world.call("abort", session="alice", run="k3"))["aborted"] is False
    assert (await world.call("abort", session="alice", run="never"))["aborted"] is False


@pytest.mark.world(workers=1)
async def test_abort_before_a_worker_was_there_ends_the_run_at_once(world: World) -> None:
    await world.begin("hang", "bob")
    run = await world.begin("later")
    await world.call("abort", session="alice")
    outcome = await run.wait()
    assert outcome.error is not None
    assert "before its turn began" in outcome.error.message
    assert trio.current_time() == 0
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == ["hang"]


async def test_abort_with_clear_refuses_what_waits_too(world: World) -> None:
    runs = [await world.begin(text, queue="followup") for text in ("hang", "b", "c")]
    assert (await world.call("abort", session="alice", clear=True))["aborted"] is True
    outcomes = [await run.wait() for run in runs]
    assert [outcome.reason for outcome in outcomes] == ["interrupted"] * 3
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest()


async def test_a_turn_that_is_aborted_because_nothing_happens_says_so(world: World) -> None:
    run = await world.begin("hang", timeout=0)
    outcome = await run.wait()
    assert outcome.error is not None
    assert (outcome.reason, outcome.error.code) == ("error", "worker_stalled")
    assert "silent for 600 s in the turn (pool.turn_stall), which was aborted" in outcome.error.message
    assert outcome.text == "so far"
    done = (await world.events("done"))[-1]
    assert done["data"]["error"]["code"] == "worker_stalled"
    assert (await world.call("status"))["counters"]["stalled"] == 1
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()
