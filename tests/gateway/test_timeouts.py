"""A run has its time: as it waits for its lane or a worker, in its turn, while a person is asked; and aborts."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gateway.runs.run import RunOutcome
from pool import Lease
from profiles import AgentSettings, ProfilesSettings
from profiles.settings import AgentDefaults
from tests.gateway.world import World, error_of
from wire.units import Seconds

QUICK = AgentSettings(timeout_seconds=Seconds(3))
UNLIMITED = ProfilesSettings(agents={"quick": AgentSettings(timeout_seconds=Seconds(0))})


def assert_ended_by_time(outcome: RunOutcome, at: float | None = None, code: str = "request_timeout") -> None:
    assert (outcome.status, outcome.reason, outcome.stop_reason) == ("error", "timeout", "timeout")
    assert error_of(outcome).code == code
    assert at in {None, trio.current_time()}


@pytest.mark.parametrize(
    ("text", "said", "stops"), [("hang", "so far", []), ("stubborn", "", ["w1"]), ("deaf", "", ["w1"])]
)
async def test_a_run_whose_time_ends_in_its_turn_is_aborted_and_a_worker_that_does_not_heed_it_is_killed(
    world: World, text: str, said: str, stops: list[str]
) -> None:
    outcome = await world.ask(text, timeout=5)
    assert_ended_by_time(outcome)
    assert (outcome.text, outcome.worker) == (said, "w1")
    assert 5 <= trio.current_time() <= 5 + (2 * world.launcher.settings.abort_grace if stops else 0)
    world.assert_at_rest()
    assert (await world.ask("next")).worker == ("w2" if stops else "w1")
    assert world.launcher.stops == stops


@pytest.mark.world(workers=1)
@pytest.mark.parametrize(("session", "code"), [("bob", "request_timeout"), ("alice", "acquire_timeout")])
async def test_time_passes_while_a_run_waits_behind_another_or_for_a_worker(
    world: World, session: str, code: str
) -> None:
    await world.begin("hang", "bob")
    outcome = await world.ask("later", session, queue="followup", timeout=5)
    assert_ended_by_time(outcome, 5, code)
    assert (outcome.started_at, outcome.worker) == (None, None)
    assert code == "acquire_timeout" or "was busy" in error_of(outcome).message
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest(session)


async def test_what_was_spent_in_the_lane_is_gone_for_the_turn(world: World) -> None:
    await world.begin("hang 1", timeout=4)
    assert_ended_by_time(await world.ask("hang 2", queue="followup", timeout=6), 6)


@pytest.mark.world(workers=1, profiles=UNLIMITED)
@pytest.mark.parametrize("limit", [0, None])
async def test_without_a_limit_a_run_waits_for_its_worker_as_long_as_it_takes(
    world: World, limit: float | None
) -> None:
    await world.begin("hang", "bob", timeout=0)
    run = await world.send("later", agent="quick", timeout=limit)
    await trio.sleep(500)  # less than a turn may be silent
    assert run.is_live
    world.launcher.running("hang").finish()
    assert (await run.wait()).text == "later"


@pytest.mark.world(
    profiles=ProfilesSettings(agents={"quick": QUICK}, agent_defaults=AgentDefaults(timeout_seconds=Seconds(20)))
)
async def test_a_run_that_names_no_time_has_its_agents(world: World) -> None:
    assert_ended_by_time(await world.ask("hang", "alice", agent="quick"), 3)
    assert_ended_by_time(await world.ask("hang", "bob"), 23)


@pytest.mark.world(queue={"mode": "collect", "debounce": 0.5})
async def test_merged_runs_have_the_time_of_the_one_that_has_most(world: World) -> None:
    world.launcher.slow = True
    await world.begin("first")
    short = await world.send("short", timeout=5)
    long = await world.send("long", timeout=10)
    world.launcher.running("first").finish()
    await trio.sleep(6)
    assert short.is_live
    for run in (long, short):
        assert_ended_by_time(await run.wait(), 10)


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "end"),
    [
        ("4 ask:c1 1000 c1 5", 1010),
        ("ask:c1 50 c1 4 ask:c2 50 c2 4", 110),
        ("ask:c1 ask:c2 1 c1 99 c2", 110),
    ],
    ids=["one question", "every question", "an answer to one of two"],
)
async def test_the_clock_of_a_run_stands_still_while_a_person_is_asked(world: World, story: str, end: int) -> None:
    run = await world.begin("hang", timeout=10)
    worker = world.launcher.running("hang")
    asked = set[str]()
    for step in story.split():
        if step.isdigit():
            await trio.sleep(int(step))
            assert run.is_live
            assert world.state() == ("PAUSED" if asked else "WORKING")
        elif step.startswith("ask:"):
            asked.add(step[4:])
            worker.tell("permission_required", call={"id": step[4:], "name": "bash"})
        else:
            asked.remove(step)
            worker.tell("permission_decided", call_id=step, decision="allow")
    assert_ended_by_time(await run.wait(), end)


async def test_the_clock_of_the_next_turn_runs_again(world: World) -> None:
    run = await world.begin("ask", timeout=10)
    await world.call("decide", call_id="c1", decision="allow")
    assert (await run.wait()).text == "allow"
    assert_ended_by_time(await world.ask("hang", timeout=10), 10)


# --- aborts -----------------------------------------------------------------------------------------------------------


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


async def test_abort_ends_the_running_turn_or_one_run_and_nothing_where_none_runs(world: World) -> None:
    run = await world.begin("hang")
    for key in ("k2", "k3"):
        await world.send(key, run=key, queue="followup")
    assert (await world.call("abort", session="alice", run="k2"))["aborted"] is True
    assert (await world.run("k2").wait()).reason == "interrupted"
    assert await world.call("abort", session="alice") == {"session": "alice", "aborted": True}
    outcome = await run.wait()
    assert (error_of(outcome).code, outcome.reason, outcome.text) == ("aborted", "interrupted", "so far")
    assert (await world.run("k3").wait()).text == "k3"
    for named in ({}, {"run": "k3"}, {"run": "never"}):
        assert await world.call("abort", session="alice", **named) == {"session": "alice", "aborted": False}


@pytest.mark.world(workers=1)
async def test_abort_before_a_worker_was_there_ends_the_run_at_once(world: World) -> None:
    await world.begin("hang", "bob")
    run = await world.begin("later")
    await world.call("abort", session="alice")
    outcome = await run.wait()
    assert "before its turn began" in error_of(outcome).message
    assert trio.current_time() == 0
    world.launcher.running("hang").finish()
    await wait_all_tasks_blocked()
    assert world.launcher.prompts == ["hang"]


@pytest.mark.parametrize("is_timed", [False, True])
async def test_a_turn_is_ended_while_its_worker_does_not_read_what_came_before(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_timed: bool
) -> None:
    async def wait(_lease: Lease) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Lease, "has_room", False)
    monkeypatch.setattr(Lease, "wait_room", wait)
    run = await world.begin("hello", timeout=5)
    if not is_timed:
        await world.call("abort", session="alice")
    assert (await run.wait()).reason == ("timeout" if is_timed else "interrupted")
    assert (trio.current_time(), world.launcher.prompts) == (5 if is_timed else 0, [])
    world.assert_at_rest()


async def test_abort_with_clear_refuses_what_waits_too(world: World) -> None:
    runs = [await world.begin(text, queue="followup") for text in ("hang", "b", "c")]
    assert (await world.call("abort", session="alice", clear=True))["aborted"] is True
    assert [(await run.wait()).reason for run in runs] == ["interrupted"] * 3
    assert world.launcher.prompts == ["hang"]
    world.assert_at_rest()


async def test_a_turn_that_is_aborted_because_nothing_happens_says_so(world: World) -> None:
    outcome = await world.ask("hang", timeout=0)
    assert (outcome.reason, error_of(outcome).code, outcome.text) == ("error", "worker_stalled", "so far")
    assert "silent for 600 s in the turn (pool.turn_stall), which was aborted" in error_of(outcome).message
    assert (await world.events("done"))[-1]["data"]["error"]["code"] == "worker_stalled"
    assert (await world.call("status"))["counters"]["stalled"] == 1
    assert (await world.ask("say next")).text == "next"
    world.assert_at_rest()
